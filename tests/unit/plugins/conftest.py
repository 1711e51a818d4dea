# SPDX-License-Identifier: Apache-2.0
"""Make the checkout importable as ansible_collections.outoftree.ccm, and load fixture files."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import importlib.util
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common.text.converters import to_bytes

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def _importable() -> None:
    """Namespace packages need folders with their names: link the checkout into such a tree, unless it is importable."""
    try:
        if importlib.util.find_spec("ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags"):
            return
    except ImportError:
        pass
    root = pathlib.Path(tempfile.mkdtemp(prefix="outoftree-ccm-import-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    namespace = root / "ansible_collections" / "outoftree"
    namespace.mkdir(parents=True)
    (namespace / "ccm").symlink_to(REPOSITORY)
    for name in [name for name in sys.modules if name.split(".")[0] == "ansible_collections"]:
        del sys.modules[name]
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()


_importable()

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit  # noqa: E402
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags as _flags, nodes as _nodes  # noqa: E402
from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect  # noqa: E402
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal as _journal
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import draft, rollback  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """`ansible-test units` does not read the checkout's pytest.ini, and refuses marks that it does not know."""
    config.addinivalue_line("markers", "threat(name): shows that a row of SECURITY.md's threat model holds")


@pytest.fixture
def run_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a module with arguments, as Ansible does on a host, and returns its result."""

    def run(module: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
        out = io.StringIO()
        monkeypatch.setattr("sys.stdout", out)
        with pytest.raises(SystemExit):
            module.main()
        result: dict[str, Any] = json.loads(out.getvalue())
        # The controller of ansible-core 2.22 removes these secrets from the result, and masks them in its output.
        hidden = [json.dumps(secret)[1:-1] for secret in result.pop("_ansible_new_secrets", [])]
        shown: dict[str, Any] = json.loads(functools.reduce(lambda text, secret: text.replace(secret, "********"), hidden, json.dumps(result)))
        return shown

    return run


@pytest.fixture
def label() -> str:
    """Return the name of the extended attribute that has a file's SELinux label. Without SELinux, the kernel stores it like any other
    attribute, and a new file has none: a label that the product does not copy is lost. Only root may set it, so other users get the
    name of an ordinary attribute."""
    return "security.selinux" if os.geteuid() == 0 else "user.selinux"


@pytest.fixture
def fixture_text() -> Any:
    """Return a reader of fixture files that keeps every byte of their line ends."""

    def read(name: str) -> str:
        return (FIXTURES / name).read_bytes().decode("utf-8")

    return read


@pytest.fixture
def host_facts(fixture_text: Any) -> Any:
    """Build what ccm_component_flags_info returns of a kubeadm host, from texts by path."""

    def build(name: str, files: dict[str, str], running: list[str] | None = None,
              components: dict[str, list[str]] | None = None) -> dict[str, Any]:
        paths = {
            "/usr/lib/systemd/system/kubelet.service": fixture_text("kubelet/kubelet.service"),
            "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": fixture_text("kubelet/10-kubeadm.conf"),
            **files,
        }
        environment = ["/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet"]
        entries = {}
        for path in [*paths, *environment]:
            text = paths.get(path)
            entries[path] = {
                "exists": text is not None, "content": base64.b64encode((text or "").encode()).decode(),
                "sha256": "sha-of-" + path if text is not None else "", "mode": "0644", "real_path": path, "problem": "",
            }
        return {
            "node_name": name, "layout": "kubeadm", "service": {}, "units": {},
            "patches": [path for path in files if path.startswith("/etc/kubernetes/patches/")],
            "components": {k: {"pid": 1, "flags": v, "version": ""} for k, v in (components or {}).items()},
            "kubelet": {
                "unit_files": list(paths)[:2], "environment_files": environment, "config_files": [], "unread_files": [], "version": "v1.36.3",
                "pid": 7, "flags": running or [], "static_pod_path": "/etc/kubernetes/manifests",
            },
            "manifests": [path for path in files if path.startswith("/etc/kubernetes/manifests/")],
            "files": entries, "journal": {}, "admin_conf": "", "api_server": "", "problems": [],
        }

    return build


def node_facts(name: str, kind: str) -> dict[str, Any]:
    """Return a Node as ccm_cluster_info reports it: every fact of a Ready Node without history, and a few facts of an instance."""
    node = {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    return {**_nodes.summary(node, "sim://"), "class": kind, "reason": f"it is {kind}",
            "provider_id": "sim://north/1" if kind == "initialized" else "",
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "zone": "north-a", "region": "north",
            "instance_type": "sim.small", "control_plane": name.startswith("cp-")}


@pytest.fixture
def cluster_facts(fixture_text: Any) -> Any:
    """Build what ccm_cluster_info returns."""

    def build(*nodes: tuple[str, str], version: str = "v1.36.3", kubeadm: str | None = None, runtime: dict[str, Any] | None = None,
              held: str = "", others: list[dict[str, Any]] | None = None, taken: list[str] | None = None,
              renewed: str = "") -> dict[str, Any]:
        content = fixture_text("kubeadm-1.36/cluster-configuration.yaml") if kubeadm is None else kubeadm
        return {
            "version": version,
            "nodes": [node_facts(name, kind) for name, kind in nodes],
            "kubeadm_config": {"exists": bool(content), "content": content, "sha256": "sha-of-config"},
            "runtime": {"exists": False, "managed": False, "wide": False, "name": "cloud-controller-manager", "image": "", "created": "",
                        **(runtime or {})},
            "lease": {"exists": bool(held), "held": bool(held), "holder": held, "age": 1.0, "renewed": renewed, "annotations": {},
                      "namespace": "kube-system", "name": "cloud-controller-manager"},
            "others": others or [], "taken": taken or [],
            "services": [], "compared": {"done": True, "reason": ""}, "serving": {"approvers": [], "pending": []},
        }

    return build


UNITS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "kube-apiserver", "kube-controller-manager")


@pytest.fixture
def tree_facts(fixture_text: Any) -> Any:
    """Build what ccm_component_flags_info returns of a host, from a fixture tree such as 'k3s/server'."""

    def build(tree: str, name: str = "", version: str = "v1.33.4", changed: dict[str, str | None] | None = None) -> dict[str, Any]:
        root = FIXTURES / tree
        texts: dict[str, str | None] = {"/" + str(path.relative_to(root)): fixture_text(str(path.relative_to(FIXTURES)))
                                        for path in sorted(root.rglob("*")) if path.is_file()}
        texts.update(changed or {})
        found: dict[str, dict[str, Any]] = {}
        for unit in UNITS:
            fragments = [path for path in texts if path.endswith(f"/{unit}.service") and texts[path] is not None]
            if fragments:
                files = fragments + sorted(path for path in texts if f"/{unit}.service.d/" in path)
                parsed = _unit.parse_unit([(path, texts[path] or "") for path in files])
                environment = [path.replace("%N", unit) for path in parsed.environment_files]
                found[unit] = {"unit": f"{unit}.service", "unit_files": files, "environment_files": environment}
        running = {}
        for unit, item in found.items():
            sources = _unit.Sources(tuple(item["unit_files"]), tuple(item["environment_files"]), texts)
            argv = [argument.value for argument in sources.command_line().arguments]
            running[unit] = [_flags.render(name, value) for name, value in _unit.managed_flags(argv)]
        names = [unit for unit in found if unit not in ("kubelet", "kube-apiserver", "kube-controller-manager")]
        service: dict[str, Any] = {}
        kubelet = {"unit_files": [], "environment_files": [], **found.get("kubelet", {})}
        if names:
            kind = names[0].partition("-")[0]
            main = f"/etc/rancher/{kind}/config.yaml"
            parsed = _unit.parse_unit([(path, texts[path] or "") for path in found[names[0]]["unit_files"]])
            service = {"name": kind, "unit": names[0] + ".service", "server": "agent" not in names[0],
                       "arguments": [word.value for word in parsed.exec_words[1:]], "stale": False,
                       "config_files": [main, *sorted(path for path in texts if path.startswith(main + ".d/"))],
                       "data_directory": f"/var/lib/rancher/{kind}"}
        paths = {*texts, *(path for item in found.values() for path in item["environment_files"]), *service.get("config_files", [])}
        entries = {path: {"exists": texts.get(path) is not None, "content": base64.b64encode((texts.get(path) or "").encode()).decode(),
                          "sha256": f"sha-of-{path}" if texts.get(path) is not None else "", "mode": "0644", "real_path": path,
                          "problem": ""} for path in paths}
        return {
            "node_name": name or tree.replace("/", "-"), "layout": service.get("name") or tree.split("/")[0], "service": service,
            "units": {unit: item for unit, item in found.items() if unit.startswith("kube-")}, "patches": [],
            "components": {unit: {"pid": 1, "flags": flags, "version": version} for unit, flags in running.items()
                           if unit.startswith("kube-")},
            "kubelet": {**kubelet, "config_files": [path for path in texts if path == "/var/lib/kubelet/config.yaml"],
                        "unread_files": [], "version": version, "pid": 7, "flags": running.get("kubelet", []),
                        "static_pod_path": "/etc/kubernetes/manifests"},
            "manifests": [path for path in texts if path.startswith("/etc/kubernetes/manifests/")],
            "files": entries, "journal": {}, "admin_conf": "", "api_server": "", "problems": [],
        }

    return build


class Killed(Exception):
    """The equivalent of SIGKILL for a module."""


class Machine:
    """A host that is only files and a journal. It carries plans out as ccm_component_config does; tests may change files in between."""

    def __init__(self, build: Any, texts: dict[str, str | None], directory: pathlib.Path) -> None:
        self._build, self.texts, self.directory, self._runs, self.version = build, dict(texts), directory, 0, "v1.33.4"

    def facts(self, **more: Any) -> dict[str, Any]:
        """Return what ccm_component_flags_info returns. The host's processes run with the flags of their files; `more` replaces facts."""
        facts: dict[str, Any] = self._build(self.texts)
        for entry in facts["files"].values():
            content = base64.b64decode(entry["content"]) if entry["exists"] else None
            entry["sha256"] = _journal.digest(content)
        facts["kubelet"]["version"] = self.version
        facts["kubelet"]["flags"] = rollback._flags(facts, "kubelet", {})
        for component in ("kube-apiserver", "kube-controller-manager"):
            if component in facts["units"] or any(f"name: {component}\n" in (self.texts[path] or "") for path in facts["manifests"]):
                facts["components"][component] = {"pid": 1, "flags": rollback._flags(facts, component, {}), "version": ""}
        for path in _journal.Journal(str(self.directory)).files:  # files of the host that this layout does not read
            if path.startswith("/") and path not in facts["files"]:
                text = self.texts.get(path)
                facts["files"][path] = {"exists": text is not None, "content": draft.encoded(text or ""), "problem": "",
                                        "sha256": _journal.digest(None if text is None else text.encode())}
        detect.detect_journal(facts, str(self.directory))
        facts.update(more)
        return facts

    def carry_out(self, steps: dict[str, Any], killed: int = -1) -> None:
        """Carry out the steps of a plan. `killed`: the number of writes (of a journal or a file) after which the run is killed, -1 never."""
        self._runs, self._left = self._runs + 1, killed
        with contextlib.suppress(Killed):
            for step in [*steps["control_plane"], *([steps["kubelet"]] if steps["kubelet"] else [])]:
                for item in step["files"]:
                    self._write(step, item)

    def _breathe(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def _write(self, step: dict[str, Any], item: dict[str, Any]) -> None:
        self._breathe()
        journal, path = _journal.Journal(str(self.directory)), item["path"]
        now = None if self.texts.get(path) is None else (self.texts[path] or "").encode()
        assert _journal.digest(now) == item["sha256"], path
        if step.get("state") != "restored":
            after = base64.b64decode(item["content"])
            journal.record(path, step["component"], f"run-{self._runs}", now, after, 0o600, (0, 0), step["flags_before"], step["service"])
            self._breathe()
            self.texts[path] = after.decode()
            return
        if "content" in item:
            self.texts[path] = base64.b64decode(item["content"]).decode()
        elif not item.get("keep"):
            original = journal.original(path)
            self.texts[path] = None if original is None else original.decode()
        self._breathe()
        journal.forget(path)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Any:
    """Build a Machine from a function that makes facts of texts, and from the texts."""
    count = iter(range(10 ** 6))
    return lambda build, texts: Machine(build, texts, tmp_path / f"state-{next(count)}")

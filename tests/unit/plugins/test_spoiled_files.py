# SPDX-License-Identifier: Apache-2.0
"""Unreadable and damaged files: the host or the planner names each of them, and nothing is lost."""

from __future__ import annotations

import base64
import errno
import os
import pathlib
import types
from typing import Any, Callable

import pytest
from ansible_collections.outoftree.ccm.plugins.filter.lint_findings import lint_findings
from ansible_collections.outoftree.ccm.plugins.filter.migration_plan import migration_plan
from ansible_collections.outoftree.ccm.plugins.filter.rollback_plan import rollback_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    commands,
    detect,
    files,
    places,
    probes,
    processes,
    systemd,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.host.journal import digest
from ansible_collections.outoftree.ccm.plugins.modules import ccm_component_config, ccm_component_flags_info

FILES = {
    "kubelet.service": "[Service]\nEnvironmentFile=-{root}/kubelet.env\n"
                       "ExecStart=/usr/bin/kubelet --config={root}/config.yaml --hostname-override=cp-1 $KUBELET_EXTRA_ARGS\n",
    "kubelet.service.d/10-cloud.conf": "[Service]\nRestart=always\n",
    "kubelet.env": "KUBELET_EXTRA_ARGS=--cloud-provider=aws\n",
    "config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nstaticPodPath: {root}/manifests\n",
    "manifests/kube-controller-manager.yaml":
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: kube-controller-manager}}\nspec:\n  containers:\n"
        "  - name: kube-controller-manager\n    command:\n    - kube-controller-manager\n    - --cloud-provider=aws\n",
}
#: One file of each kind. kubelet.service is left out, because units are read like drop-ins.
KINDS = ["kubelet.service.d/10-cloud.conf", "kubelet.env", "config.yaml", "manifests/kube-controller-manager.yaml"]
BINARY = b"\x7fELF\x02\x01\x01\x00\xff\xfe\x00\n[Service]\n\x00=\x00\x80: {\xc3\n" * 40


def binary(path: pathlib.Path) -> None:
    path.write_bytes(BINARY)


def huge(path: pathlib.Path) -> None:
    """Make the file 100 MiB large. It has holes, and takes no space."""
    with path.open("r+b") as handle:
        handle.truncate(100 << 20)


def folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


def gone(path: pathlib.Path) -> None:
    path.unlink()


class Host:
    """A control plane whose files are below a folder. The product's own code reads and writes them."""

    def __init__(self, root: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> None:
        self.root, self._run_module = root, run_module
        for name, text in FILES.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text.format(root=root))
        argv = ["kubelet", f"--config={root}/config.yaml", "--hostname-override=cp-1", "--cloud-provider=aws"]
        manager = processes.Process(8, 8, ["kube-controller-manager", "--cloud-provider=aws"])
        unit = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": f"{root}/kubelet.service",
                "DropInPaths": f"{root}/kubelet.service.d/10-cloud.conf"}
        monkeypatch.setattr(ccm_component_flags_info, "os", types.SimpleNamespace(geteuid=lambda: 0))
        monkeypatch.setattr(systemd, "unit_properties", lambda name, names: unit if name == "kubelet" else {})
        monkeypatch.setattr(processes, "of_unit", lambda unit, name="": processes.Process(7, 7, argv))
        monkeypatch.setattr(processes, "of_static_pod", lambda name, logs="": [manager] if name == manager.argv[0] else [])
        monkeypatch.setattr(processes, "unrecognised", lambda *unused: [])
        monkeypatch.setattr(processes, "impostors", lambda *unused: [])
        monkeypatch.setattr(processes, "started_at", lambda running: 1.0)
        monkeypatch.setattr(processes, "version_of", lambda running, program: ("v1.30.4", ""))
        monkeypatch.setattr(probes, "baseline", lambda ask: "")
        monkeypatch.setattr(probes, "kubelet_serving", lambda argv, texts: {"bootstrap": False, "names": [], "not_after": "", "problem": ""})
        monkeypatch.setattr(commands, "run", lambda *unused, **options: pytest.fail("nothing may be restarted"))

    def path(self, name: str) -> str:
        return str(self.root / name)

    def detect(self) -> dict[str, Any]:
        result: dict[str, Any] = self._run_module(ccm_component_flags_info, {
            "node_name": "cp-1", "state_directory": self.path("state"), "patches_directory": self.path("patches"), "_ansible_remote_tmp": self.path("")})
        return result

    def change(self, before: dict[str, bytes]) -> dict[str, Any]:
        items = [{"path": self.path(name), "content": base64.b64encode(content + b"# x\n").decode(), "sha256": digest(content)}
                 for name, content in before.items()]
        result: dict[str, Any] = self._run_module(ccm_component_config, {
            "component": "kubelet", "state_directory": self.path("state"), "timeout": 1, "files": items, "_ansible_remote_tmp": self.path("")})
        return result

    def contents(self) -> dict[str, bytes]:
        return {name: (self.root / name).read_bytes() for name in FILES if (self.root / name).is_file()}


@pytest.fixture
def host(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, run_module: Any) -> Host:
    return Host(tmp_path, monkeypatch, run_module)


def test_the_host_without_a_bad_file_is_planned(host: Host, cluster_facts: Any) -> None:
    plan = migration_plan({"cp-1": host.detect()}, cluster_facts(("cp-1", "unmanaged"), version="v1.30.4", kubeadm=""), ["cp-1"])
    assert not plan["problems"] and [edit["file"] for edit in plan["edits"] if edit["component"] == "kubelet"] == [host.path("kubelet.env")]


@pytest.mark.threat("worker-cannot-change-others")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("spoil", [binary, huge, folder], ids=lambda spoil: spoil.__name__)
def test_a_bad_file_is_a_problem_that_names_host_and_file(host: Host, cluster_facts: Any, name: str, spoil: Callable[[pathlib.Path], None]) -> None:
    spoil(host.root / name)
    before = host.contents()
    detected, cluster = {"cp-1": host.detect()}, cluster_facts(("cp-1", "unmanaged"), version="v1.30.4", kubeadm="")
    assert "msg" not in detected["cp-1"] and len(str(detected)) < 100_000
    problems = migration_plan(detected, cluster, ["cp-1"])["problems"]
    # The kubelet ignores folders among its manifests, so the component has no manifest.
    place = host.path("manifests") if spoil is folder and name.startswith("manifests/") else host.path(name)
    named = [problem for problem in problems if problem.startswith("cp-1: ") and place in problem]
    assert named and not [problem for problem in problems if "Error" in problem or "report this" in problem], problems
    assert not [problem for problem in rollback_plan(detected, cluster, ["cp-1"])["problems"] if "report this" in problem]
    assert not [text for text in lint_findings(detected, cluster)["unread"] if "report this" in text]
    assert host.contents() == before


@pytest.mark.parametrize("name", list(FILES))
def test_a_file_that_vanishes_while_it_is_read_ends_no_detection(host: Host, cluster_facts: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = files.read

    def read(path: str, *more: Any) -> Any:
        content = real(path, *more)
        if path == host.path(name):
            (host.root / name).unlink(missing_ok=True)
        return content

    monkeypatch.setattr(files, "read", read)
    found = host.detect()
    assert "files" in found and found["node_name"] == "cp-1", found
    migration_plan({"cp-1": found}, cluster_facts(("cp-1", "unmanaged"), version="v1.30.4", kubeadm=""), ["cp-1"])


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("spoil", [binary, huge, folder, gone], ids=lambda spoil: spoil.__name__)
def test_a_file_that_is_bad_after_the_plan_stops_the_change_of_each(host: Host, name: str, spoil: Callable[[pathlib.Path], None]) -> None:
    planned = host.contents()
    spoil(host.root / name)
    before = host.contents()
    result = host.change(planned)
    assert result["failed"] and host.path(name) in result["msg"] and "nothing" in result["msg"], result
    assert host.contents() == before and not (host.root / "state" / "journal.json").exists()
    assert not list(host.root.rglob(".outoftree-ccm*"))


def test_a_configuration_of_k3s_that_vanishes_while_it_is_read_ends_no_detection(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Detection reads the file's change time after its content. By then, the file may be gone."""
    (host.root / "k3s.service").write_text(f"[Service]\nExecStart=/usr/local/bin/k3s agent --config={host.root}/config.yaml\n")
    unit = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": host.path("k3s.service"), "DropInPaths": ""}
    monkeypatch.setattr(systemd, "unit_properties", lambda name, names: unit if name == "k3s-agent" else {})
    real = detect.read_file

    def read_file(path: str, secret: bool = False) -> Any:
        entry = real(path, secret)
        if secret:
            (host.root / "config.yaml").unlink()
        return entry

    monkeypatch.setattr(detect, "read_file", read_file)
    found = host.detect()
    assert found["service"]["name"] == "k3s" and not found["service"]["stale"] and found["files"][host.path("config.yaml")]["exists"]


@pytest.mark.parametrize(("kind", "line", "named"), [
    ("k3s", "K3S_KUBELET_EXTRA_ARGS='--cloud-provider=external'", "the environment of its unit has K3S_KUBELET_EXTRA_ARGS, which k3s does not read"),
    ("k3s", "K3S_ARGS=\"--v=2\\\n --cloud-config=/c\"", "the environment of its unit has K3S_ARGS, which k3s does not read"),
    ("rke2", "RKE2_KUBELET_ARG=--cloud-provider=aws", "the environment of its unit has RKE2_KUBELET_ARG, which rke2 does not read"),
    ("k3s", "K3S_NODE_NAME=w-1", ""), ("k3s", "KUBELET_EXTRA_ARGS=--cloud-provider=aws", ""), ("rke2", "K3S_ARGS=--cloud-provider=aws", ""),
])
def test_flags_in_variables_that_nobody_reads_are_reported(host: Host, monkeypatch: pytest.MonkeyPatch, kind: str, line: str, named: str) -> None:
    """People set such flags for the kubelet, which never gets them."""
    (host.root / "agent.env").write_text(line + "\n")
    (host.root / "agent.service").write_text(f"[Service]\nEnvironmentFile=-{host.root}/agent.env\nExecStart=/usr/local/bin/{kind} agent\n")
    unit = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": host.path("agent.service"), "DropInPaths": ""}
    monkeypatch.setattr(systemd, "unit_properties", lambda name, names: unit if name == kind + "-agent" else {})
    found = host.detect()
    assert found["service"]["name"] == kind and [text for text in found["notices"] if "does not read" in text] == ([named] if named else [])


@pytest.mark.parametrize(("kind", "line", "named"), [
    ("k3s", "ExecStartPre=/bin/sh -c 'echo token: s3cret > {config}'", True), ("rke2", "ExecCondition=/opt/render \\\n  {config}", True),
    ("k3s", "ExecStartPre=-/sbin/modprobe overlay", False), ("rke2", "ExecStopPost=/bin/rm {config}", False), ("k3s", "ExecStartPre=", False),
])
def test_a_command_that_may_write_the_configuration_is_reported_with_its_line(
    host: Host, monkeypatch: pytest.MonkeyPatch, kind: str, line: str, named: bool
) -> None:
    config = host.path("config.yaml")
    (host.root / "config.yaml").write_text("token: x\n")
    start = f"ExecStart=/usr/local/bin/{kind} agent --config {config}\n"
    (host.root / "agent.service").write_text(f"[Service]\n{line.format(config=config)}\n{start}")
    unit = {"LoadState": "loaded", "ActiveState": "active", "FragmentPath": host.path("agent.service"), "DropInPaths": ""}
    monkeypatch.setattr(systemd, "unit_properties", lambda name, names: unit if name == kind + "-agent" else {})
    found = host.detect()
    place = f"{host.path('agent.service')} line 2: {line.partition('=')[0]}"
    assert found["service"]["before"] == ({config: place} if named else {}) and "s3cret" not in str(found)


def test_what_the_system_refuses_during_detection_is_a_problem_of_the_host(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(result: Any, directory: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/etc/kubernetes")

    monkeypatch.setattr(ccm_component_flags_info, "check_writable", refuse)
    found = host.detect()
    assert not found.get("failed") and "cannot use /etc/kubernetes: Input/output error" in found["problems"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("path", ["config.yaml", "", "./a/b", "/", "/no/such/folder/a"])
def test_a_path_without_a_folder_has_an_end(path: str) -> None:
    assert places.obstacle(path, []) == ""

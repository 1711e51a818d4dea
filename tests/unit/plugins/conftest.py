# SPDX-License-Identifier: Apache-2.0
"""Make the checkout importable as ansible_collections.outoftree.ccm, and load fixture files."""

from __future__ import annotations

import atexit
import base64
import importlib.util
import pathlib
import shutil
import sys
import tempfile
from typing import Any

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def _importable() -> None:
    """Namespace packages need the folders' names: link the checkout into a tree of that shape."""
    try:
        if importlib.util.find_spec("ansible_collections.outoftree.ccm.plugins.module_utils._flags"):
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
                "pid": 7, "flags": running or [], "needs_reload": False, "static_pod_path": "/etc/kubernetes/manifests",
            },
            "manifests": [path for path in files if path.startswith("/etc/kubernetes/manifests/")],
            "files": entries, "journal": {}, "admin_conf": "", "api_server": "", "problems": [],
        }

    return build


@pytest.fixture
def cluster_facts(fixture_text: Any) -> Any:
    """Build what ccm_cluster_info returns."""

    def build(*nodes: tuple[str, str], version: str = "v1.36.3", kubeadm: str | None = None, runtime: dict[str, Any] | None = None,
              held: str = "") -> dict[str, Any]:
        content = fixture_text("kubeadm-1.36/cluster-configuration.yaml") if kubeadm is None else kubeadm
        return {
            "version": version,
            "nodes": [{"name": name, "class": kind, "reason": f"it is {kind}", "provider_id": "sim://north/1" if kind == "initialized" else "",
                       "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "zone": "north-a", "region": "north",
                       "instance_type": "sim.small", "control_plane": name.startswith("cp-"), "etcd_voter": None, "managed_by": ""} for name, kind in nodes],
            "kubeadm_config": {"exists": bool(content), "content": content, "sha256": "sha-of-config"},
            "runtime": {"exists": False, "managed": False, "wide": False, "name": "cloud-controller-manager", "image": "", **(runtime or {})},
            "lease": {"exists": bool(held), "held": bool(held), "holder": held, "age": 1.0, "annotations": {}},
            "services": [],
        }

    return build

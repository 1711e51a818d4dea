# SPDX-License-Identifier: Apache-2.0
"""Which modules only decide, and which tests must notice when they decide otherwise.

A new module need not be listed here. All modules of the collection that plugins share, all `*_rules.py` of the runtime,
the providers' toolkit, and each module of the runtime whose docstring says that it is pure or does no I/O are changed,
except those that `EXCLUDED` names with the reason.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime" / "ccm"
TOOLKIT = RUNTIME / "cloud" / "toolkit"
UTILS = ROOT / "plugins" / "module_utils"

_HOST = "plugins/module_utils/host"
#: Modules that read or write the host, run programs or ask servers, by path. Their tests need doubles or a host of
#: files, and with a change they may write or run something else.
EXCLUDED = {
    "plugins/module_utils/cluster/api.py": "It asks the API server.",
    "plugins/module_utils/cluster/asker.py": "It serves, and asks other servers.",
    "plugins/module_utils/cluster/controllers.py": "It asks the API server.",
    "plugins/module_utils/cluster/used_volumes.py": "It asks the API server.",
    f"{_HOST}/commands.py": "It runs programs.",
    f"{_HOST}/component.py": "It replaces files and waits for processes.",
    f"{_HOST}/component_change.py": "It writes files and waits for a component.",
    f"{_HOST}/detect.py": "It reads units, manifests and processes of a host, for the parsers of other modules.",
    f"{_HOST}/files.py": "It opens files and follows links: with a change, those that no test should.",
    f"{_HOST}/logs.py": "It reads log files.",
    f"{_HOST}/machine.py": "It reads the machine's identity, addresses and clock.",
    f"{_HOST}/probes.py": "It asks health endpoints.",
    f"{_HOST}/systemd.py": "It runs systemctl, and splits lines of NAME=VALUE.",
}
#: Tests that compare with systemd's own library.
_OF_SYSTEMD = (
    "test_unit.py",
    "test_unit_edits.py",
    "test_command_lines.py",
    "test_units_between_lines.py",
    "test_units_against_systemd.py",
)
#: The tests of modules that only other modules use, or whose test has another name. A test in another folder is named
#: by its path from tests/unit/runtime.
_TESTED_BY = {
    "settings_yaml": ("test_settings.py",),
    "digests": ("providers/test_fingerprints.py",),
    "settings_rules": ("test_settings.py",),
    "gcfg": ("providers/openstack/test_settings.py",),
    "gcfg_sections": ("providers/openstack/test_settings.py",),
    "located_yaml": ("providers/static/test_static.py",),
    "remedies": ("test_repair.py",),
    "compare": ("test_command_lines.py",),
    "env_file": _OF_SYSTEMD,
    "kubeadm": ("test_generated_kubeadm.py",),
    "kubelet": ("test_command_lines.py", "test_units_against_systemd.py"),
    "kubernetes_yaml": ("test_cloud_configs.py", "test_generated_kubelet.py", "test_yamltext.py"),
    "manifest": ("test_generated_manifests.py",),
    "patches": ("test_generated_manifests.py",),
    "unit": _OF_SYSTEMD,
    "unit_edits": ("test_kubelet.py", *_OF_SYSTEMD),
    "words": _OF_SYSTEMD,
    "yamltext": ("test_generated_manifests.py", "test_generated_kubeadm.py"),
    "control_plane": ("test_layouts.py", "test_plan.py"),
    "kubelets": ("test_command_lines.py", "test_layouts.py", "test_plan.py"),
    "outcome": ("test_run_outcome.py",),
    "limit_settings": ("providers/test_limits.py",),
    "gates": ("test_odd_files.py", "test_plan.py", "test_versions.py"),
    "inventory": ("test_refusals.py", "test_plan.py"),
    "new_nodes": ("test_plan.py", "test_layouts.py"),
    "report": ("test_plan.py", "test_report.py"),
    "secrets": ("test_journal_copy.py",),
    "settings": ("test_generated_kubelet.py", "test_probes.py", "test_logs_and_addresses.py"),
    "undo": ("test_rollback.py", "test_forward_and_back.py"),
    "listener_rules": ("test_load_balancer_rules.py", "test_load_balancers.py"),
    "load_balancer_rules": ("test_desired_state.py", "test_load_balancers.py"),
    "node_rules": ("test_nodes.py",),
    "sharing_rules": ("test_tenants.py", "test_shared_balancers.py", "test_side_by_side.py"),
}
#: Tests that draw inputs are by far the slowest, and most do not compare exact results, so they are left out. Tests
#: that compare with the program that owns a format are named above; they draw DRAWN texts.
_SLOW = re.compile("fuzz|forward_and_back|generated|against_systemd")
#: Tests that compare with the program that owns a format, for the collection and the runtime.
_FORMATS = ROOT / "tests/unit/formats"
DRAWN = 160
_SAYS_PURE = re.compile(r"\bpure\b|\bno I/O\b", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """A file of the repository, the name by which tests import it, and the files of tests, the nearest first."""

    path: Path
    module: str
    tests: tuple[Path, ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


@functools.cache
def candidates() -> tuple[str, ...]:
    """Return all modules that only decide, and all shared modules of the collection, even those in `EXCLUDED`, as paths
    from the repository's root."""
    found = [path for path in RUNTIME.rglob("*.py") if only_decides(path)] + list(UTILS.rglob("*.py"))
    return tuple(sorted(str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"))


def targets(*patterns: str) -> list[Target]:
    """Return the targets whose path contains one of the patterns; without patterns, all targets."""
    names = [name for name in candidates() if name not in EXCLUDED]
    return [_target(ROOT / name) for name in names if not patterns or any(each in name for each in patterns)]


def only_decides(path: Path) -> bool:
    """Return whether a module of the runtime only decides, by its name, its folder or its docstring."""
    if path.stem.endswith("_rules") or path.parent == TOOLKIT:
        return True
    source = path.read_text()
    return bool(_SAYS_PURE.search(source) and _SAYS_PURE.search(ast.get_docstring(ast.parse(source)) or ""))


@functools.cache
def _target(path: Path) -> Target:
    """Return a file as a target. Its tests, in this order: test_NAME.py; for NAME_rules.py also test_NAME.py without
    `_rules`; those in `_TESTED_BY`; those that import it. If there are none, the test of its package."""
    if path.is_relative_to(RUNTIME):
        root, prefix, everywhere = ROOT / "runtime", "", ROOT / "tests/unit/runtime"
        room = _nearest(everywhere / path.parent.relative_to(RUNTIME))
    else:
        root, prefix, room = ROOT, "ansible_collections.outoftree.ccm.", ROOT / "tests/unit/plugins"
        everywhere = room
    stem, elsewhere = path.stem, _TESTED_BY.get(path.stem, ())
    by_name = [f"test_{stem}.py", f"test_{stem.removesuffix('_rules')}.py", *(Path(name).name for name in elsewhere)]
    named = re.compile(rf"\b{stem}\b" if stem.endswith("_rules") else _imported(path))
    every = [*sorted(room.rglob("test_*.py")), *sorted(_FORMATS.glob("test_*.py"))]
    found = [test for test in every if test.name in by_name or not _SLOW.search(test.name)]
    near = [test for test in found if test.name in by_name or named.search(_text(test))]
    near += [everywhere / name for name in elsewhere if "/" in name]
    near = near or [test for test in found if test.name == f"test_{path.parent.name}.py"]  # one for the whole package
    near.sort(key=lambda test: (by_name.index(test.name) if test.name in by_name else 9, test.stat().st_size))
    module = prefix + ".".join(path.relative_to(root).with_suffix("").parts)
    return Target(path, module, tuple(near))


@functools.cache
def _text(path: Path) -> str:
    """Return the text of a file. It is cached, because each of a hundred modules reads the same tests."""
    return path.read_text()


def _nearest(folder: Path) -> Path:
    """Return the folder if it exists, or else its nearest parent that exists."""
    return folder if folder.is_dir() else _nearest(folder.parent)


def _imported(path: Path) -> str:
    """Return a pattern for the import of a module with its package: many tests contain the module's name as a word."""
    room, name = path.parent.name, path.stem
    return rf"\.{room}(\.{name}\b| import (\([^)]*|[^\n(]*)\b{name}\b)"

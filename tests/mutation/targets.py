# SPDX-License-Identifier: Apache-2.0
"""Which modules only decide, and which tests must notice when they decide otherwise."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime" / "ccm"

#: Modules of the collection that read or write the host, run programs or ask servers: others decide for them.
_MOVES_DATA = {
    *("__init__", "api", "commands", "component", "detect", "files", "health"),
    *("logs", "machine", "probes", "processes", "settings", "systemd"),
}
#: Modules that only other modules use, or that have a test of another name.
_TESTED_BY = {
    "gates": ("test_odd_files.py", "test_plan.py", "test_versions.py"),
    "inventory": ("test_inventories.py", "test_plan.py"),
    "new_nodes": ("test_plan.py", "test_layouts.py"),
    "report": ("test_plan.py",),
    "secrets": ("test_journal_copy.py",),
    "undo": ("test_rollback.py", "test_forward_and_back.py"),
    "listener_rules": ("test_load_balancer_rules.py", "test_load_balancers.py"),
    "load_balancer_rules": ("test_load_balancers.py",),
    "node_rules": ("test_nodes.py",),
    "sharing_rules": ("test_tenants.py", "test_shared_balancers.py", "test_side_by_side.py"),
}
#: Tests that draw inputs are the slowest by far, and do not look at what exactly comes out.
_SLOW = re.compile("fuzz|forward_and_back")


@dataclass(frozen=True)
class Target:
    """A file of the repository, the name by which tests import it, and the files of tests, the nearest first."""

    path: Path
    module: str
    tests: tuple[Path, ...]

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


def targets(pattern: str = "") -> list[Target]:
    """The targets whose path contains the pattern."""
    rules = sorted(RUNTIME.rglob("*_rules.py"))
    utils = [path for path in sorted((ROOT / "plugins" / "module_utils").rglob("*.py")) if path.stem not in _MOVES_DATA]
    unit = ROOT / "tests" / "unit"
    found = [
        _target(path, ROOT / "runtime", "", unit / "runtime" / path.parent.relative_to(RUNTIME), rf"\b{path.stem}\b")
        for path in rules
    ]
    found += [
        _target(path, ROOT, "ansible_collections.outoftree.ccm.", unit / "plugins", _imported(path)) for path in utils
    ]
    return [each for each in found if pattern in each.name]


def _imported(path: Path) -> str:
    """What a test has that imports a module of a room: its name alone is a word of many tests."""
    room, name = path.parent.name, path.stem
    return rf"module_utils\.{room}(\.{name}\b| import (\([^)]*|[^\n(]*)\b{name}\b)"


def _target(path: Path, root: Path, prefix: str, tests: Path, mention: str) -> Target:
    """Its tests are those that bear its name, then those of what it decides for (route.py), then those that name it."""
    module = prefix + ".".join(path.relative_to(root).with_suffix("").parts)
    stem = path.stem
    by_name = [f"test_{stem}.py", f"test_{stem.removesuffix('_rules')}.py", *_TESTED_BY.get(stem, ())]
    named = re.compile(mention)
    found = [test for test in sorted(tests.rglob("test_*.py")) if test.name in by_name or not _SLOW.search(test.name)]
    near = [test for test in found if test.name in by_name or named.search(test.read_text())]
    near.sort(key=lambda test: (by_name.index(test.name) if test.name in by_name else 9, test.stat().st_size))
    return Target(path, module, tuple(near))

# SPDX-License-Identifier: Apache-2.0
"""The rooms of the collection, which are the folders of its shared code (docs/architecture.md): which may import which,
and what runs on managed nodes.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

PLUGINS = Path(__file__).parents[2] / "plugins"
UTILS = PLUGINS / "module_utils"
PACKAGE = "ansible_collections.outoftree.ccm.plugins.module_utils"

#: What each room may import. Decisions (plan) and actions (host, cluster) do not import each other.
BELOW = {
    "facts": set(),
    "edit": {"facts"},
    "plan": {"facts", "edit"},
    "host": {"facts", "edit"},
    "cluster": {"facts", "edit"},
}
#: Modules that Ansible runs on managed nodes.
ON_NODES = ("ccm_component_config", "ccm_component_flags_info", "ccm_image", "ccm_journal_info")

#: Modules that Python 3.12 and 3.13 removed (PEP 594, PEP 632, and "What's New in Python 3.12").
GONE_IN_3_13 = {
    "aifc", "asynchat", "asyncore", "audioop", "cgi", "cgitb", "chunk", "crypt", "distutils", "imghdr", "imp",
    "lib2to3", "mailcap", "msilib", "nis", "nntplib", "ossaudiodev", "pipes", "smtpd", "sndhdr", "spwd",
    "sunau", "telnetlib", "uu", "xdrlib",
}  # fmt: skip

#: The maximum number of lines in a file, documentation included.
LONGEST = 450

MODULES = sorted(path for path in UTILS.rglob("*.py") if path.name != "__init__.py")


def imported(path: Path) -> Iterator[str]:
    """Yield what a file imports, by absolute names; modules of our package as `room.module`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: AnsiballZ and ansible-test want absolute names"
            inside = (node.module or "").removeprefix(PACKAGE).strip(".")
            if not (node.module or "").startswith(PACKAGE):
                yield node.module or ""
            elif "." in inside:
                yield inside
            else:
                yield from (f"{inside}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[Path]:
    """Return the modules of the collection's rooms that a file imports, as paths."""
    found = (UTILS / f"{name.replace('.', '/')}.py" for name in imported(path))
    return {each for each in found if each.exists()}


def name(path: Path) -> str:
    return str(path.relative_to(UTILS).with_suffix("")).replace("/", ".")


def test_every_module_is_in_a_room_that_payloads_find():
    assert {path.parent.name for path in MODULES} == set(BELOW)
    assert all(path.parent.parent == UTILS for path in MODULES)
    # Without __init__.py, no payload has the package; ansible-test requires an empty file (empty-init).
    assert {room: (UTILS / room / "__init__.py").read_bytes() for room in BELOW} == dict.fromkeys(BELOW, b"")


@pytest.mark.parametrize("path", sorted(PLUGINS.rglob("*.py")), ids=lambda path: str(path.relative_to(PLUGINS)))
def test_no_file_is_longer_than_a_reader_keeps_in_mind(path: Path):
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_room_imports_only_what_is_below_it(path: Path):
    rooms = {each.parent.name for each in ours(path)} - {path.parent.name}
    assert rooms <= BELOW[path.parent.name]


def test_no_module_imports_itself_by_way_of_others():
    left = {path: ours(path) for path in MODULES}
    while True:
        free = [path for path, below in left.items() if not below & left.keys()]
        if not free:
            break
        for path in free:
            del left[path]
    assert sorted(map(name, left)) == []


def reached(path: Path) -> set[Path]:
    found, todo = set(), [path]
    while todo:
        below = ours(todo.pop()) - found
        found |= below
        todo += below
    return found


@pytest.mark.parametrize("module", ON_NODES)
def test_what_runs_on_managed_nodes_needs_python_3_8_and_nothing_else(module: str):
    entry = PLUGINS / "modules" / f"{module}.py"
    files = reached(entry)
    assert files and {path.parent.name for path in files} <= {"facts", "edit", "host"}
    for path in [entry, *files]:
        ast.parse(path.read_text(), feature_version=(3, 8))
        foreign = {each.split(".")[0] for each in imported(path)} - set(sys.stdlib_module_names) - set(BELOW)
        assert foreign <= {"ansible"}, path.name


def newer_than_3_8(*files: Path) -> str:
    """Return what vermin reports about syntax, modules and functions that Python 3.8 does not have; "" without any."""
    vermin = Path(sys.executable).with_name("vermin")
    options = ("--target=3.8-", "--violations", "--no-tips", "--eval-annotations")
    done = subprocess.run([vermin, *options, *files], capture_output=True, text=True, timeout=280)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("module", ON_NODES)
def test_what_runs_on_managed_nodes_uses_nothing_that_python_3_8_lacks_or_3_13_removed(module: str):
    entry = PLUGINS / "modules" / f"{module}.py"
    files = [entry, *sorted(reached(entry))]
    assert newer_than_3_8(*files) == ""
    for path in files:
        assert not {each.split(".")[0] for each in imported(path)} & GONE_IN_3_13, path.name


@pytest.mark.parametrize("line", ["import zoneinfo", "import ast\nast.unparse(tree)", "def f(x: list[int]): ..."])
def test_something_newer_is_noticed(line: str, tmp_path: Path):
    source = tmp_path / "newer.py"
    source.write_text(line + "\n")
    assert "3.9" in newer_than_3_8(source)


def test_no_variable_of_a_role_has_two_homes():
    """If two files of vars/main set a variable, Ansible silently takes the value that it reads last."""
    for role in sorted((PLUGINS.parent / "roles").iterdir()):
        homes: dict[str, list[str]] = {}
        for path in (role / "vars/main").glob("*.yml"):
            for name in yaml.safe_load(path.read_text()):
                homes.setdefault(name, []).append(path.name)
        assert not {name: files for name, files in homes.items() if len(files) > 1}

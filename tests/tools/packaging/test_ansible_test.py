# SPDX-License-Identifier: Apache-2.0
"""Each test of the collection can run below `ansible-test units` (make sanity, make cores).

Such a run has only the tree of tools/packaging/artifact.py and the packages of tools/packaging/environments.py. Tests
of modules and of their shared code run without the part of Ansible that managed nodes do not get.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.packaging import artifact, environments

OURS = "ansible_collections.outoftree.ccm."
TREE = {path for path in artifact.tracked(*artifact.TREE) if path.endswith(".py")}
TESTS = sorted(path for path in TREE if path.startswith("tests/unit/plugins/"))
#: Tests that ansible-test runs without the controller's code, and the conftest that all tests share.
OF_NODES = [path for path in TESTS if re.match(r"tests/unit/plugins/(module_utils/|modules/|conftest\.py)", path)]
#: The modules of Ansible that these tests get (`get_units_ansible_python_path` in
#: ansible_test/_internal/commands/units/__init__.py).
FOR_NODES = re.compile(r"ansible(\.module_utils(\..+)?)?")
#: Names of arguments that sanity's validate-modules refuses, because Ansible uses them itself.
RESERVED = {"message", "syslog_facility"}
#: Marks of pytest and of pytest-timeout. ansible-test reads no pytest.ini, so the conftest registers other marks.
MARKS = {"filterwarnings", "parametrize", "skip", "skipif", "timeout", "usefixtures", "xfail"}


@functools.cache
def imported(path: str) -> frozenset[str]:
    """Return the modules and names that a file imports, also inside functions."""
    return frozenset(_imported(ast.parse((artifact.REPOSITORY / path).read_text())))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def file_of(name: str) -> str:
    """Return the file of this repository that an imported name is, or is in; "" for names from elsewhere."""
    path = name.removeprefix(OURS).replace(".", "/")
    places = [f"{each}{end}" for each in (path, path.rpartition("/")[0]) if each for end in (".py", "/__init__.py")]
    return next((place for place in places if (artifact.REPOSITORY / place).is_file()), "")


def reached(path: str) -> set[str]:
    """Return a file, and the files of this repository that it imports, directly or indirectly."""
    found, todo = {path}, {path}
    while todo:
        todo = {file_of(name) for each in todo for name in imported(each)} - found - {""}
        found |= todo
    return found


@functools.cache
def provided() -> frozenset[str]:
    """Return the packages that a test environment installs, and all packages that they require."""
    found: set[str] = set()
    todo = ["ansible-core", "kubernetes", *environments.FOR_TESTS]
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        with contextlib.suppress(metadata.PackageNotFoundError):  # no test can import a package that is not installed
            todo += metadata.requires(name) or []
    return frozenset(found)


@functools.cache
def packages() -> Mapping[str, list[str]]:
    """Return the packages that provide each importable name."""
    return metadata.packages_distributions()


def foreign(path: str) -> set[str]:
    """Return the imported names that are neither ours, nor Python's, nor of a package in an environment."""
    tops = {name.split(".")[0] for name in imported(path) if not file_of(name)} - set(sys.stdlib_module_names)
    return {top for top in tops if not {canonicalize_name(each) for each in packages().get(top, ())} & provided()}


def test_the_tests_are_there() -> None:
    assert len(OF_NODES) > 60 and len(TESTS) > len(OF_NODES)
    assert "tests/systemd.py" in reached("tests/unit/plugins/module_utils/edit/test_unit.py")


@pytest.mark.parametrize("path", TESTS)
def test_what_a_test_imports_is_there(path: str) -> None:
    files = reached(path)
    assert files - TREE == set(), "add them to TREE of tools/packaging/artifact.py"
    others = {name: each for each in sorted(files) for name in foreign(each)}
    assert others == {}, "add them to FOR_TESTS of tools/packaging/environments.py"


@pytest.mark.parametrize("path", OF_NODES)
def test_a_test_of_what_runs_on_nodes_needs_no_code_of_the_controller(path: str) -> None:
    names = {name: each for each in sorted(reached(path)) for name in imported(each) if name.split(".")[0] == "ansible"}
    of_controller = {name: each for name, each in names.items() if not FOR_NODES.fullmatch(name)}
    assert of_controller == {}, f"move {path} to tests/unit/plugins/filter, action, plugin_utils or the folder of them"


@pytest.mark.parametrize("path", TESTS)
def test_every_mark_is_known_there(path: str) -> None:
    conftest = (artifact.REPOSITORY / "tests/unit/plugins/conftest.py").read_text()
    registered = set(re.findall(r'"markers", "(\w+)', conftest))
    used = set(re.findall(r"\bpytest\.mark\.(\w+)", (artifact.REPOSITORY / path).read_text()))
    assert used <= MARKS | registered, 'register it in the conftest: addinivalue_line("markers", ...)'


@pytest.mark.parametrize("path", sorted(path for path in TREE if path.startswith("plugins/modules/ccm_")))
def test_no_argument_has_a_name_that_ansible_keeps_for_itself(path: str):
    """The test checks arguments and their sub-options: the keywords whose value is a call with `type`."""
    calls = [
        each for each in ast.walk(ast.parse((artifact.REPOSITORY / path).read_text())) if isinstance(each, ast.Call)
    ]
    specified = {
        keyword.arg
        for call in calls
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Call) and "type" in {each.arg for each in keyword.value.keywords}
    }
    assert not specified & RESERVED

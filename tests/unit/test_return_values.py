# SPDX-License-Identifier: Apache-2.0
"""Modules return only keys that their RETURN describes, and no warnings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MODULES = sorted(ROOT.glob("plugins/modules/*.py"))
#: Keys that Ansible defines for all modules.
COMMON = {"changed", "diff", "failed", "msg"}
#: Keys that ansible-core 2.23 no longer accepts. `module.warn` and `module.deprecate` work with every release.
NOT_TO_BE_PASSED = {"warnings", "deprecations"}


def documented(path: Path) -> dict[str, dict]:
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "RETURN":
            return yaml.safe_load(ast.literal_eval(statement.value))
    raise AssertionError(f"{path.name} has no RETURN")


class Keys:
    """The keys that a module passes to exit_json or fail_json: named, in a dict, set later, or from its functions."""

    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._functions = {each.name: each for each in ast.walk(self._tree) if isinstance(each, ast.FunctionDef)}
        self._seen: set[str] = set()

    def returned(self, *ends: str) -> set[str]:
        """Return the keys that calls of the functions `ends` get, by default exit_json."""
        names = tuple(f".{end}" for end in ends or ("exit_json",))
        calls = [call for call in self._calls() if ast.unparse(call.func).endswith(names)]
        return {key for call in calls for key in self._of_call(call)}

    def _calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))

    def _of_call(self, call: ast.Call) -> Iterator[str]:
        for keyword in call.keywords:
            if keyword.arg is not None:
                yield keyword.arg
            else:
                yield from self._of(keyword.value)
        for value in call.args:
            yield from self._of(value)

    def _of(self, value: ast.expr) -> Iterator[str]:
        if isinstance(value, ast.Dict):
            for key, inner in zip(value.keys, value.values, strict=True):
                if key is None:
                    yield from self._of(inner)
                elif isinstance(key, ast.Constant):
                    yield key.value
        elif isinstance(value, ast.IfExp):
            yield from (*self._of(value.body), *self._of(value.orelse))
        elif isinstance(value, ast.Call) and ast.unparse(value.func) in ("dict", *self._functions):
            name = ast.unparse(value.func)
            yield from self._of_call(value) if name == "dict" else self._of_function(name)
        elif isinstance(value, (ast.Name, ast.Attribute)):
            yield from self._of_name(ast.unparse(value).rpartition(".")[2])

    def _of_function(self, name: str) -> Iterator[str]:
        if name not in self._seen:
            self._seen.add(name)
            inner = [each for each in ast.walk(self._functions[name]) if isinstance(each, ast.FunctionDef)][1:]
            others = {node for function in inner for node in ast.walk(function)}
            for node in ast.walk(self._functions[name]):
                if isinstance(node, ast.Return) and node.value is not None and node not in others:
                    yield from self._of(node.value)

    def _of_name(self, name: str) -> Iterator[str]:
        """Yield the keys of a variable or an attribute, wherever the module assigns to it."""
        if f"={name}" in self._seen:
            return
        self._seen.add(f"={name}")
        for node in ast.walk(self._tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                of_key = isinstance(target, ast.Subscript)
                if ast.unparse(target.value if of_key else target).rpartition(".")[2] != name:
                    continue
                if not of_key:
                    yield from self._of(node.value)
                elif isinstance(target.slice, ast.Constant):
                    yield str(target.slice.value)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith((f"{name}.update", f"{name}.setdefault")):
                yield from self._of_call(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_key_that_a_module_returns_is_documented(path: Path) -> None:
    returned = Keys(path.read_text()).returned()
    assert returned & documented(path).keys(), "this test no longer finds what the module returns"
    assert sorted(returned - documented(path).keys() - COMMON) == [], "describe it in RETURN"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_warns_and_does_not_return_warnings(path: Path) -> None:
    assert Keys(path.read_text()).returned("exit_json", "fail_json") & NOT_TO_BE_PASSED == set(), "call module.warn"


@pytest.mark.parametrize(
    "text",
    [
        "module.exit_json(changed=False, new=1)",
        "result = dict(new=1)\nmodule.exit_json(**result)",
        "result = {'new': 1}\nmodule.exit_json(changed=False, **result)",
        "result = {}\nresult['new'] = 1\nmodule.exit_json(**result)",
        "result = {}\nresult.update({'new': 1} if x else {})\nmodule.exit_json(**result)",
        "result = {}\nresult.update(new=1)\nmodule.exit_json(**result)",
        "def read():\n    return dict({'new': 1})\nresult = read()\nmodule.exit_json(**result)",
        "class Run:\n    def __init__(self):\n        self.result = dict(new=1)\nmodule.exit_json(**runs[0].result)",
    ],
)
def test_a_new_key_is_found_however_it_is_set(text: str) -> None:
    assert Keys(text).returned() - COMMON == {"new"}

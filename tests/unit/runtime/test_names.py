# SPDX-License-Identifier: Apache-2.0
"""The name of a parameter says what its value is."""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: The controller and the collection.
SOURCES = (ROOT / "runtime" / "ccm", ROOT / "plugins")
#: Names that say nothing about the value. No parameter has one.
REFUSED = ("found", "given", "said", "want", "told", "each", "mark", "met")


def parameters(text: str) -> Counter[str]:
    """Return how often each name is a parameter. Lambdas are short, so they may have `found` and `each`."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    count = Counter[str]()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, (*kinds, ast.Lambda)):
            names = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
            count.update(name for name in names if isinstance(function, kinds) or name not in ("found", "each"))
    return count


def test_no_parameter_has_a_name_that_says_nothing():
    count = sum((parameters(path.read_text()) for folder in SOURCES for path in folder.rglob("*.py")), Counter[str]())
    refused = {name: count[name] for name in REFUSED if count[name]}
    assert refused == {}, "name the parameter after what it is: settings, desired, annotations, status, evidence"


def test_parameters_are_counted():
    text = "def a(found, *given, want=1, **told):\n    def b(found): ...\n    c = lambda said, found: found\n"
    assert parameters(text) == {"found": 2, "given": 1, "want": 1, "told": 1, "said": 1}


def test_all_options_together_reach_few_files():
    """Every other package gets its own settings, so a reader can follow one flag through a few files."""
    takes = {
        str(path.relative_to(ROOT / "runtime" / "ccm"))
        for path in (ROOT / "runtime" / "ccm").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.arg) and node.annotation and ast.unparse(node.annotation) in ("Options", "Flags")
    }
    assert {name for name in takes if not name.startswith(("commands/", "options/"))} == {
        "manager/process.py",
        "manager/room_settings.py",
        "manager/running_controllers.py",
    }

# SPDX-License-Identifier: Apache-2.0
"""Names of parameters and variables say what they hold, and few files know all options together."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[3]
#: The controller, the collection, and what belongs to neither. Files of a released provider stay as they were.
SOURCES = [ROOT / name for name in ("runtime", "suite", "plugins", "extensions", "tools", "tests")]
KEPT = ("__pycache__", "build", "last_release")
#: Names that say nothing about the value. No parameter of a function has one; `parameters` says what lambdas may have.
REFUSED = ("found", "given", "said", "want", "told", "each", "mark", "met")
#: Only files whose text matches this may have such a parameter. To parse all files would take seconds.
CANDIDATE = re.compile(rf"(def \w+\(|lambda)([^()]|\([^()]*\))*?\b({'|'.join(REFUSED)})\b")


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
    files = [path for folder in SOURCES for path in folder.rglob("*.py") if not {*path.parts} & {*KEPT}]
    texts = {path: text for path in files if CANDIDATE.search(text := path.read_text())}
    refused = {
        str(path.relative_to(ROOT)): names
        for path, text in texts.items()
        if (names := sorted(parameters(text).keys() & {*REFUSED}))
    }
    assert refused == {}, "name the parameter after what it is: settings, desired, annotations, status, evidence"


#: Names that no variable of the product has, in functions and lambdas. Fields of public data keep their names.
EMPTY = {"found", "given", "got", "said", "told", "want"}


def test_no_variable_of_the_product_has_a_name_that_says_nothing():
    """A variable has the noun of what it holds: rows, labels, answer."""
    texts = {
        path: text
        for folder in (ROOT / "runtime" / "ccm", ROOT / "plugins")
        for path in folder.rglob("*.py")
        if re.search(rf"\b({'|'.join(EMPTY)})\b", text := path.read_text())
    }
    assert {path.name: names for path, text in texts.items() if (names := variables(text) & EMPTY)} == {}


def variables(text: str) -> set[str]:
    """Return the names that functions and lambdas bind: their variables and parameters."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    nodes = [each for node in ast.walk(ast.parse(text)) if isinstance(node, functions) for each in ast.walk(node)]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.arg for node in nodes if isinstance(node, ast.arg)}


def test_variables_are_seen():
    text = "class A:\n    a: int = 0\ndef f(b):\n    if c := b: pass\n    return [lambda d: e for e in g]\n"
    assert variables(text) == {"b", "c", "d", "e"}


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

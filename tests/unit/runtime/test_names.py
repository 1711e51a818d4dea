# SPDX-License-Identifier: Apache-2.0
"""Parameters have the names of what they are."""

import ast
from collections import Counter
from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "runtime" / "ccm"
#: Names that say nothing about the value -> how many parameters still have them. These numbers only go down.
MOST = {"found": 33, "given": 21, "said": 3, "want": 3, "told": 4, "each": 5, "mark": 13, "met": 0}


def parameters(text: str) -> Counter[str]:
    """How many functions have a parameter of a name; lambdas are short enough to be read."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return Counter(node.arg for each in functions for node in ast.walk(each.args) if isinstance(node, ast.arg))


def test_no_further_parameter_has_a_name_that_says_nothing():
    count = sum((parameters(path.read_text()) for path in RUNTIME.rglob("*.py")), Counter[str]())
    more = {name: f"{count[name]}, at most {most}" for name, most in MOST.items() if count[name] > most}
    assert more == {}, "name the parameter after what it is: settings, desired, annotations, status, evidence"


def test_parameters_are_counted():
    text = "def a(found, *given, want=1, **told):\n    def b(found): ...\n    c = lambda said: found\n"
    assert parameters(text) == {"found": 2, "given": 1, "want": 1, "told": 1}

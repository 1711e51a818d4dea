# SPDX-License-Identifier: Apache-2.0
"""Makes the small mistakes that somebody could make in a module: changes one operator, condition or call at a time.
Pure.

Only the bodies of functions are changed: a module's constants are settings, annotations and decorators decide nothing
at run time, and texts are for people. f-strings are left out, because positions inside them are not reliable before
Python 3.12.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """A changed module: `source` has a change in `line` (from 1). `text`: the line before the change, without indent.

    `function`: the name of the outermost function or method with the change.
    """

    function: str
    line: int
    text: str
    before: str
    after: str
    source: str

    @property
    def change(self) -> str:
        return f"{self.before} -> {self.after}"


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, by position, without duplicates."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole, found = source.encode(), {}
    for function, node, new in _changes(ast.parse(source)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        after = ast.unparse(new)
        text = f"({after})" if isinstance(node, ast.expr) else after
        changed = (whole[:begin] + text.encode() + whole[end:]).decode()
        line = lines[node.lineno - 1].decode().strip()
        found.setdefault(changed, Mutant(function, node.lineno, line, ast.unparse(node), after, changed))
    return sorted(found.values(), key=lambda each: (each.line, each.before, each.after))


def _changes(tree: ast.Module) -> Iterator[tuple[str, ast.expr | ast.stmt, ast.AST]]:
    for function in functions(tree):
        for statement in function.body:
            if not is_docstring(statement):
                yield from ((function.name, node, new) for node, new in _in(statement))


def functions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the outermost functions, methods included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
        elif isinstance(child, ast.ClassDef | ast.If | ast.Try):
            yield from functions(child)


def is_docstring(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _in(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    if isinstance(node, ast.expr | ast.stmt) and not is_docstring(node):
        yield from ((node, new) for new in _of(node))
    for condition in _conditions(node):
        if not isinstance(condition, ast.Compare | ast.BoolOp | ast.UnaryOp):  # these are changed themselves
            yield condition, ast.UnaryOp(ast.Not(), condition)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip(): it makes no difference to right code
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _in(child)


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            return [node.test]
        case ast.comprehension():
            return node.ifs
        case _:
            return []


def _of(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    """Yield what could replace a node."""
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                new = copy.deepcopy(node)
                new.ops[index] = _COMPARISONS[type(operator)]()
                yield new
        case ast.BoolOp():
            other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield ast.BoolOp(other, node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
            yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        case ast.AugAssign() if type(node.op) in _ARITHMETIC:
            yield ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name]), node.args, node.keywords)
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield ast.Pass()


def _is_text(node: ast.BinOp) -> bool:
    """Return whether one side is certainly a text, because code that puts a message together decides nothing."""
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )

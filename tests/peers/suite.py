# SPDX-License-Identifier: Apache-2.0
"""What adapters use: a row of a peer's table, and the decorator that names the table for a function.

An adapter takes one row, and returns what the peer's test expects and what our function returns, in a common form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MARKS = ("$ident", "$call", "$func", "$expr")
#: Stands for a refusal by our function (see `outcome`), and for an error that the peer's test expects.
ERROR = "an error"


class Unresolved(Exception):
    """A field of a row has a value that the peer's sources do not define."""


class Row(Mapping[str, Any]):
    """A struct or map of Go. Fields that the source does not set are missing. Reading an unresolved value raises
    Unresolved."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return _readable(self._values[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def call(self, name: str) -> tuple[str, list[Any]] | None:
        """Return the function and the arguments of a value that is a call; None for any other value."""
        value = self._values.get(name)
        if not isinstance(value, dict) or "$call" not in value:
            return None
        return value["$call"], [_readable(argument, name) for argument in value["args"]]

    def calls(self, name: str) -> list[tuple[str, list[Any]]]:
        """Return the arguments of a call that are calls, too: the options of a helper that makes an object. No other
        argument is allowed."""
        return [(inner["$call"], inner["args"]) for inner in self._values[name]["args"]]

    def at(self, *path: str, default: Any = None) -> Any:
        """Return a nested value; `default` if a part of the path is missing or nil."""
        value: Any = self
        for name in path:
            value = value.get(name) if isinstance(value, Row) else None
            if value is None:
                return default
        return value

    def plain(self) -> dict[str, Any]:
        """Return all fields, with Go's names. Raises Unresolved."""
        return {name: _plain(self[name]) for name in self}


def _readable(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if mark := next((mark for mark in _MARKS if mark in value), None):
            raise Unresolved(f"{name} is {mark} {value[mark]}")
        return Row(value)
    if isinstance(value, list):
        return [_readable(item, name) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.plain()
    return [_plain(item) for item in value] if isinstance(value, list) else value


Adapter = Callable[[Row], tuple[Any, Any]]


@dataclass(frozen=True)
class Table:
    """Where a table of a peer is, how many rows it has, and how its cases are run."""

    file: str
    test: str
    variable: str
    rows: int
    adapter: Adapter

    def cases(self, values: Any) -> list[tuple[str, Row]]:
        """Return the rows by name. A row without a name has its key in the map, or its number."""
        named = values.items() if isinstance(values, dict) else ((str(index), row) for index, row in enumerate(values))
        cases: dict[str, Row] = {}
        for key, value in named:
            row = value if isinstance(value, dict) else {"value": value}
            name = str(next((row[field] for field in _NAMES if isinstance(row.get(field), str) and row[field]), key))
            cases[name if name not in cases else f"{name} ({key})"] = Row({"key": key, **row})
        return list(cases.items())


_NAMES = ("name", "testName", "desc", "description", "title", "Name")


class Suite:
    """The tables of one peer for which there are adapters."""

    def __init__(self, name: str, folder: str) -> None:
        self.name, self._folder = name, folder
        self.tables: list[Table] = []

    def table(self, place: str, rows: int, variable: str = "tests") -> Callable[[Adapter], Adapter]:
        """Register an adapter for a table. `place`: file and test, `loadbalancer_test.go::Test_getSubnetID`."""
        file, _, test = place.partition("::")

        def register(adapter: Adapter) -> Adapter:
            path = file if "/" in file else f"{self._folder}/{file}"
            self.tables.append(Table(path, test, variable, rows, adapter))
            return adapter

        return register

    def whole(self, place: str) -> Callable[[Adapter], Adapter]:
        """Register an adapter for a test with one case in several variables: the row has the variables by name."""
        return self.table(place, rows=1, variable="")


def outcome(call: Callable[[], Any], *refusals: type[Exception]) -> Any:
    """Return what our function returns, or ERROR if it raises ValueError or one of these exceptions."""
    try:
        return call()
    except (ValueError, *refusals):
        return ERROR

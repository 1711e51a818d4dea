# SPDX-License-Identifier: Apache-2.0
"""Declares options: each one once, as a field of a dataclass.

    concurrent_node_syncs: int = option("controllers", WHOLE, 30, "Nodes written at a time", check=at_least(1))

The name of the flag is the name of the field, with hyphens. The parser and `--help`, the keys of `--config`,
`/configz`, the validation at start and docs/reference/flags.md are all generated from `flags_of` the class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any, TypeVar

import msgspec

from .values import Kind

T = TypeVar("T")
_KEY = "option"


class Flag(msgspec.Struct, frozen=True):
    """One option, as declared with `option`."""

    name: str
    group: str
    kind: Kind[Any]
    default: Any
    help: str
    #: The dotted path in a CloudControllerManagerConfiguration; "" for an option below `OutOfTree`, by name.
    place: str = ""
    #: Upstream's default if it differs, with the reason.
    upstream: str = ""
    #: Raises ValueError for a value that has the right type but is not allowed.
    check: Callable[[Any], object] | None = None

    @property
    def field(self) -> str:
        """The name of the field in `Options`."""
        return self.name.replace("-", "_")

    def problems(self, value: Any) -> list[str]:
        """Return the problem of a value from any source, as one sentence; [] if there is none."""
        if self.check is None:
            return []
        try:
            self.check(value)
        except ValueError as error:
            return [f"--{self.name}{' ' if str(error).startswith('must ') else ': '}{error}"]
        return []


def option(
    group: str,
    kind: Kind[T],
    default: T,
    help: str,
    place: str = "",
    *,
    upstream: str = "",
    check: Callable[[T], object] | None = None,
) -> T:
    """Declare a field as an option; the parameters are those of `Flag`. mypy checks that the types agree."""
    metadata = {_KEY: (group, kind, default, help, place, upstream, check)}
    made: Any = (
        field(default_factory=default.copy, metadata=metadata)
        if isinstance(default, dict)
        else field(default=default, metadata=metadata)
    )
    declared: T = made
    return declared


def flags_of(table: type[Any]) -> tuple[Flag, ...]:
    """Return the options that a dataclass declares, in order. Other fields are skipped."""
    return tuple(_flag(item) for item in fields(table) if _KEY in item.metadata)


@functools.cache
def _flag(item: Field[Any]) -> Flag:
    """Return the Flag of a field. Subclasses inherit the fields of their bases, and therefore share the Flags."""
    return Flag(item.name.replace("_", "-"), *item.metadata[_KEY])

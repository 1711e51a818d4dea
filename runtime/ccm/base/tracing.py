# SPDX-License-Identifier: Apache-2.0
"""Spans of traces: which work was done for an object, how long it took, and how it ended.

Until `manager.traces` switches recording on, nothing is recorded and no library is imported. A span is the child of the
span that is open in its task, or was open when its task was created, as context variables follow the work.

The attributes follow the rule of the log: no secret, and untrusted text only where a log line has it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeAlias

Attributes: TypeAlias = Mapping[str, str | int]


class Span:
    """A part of the work, to be used with `with`. This one records nothing."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the span. An exception that leaves the block makes it an error; a cancellation does not."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes that are known only now."""

    def failed(self, error: BaseException) -> None:
        """Give the span the status of an error that does not leave the block."""


#: Opens a span: its name, its attributes, and whether it is a request to another program.
Open: TypeAlias = Callable[[str, Attributes, bool], Span]

#: The one span that is used while nothing is recorded.
NOTHING = Span()
_open: Open | None = None


def switch(open: Open | None) -> None:
    """Record spans with `open` from now on; None stops recording."""
    global _open
    _open = open


def span(name: str, attributes: Attributes, *, outgoing: bool = False) -> Span:
    """Return a span of the present task. `name`: one of few names; what differs by object belongs in `attributes`.

    `outgoing`: the span is a request to another program.
    """
    return NOTHING if _open is None else _open(name, attributes, outgoing)

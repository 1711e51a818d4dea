# SPDX-License-Identifier: Apache-2.0
"""Decide which warnings about a load balancer are new. No I/O.

A cloud's warning is reported once, when it becomes true. Not every answer has every warning: the answer to a write
has those about what was written, and a read often has none. So only the next answer of the same kind can take a
warning back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Source(enum.Enum):
    """Where a warning comes from."""

    ENSURE = "a write of everything"
    UPDATE = "a write of the backends"
    READ = "a read of one load balancer that is ready"
    GLIMPSE = "any other read: what it leaves out may still be true"
    FRAMEWORK = "the framework itself"
    ANNOTATIONS = "the Service's annotations, at each attempt"


class ToldWarnings:
    """The warnings about one load balancer that are true as far as is known. All of them were reported."""

    def __init__(self) -> None:
        self._by_source: dict[Source, frozenset[str]] = {}

    def news(self, source: Source, warnings: Iterable[str]) -> list[str]:
        """Return those of an answer's warnings that are to be reported now, without duplicates."""
        current = list(dict.fromkeys(warnings))
        everything = frozenset().union(*self._by_source.values())
        if source in (Source.READ, Source.GLIMPSE):
            new = [each for each in current if each not in everything]
            before = self._by_source.get(Source.READ, frozenset())
            kept = before & frozenset(current) if source is Source.READ else before
            self._by_source[Source.READ] = kept | frozenset(new)
            return new
        before = self._by_source.get(source, everything)
        self._by_source[source] = frozenset(current)
        return [each for each in current if each not in before]

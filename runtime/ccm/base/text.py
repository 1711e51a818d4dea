# SPDX-License-Identifier: Apache-2.0
"""Text that others wrote, made fit for people: short, on one line, and without control characters.

Users and kubelets choose annotations, addresses and names of up to a mebibyte. Errors quote them, and errors reach
logs, Events and terminals. A line break would forge a log line, an escape sequence would change what a terminal shows.
"""

from __future__ import annotations

#: Characters of one value that a message quotes.
QUOTED = 100


def shorten(text: str, limit: int) -> str:
    """`text`, or its first `limit` characters and how many there are."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str) -> str:
    """On one line; what cannot be seen or directs a terminal becomes an escape sequence such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def quoted(text: str) -> str:
    """A value in a message: in quotes, printable, `QUOTED` characters of it at most."""
    return repr(text) if len(text) <= QUOTED else f"{text[:QUOTED]!r}... ({len(text)} characters)"

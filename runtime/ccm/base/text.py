# SPDX-License-Identifier: Apache-2.0
"""Makes untrusted text safe to display: short, on one line, and without control characters.

Users and kubelets choose annotations, addresses and names of up to a mebibyte. Errors quote them, and errors appear in
logs, Events and terminals. A line break could forge a log line; an escape sequence could change the terminal's display.
"""

from __future__ import annotations

#: The maximum number of characters of a value that a message quotes.
QUOTED = 100


def shorten(text: str, limit: int) -> str:
    """Return `text` if it has at most `limit` characters, otherwise its start and its length."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def printable(text: str) -> str:
    """Return `text` on one line; invisible and control characters become escape sequences such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def quoted(text: str) -> str:
    """Return a value as a message quotes it: printable, and cut after `QUOTED` characters, with the length then."""
    return repr(text) if len(text) <= QUOTED else f"{text[:QUOTED]!r}... ({len(text)} characters)"

# SPDX-License-Identifier: Apache-2.0
"""Patterns for names of subnets, which may come from a Service: globs and regular expressions. No I/O.

The author of a Service must not be able to block the controller. Python's `re` backtracks and can take seconds or
years for some patterns. RE2 reads each character of a name once. In addition, the length of patterns and names and
RE2's memory are limited, so that a match takes less than a millisecond, and compiling a pattern less than 50 ms.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from ccm.cloud import Invalid

#: The maximum length of a pattern. Only this many characters of a name are compared; names in Neutron are not longer.
LONGEST = 255
#: Bytes that RE2 may use for one pattern. A pattern that needs more is refused.
MEMORY = 256 * 1024


def engine_problem() -> str:
    """Return the message if RE2 is not installed, "" if it is."""
    if importlib.util.find_spec("re2") is not None:
        return ""
    return "the provider openstack needs the package google-re2: pip install 'outoftree-ccm[openstack]'"


def name_matches(pattern: str, name: str) -> bool:
    """Return whether a name matches a glob, or after `~` a regular expression for the whole name; `!` negates.

    Raises Invalid for a pattern that RE2 does not support, such as back references and lookaround.
    """
    return (_compiled(pattern).fullmatch(_text(name[:LONGEST])) is not None) is not pattern.startswith("!")


def check(pattern: str) -> None:
    """Raises Invalid if the pattern cannot be used."""
    _compiled(pattern)


def _compiled(pattern: str) -> Any:
    if len(pattern) > LONGEST:
        raise Invalid(f"floating-subnet: the pattern has {len(pattern)} characters; at most {LONGEST} are allowed")
    import re2

    options = re2.Options()
    options.max_mem, options.log_errors, options.dot_nl = MEMORY, False, True
    options.never_capture = True
    bare = pattern.removeprefix("!")
    expression = bare[1:] if bare.startswith("~") else glob(bare)
    try:
        return re2.compile(_text(expression), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be parsed"
        why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        shown = bare.removeprefix("~")
        raise Invalid(f"floating-subnet: RE2 cannot compile the pattern {shown!r}: {why[:LONGEST]}") from None


def _text(text: str) -> str:
    """Return text that RE2 can read as UTF-8: an unpaired surrogate becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


def glob(pattern: str) -> str:
    """Convert a glob to a regular expression: `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`, as in Python's `fnmatch`."""
    parts: list[str] = []
    index = 0
    while index < len(pattern):
        character = pattern[index]
        index += 1
        if character == "*":
            if parts[-1:] != [".*"]:
                parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif character == "[" and (end := _end_of_class(pattern, index)) != -1:
            parts.append(_class(pattern[index:end]))
            index = end + 1
        else:
            parts.append(_literal(character))
    return "".join(parts)


def _end_of_class(pattern: str, start: int) -> int:
    """Return the index of the closing `]`, -1 without one. A leading `]` is one of the characters."""
    first = start + 1 if pattern[start : start + 1] == "!" else start
    return pattern.find("]", first + 1)


def _class(inner: str) -> str:
    negated, inner = inner.startswith("!"), inner.removeprefix("!")
    parts: list[str] = []
    index = 0
    while index < len(inner):
        low, high = inner[index], inner[index + 2 : index + 3]
        if high and inner[index + 1] == "-":
            if low <= high:  # a reversed range is empty
                parts.append(f"{_literal(low)}-{_literal(high)}")
            index += 3
        else:
            parts.append(_literal(low))
            index += 1
    if not parts:
        return "." if negated else r"[^\x{0}-\x{10FFFF}]"
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _literal(character: str) -> str:
    return rf"\x{{{ord(character):x}}}" if not character.isalnum() or not character.isascii() else character

# SPDX-License-Identifier: Apache-2.0
"""Go-style durations ("1m30s"), as upstream's flags accept them."""

from __future__ import annotations

import re

#: The prefix micro can be spelled with either of two Unicode characters.
_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
#: The largest duration that fits into Go's 64 bits of nanoseconds, in seconds.
_LONGEST = 2**63 / 1e9
_PART = re.compile(rf"([0-9]+\.?[0-9]*|\.[0-9]+)({'|'.join(_UNITS)})")


def parse(text: str) -> float:
    """Return the duration in seconds. Raises ValueError for anything that Go's time.ParseDuration rejects."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0.0
    total, end = 0.0, 0
    for match in _PART.finditer(unsigned):
        if match.start() != end:
            break
        total += float(match[1]) * _UNITS[match[2]]
        end = match.end()
    if not unsigned or end != len(unsigned) or total > _LONGEST:
        raise ValueError(f"{text!r} is not a duration such as 10s, 5m or 1h30m")
    return -total if text.startswith("-") else total


def spell(seconds: float) -> str:
    """Format like Go's Duration.String, for whole milliseconds and more: "5m0s", "1.5s", "250ms", "0s"."""
    if seconds < 0:
        return "-" + spell(-seconds)
    if 0 < seconds < 1:
        return f"{seconds * 1000:.10g}ms"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.10g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text

# SPDX-License-Identifier: Apache-2.0
"""The delay before the next call that a cloud requests over HTTP. Pure."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping


def retry_after(headers: Mapping[str, str], content: bytes, now: float) -> float | None:
    """Return the seconds to wait: from the header `Retry-After`, a number or a date; without the header, from
    `retryAfter` in the answer; None if neither can be read.

    `now`: Unix time.
    """
    value = headers.get("Retry-After", "").strip()
    if not value and (match := re.search(rb'"retryAfter"\s*:\s*"?(\d+)', content)):
        value = match[1].decode()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    date = unix_time(value)
    return None if date is None else max(0.0, date - now)


def unix_time(date: str) -> float | None:
    """Return the Unix time of an HTTP date, None for any other text."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""When a cloud asks to be called again, as HTTP says it. Pure."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping


def retry_after(headers: Mapping[str, str], content: bytes, now: float) -> float | None:
    """Seconds that the cloud asks to wait: the header, a number or a date, or `retryAfter` in the answer; else None.

    `now`: Unix time.
    """
    told = headers.get("Retry-After", "").strip()
    if not told and (found := re.search(rb'"retryAfter"\s*:\s*"?(\d+)', content)):
        told = found[1].decode()
    if re.fullmatch(r"\d+(\.\d+)?", told):
        return float(told)
    date = unix_time(told)
    return None if date is None else max(0.0, date - now)


def unix_time(date: str) -> float | None:
    """Of a date as HTTP writes it, None for any other text."""
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None

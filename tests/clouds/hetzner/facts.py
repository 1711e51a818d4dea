# SPDX-License-Identifier: Apache-2.0
"""Facts about the Hetzner-shaped cloud: locations, types, defaults, and the form of its errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]

LOCATIONS = {"fsn1": "eu-central", "nbg1": "eu-central", "hel1": "eu-central", "ash": "us-east"}
#: Type of a load balancer -> the maximum number of targets, and of services.
BALANCER_TYPES = {"lb11": (25, 5), "lb21": (75, 15), "lb31": (150, 30)}
NO_PRICE = {"net": "1.0000000000", "gross": "1.1900000000000000"}
DEFAULT_HTTP = {
    "cookie_name": "HCLBSTICKY",
    "cookie_lifetime": 300,
    "certificates": [],
    "redirect_http": False,
    "sticky_sessions": False,
    "timeout_idle": 60,
}
DEFAULT_CHECK = {"interval": 15, "timeout": 10, "retries": 3}
DEFAULT_CHECK_HTTP = {"domain": "", "path": "/", "response": "", "status_codes": ["2??", "3??"], "tls": False}


class Refusal(Exception):
    """An error of the API."""

    def __init__(self, status: int, code: str, message: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.fields = status, code, message, dict(fields or {})


def stamp(at: float | None = None) -> str:
    return datetime.fromtimestamp(time.time() if at is None else at, UTC).isoformat(timespec="seconds")

# SPDX-License-Identifier: Apache-2.0
"""Calls to the Hetzner Cloud API: pages, errors and rate limits. One call is one request, and nothing waits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccm.cloud import (
    ConfigError,
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.cloud.toolkit.json_api import Dialect, Failure, JsonApi

from .settings import TIMEOUT, Settings

#: The largest page that the API returns.
PAGE = "50"
#: The longest pause after the calls of an hour are used up, in seconds. The pause is short, because the cloud allows
#: one more call each second.
LONGEST_PAUSE = 30.0
#: How long to wait before a running action is read again, in seconds.
SOON = 1.0
MISSING = "not_found"
CODES = {
    "not_found": NotFound,
    "unauthorized": Unauthorized,
    "token_readonly": Unauthorized,
    "locked": RetryAfter,
    "conflict": RetryAfter,
    "rate_limit_exceeded": RateLimited,
    "resource_limit_exceeded": QuotaExceeded,
    "uniqueness_error": Conflict,
    "protected": Conflict,
    "resource_locked": Conflict,
    "invalid_input": Invalid,
    "unsupported_error": Invalid,
    "server_not_attached_to_network": Invalid,
    "load_balancer_not_attached_to_network": RetryAfter,
    "missing_ipv4": Invalid,
    "invalid_load_balancer_type": Invalid,
    "ip_not_available": Conflict,
    "no_subnet_available": Invalid,
    "resource_unavailable": Transient,
    "maintenance": Transient,
    "timeout": Transient,
    "service_error": Transient,
    "server_error": Transient,
    "bad_gateway": Transient,
}


def pause(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until calls are allowed again, from the headers about the rate limit, at most LONGEST_PAUSE;
    None without such headers."""
    for prefix in ("RateLimit", "X-RateLimit"):
        reset = headers.get(f"{prefix}-Reset", "")
        if reset.isascii() and reset.isdigit():
            return min(max(1.0, int(reset) - now), LONGEST_PAUSE)
    return None


def failure(answer: Any) -> Failure:
    """Return the error in an answer: its code, and its message with the fields that are wrong. Raises an error if the
    answer has another shape."""
    error = answer["error"]
    message = str(error["message"])
    details = error.get("details") or {}
    fields = details.get("fields", ()) if isinstance(details, dict) else ()
    named = [f"{field['name']}: {', '.join(map(str, field.get('messages') or ()))}" for field in fields]
    return Failure(str(error["code"]), "; ".join([message, *named]))


def _next(answer: Any) -> str | None:
    following = answer["meta"]["pagination"]["next_page"]
    return None if following is None else str(int(following))


DIALECT = Dialect(
    failure=failure,
    next_page=_next,
    total=lambda answer: answer["meta"]["pagination"]["total_entries"],
    page_query=lambda token: [("per_page", PAGE), ("page", token or "1")],
    codes=CODES,
    pause=pause,
)


class Api(JsonApi):
    """The client of the Hetzner Cloud API. `network`: the ID of the private network, 0 without one; known after
    `open`."""

    def __init__(self, settings: Settings) -> None:
        variables = settings.variables
        self.settings = settings
        self.network = 0
        self._token = variables.hcloud_token
        super().__init__(
            variables.hcloud_endpoint,
            DIALECT,
            self._headers,
            source="HCLOUD_TOKEN_FILE" if variables.hcloud_token_file else "HCLOUD_TOKEN",
            timeout=variables.hcloud_request_timeout,
            set_by=TIMEOUT,
        )

    async def _headers(self, renew: bool) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._token}", "User-Agent": "outoftree-ccm"}

    async def open(self) -> None:
        """Check the token with one listing: of the locations, or of the networks if HCLOUD_NETWORK is set, to find the
        network's ID, too. Raises Unauthorized, Transient, and ConfigError if the project has no such network."""
        variables = self.settings.variables
        if variables.hcloud_token_file:
            self._token = await asyncio.to_thread(_read_token, variables.hcloud_token_file)
        await super().open()
        if not variables.hcloud_network:
            await self.call("GET", "/locations", query=[("per_page", "1")])
            return
        rows = await self.rows("/networks", "networks")
        matching = [row for row in rows if variables.hcloud_network == row.get("name")]
        matching = matching or [row for row in rows if variables.hcloud_network == str(row.get("id"))]
        if not matching:
            names = ", ".join(sorted(f"{row.get('name')} ({row.get('id')})" for row in rows)[:10]) or "none"
            raise ConfigError([f"HCLOUD_NETWORK: the project has no such network; its networks are: {names}"])
        self.network = int(matching[0]["id"])

    async def action(self, method: str, path: str, body: Any = None, *, missing: str = "") -> Mapping[str, Any]:
        """Start a change and return its action. Raises Transient if the answer has no action, or one that failed."""
        return action_of(await self.call(method, path, body=body, missing=missing), f"{method} {path}")


def action_of(answer: Any, what: str) -> Mapping[str, Any]:
    action = answer.get("action") if isinstance(answer, dict) else None
    if not isinstance(action, dict) or action.get("status") not in ("running", "success", "error"):
        raise Transient(f"{what}: the answer has no action")
    if action["status"] == "error":
        error = action.get("error") or {}
        raise Transient(f"{what}: the action failed: {error.get('code')} {error.get('message')}")
    return action


def _read_token(path: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError([f"HCLOUD_TOKEN_FILE: cannot read {path}: {reason}"]) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError([f"HCLOUD_TOKEN_FILE: {path} contains no token"])
    return token

# SPDX-License-Identifier: Apache-2.0
"""What a failed request to the API server means: whether and when it may be sent again."""

from __future__ import annotations

import errno
import random

import aiohttp

from ccm.base.connection_problem import connection_problem

from .api_errors import ApiError, UnavailableError


def pause_before_retry(method: str, error: ApiError, pause: float) -> float | None:
    """Return the seconds before a retry, with jitter, but not less than the server requested. None if no retry is
    allowed: only a 429 may be retried and, except for a POST, a 503 with Retry-After."""
    refused = error.status == 429 or (error.status == 503 and error.retry_after is not None and method != "POST")
    if not refused:
        return None
    return max(error.retry_after or 0.0, pause) * random.uniform(1.0, 1.25)


def was_closed(error: BaseException) -> bool:
    """Return whether an established connection was closed during the request, as happens to kept-alive ones."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return False
    return isinstance(error, aiohttp.ServerDisconnectedError) or getattr(error, "errno", 0) in (
        errno.ECONNRESET,
        errno.EPIPE,
    )


def unavailable(context: str, error: BaseException) -> UnavailableError:
    """Return the error for a request without an answer."""
    if isinstance(error, TimeoutError):
        return UnavailableError(0, "Timeout", f"{context}: no answer in time")
    return UnavailableError(0, type(error).__name__, f"{context}: {connection_problem(error)}")

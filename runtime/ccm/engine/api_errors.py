# SPDX-License-Identifier: Apache-2.0
"""How the API server, or what stands between, can fail to do what was asked, as types.

Only a `Status` of the API server itself can say that an object does not exist: a 404 page of a proxy is
`UnavailableError`, or an outage would look like deletions.
"""

from __future__ import annotations

import re

import msgspec

from .objects import UNREADABLE, Status, decoder


class KubeConfigError(Exception):
    """How to reach the API server is not configured properly. The message names file, field and way out."""


class ApiError(Exception):
    """A request failed.

    `status`: HTTP status, 0 without an answer. `reason`: machine-readable (metav1.StatusReason), e.g. "Conflict".
    `message`: what was asked and what was answered, for people. `retry_after`: seconds the server asked for, or None.
    """

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """404, and the API server says so itself."""


class ConflictError(ApiError):
    """409: the resourceVersion or UID is not the expected one any more, or the object exists already."""


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ForbiddenError(ApiError):
    """403: RBAC or admission refuses; the message names user, verb and resource."""


class UnauthorizedError(ApiError):
    """401: the credentials are not accepted, although they were read afresh."""


class InvalidError(ApiError):
    """422: the object would not be valid."""


class TooManyRequestsError(ApiError):
    """429, for longer than the request's deadline allowed to wait."""


class UnavailableError(ApiError):
    """No usable answer: 5xx, connection, time-out, or something that is not the API server answered."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}
#: Codes whose meaning holds whoever answers: the API server itself sends them as plain text at times.
_ANY_SENDER = {401, 429}


def from_status(status: Status, context: str) -> ApiError:
    """The error for a Status object, e.g. one that came inside a watch."""
    after = float(status.details.retry_after_seconds) if status.details else 0.0
    kind = UnavailableError if status.code >= 500 else _BY_STATUS.get(status.code, ApiError)
    message = f"{context}: {status.code} {status.reason}: {status.message}"
    return kind(status.code, status.reason, message, retry_after=after or None)


#: Retry-After in seconds; the form with a date is of no use to us. Longer ones are no promise that anybody keeps.
_SECONDS = re.compile(r"[0-9]{1,9}")


def from_response(code: int, content_type: str, body: bytes, retry_after: str | None, context: str) -> ApiError:
    """The error for an HTTP answer that is not a success. Pure."""
    status = _status_of(content_type, body)
    seconds = float(retry_after) if retry_after and _SECONDS.fullmatch(retry_after) else None
    if status is not None:
        error = from_status(msgspec.structs.replace(status, code=code), context)
        error.retry_after = seconds if seconds is not None else error.retry_after
        return error
    text = " ".join(body[:200].decode("utf-8", "replace").split())
    if code in _ANY_SENDER:
        return _BY_STATUS[code](code, "", f"{context}: {code}: {text}", retry_after=seconds)
    return UnavailableError(
        code,
        "NotFromApiServer",
        f"{context}: {code} with {content_type or 'no content type'} instead of an API object, "
        f"so something in between answered: {text}",
        retry_after=seconds,
    )


def _status_of(content_type: str, body: bytes) -> Status | None:
    if content_type != "application/json":
        return None
    try:
        status = decoder(Status).decode(body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" else None

# SPDX-License-Identifier: Apache-2.0
"""The ways in which a request to the API server can fail, as types.

Only a `Status` from the API server itself can prove that an object does not exist. A 404 page of a proxy is
`UnavailableError`; otherwise an outage would look like deletions.
"""

from __future__ import annotations

import re

import msgspec

from .encodings import JSON, PROTOBUF, read
from .objects import UNREADABLE, Status


class KubeConfigError(Exception):
    """The access to the API server is misconfigured. The message names file, field and remedy."""


class ApiError(Exception):
    """A request failed.

    `status`: HTTP status, 0 without an answer. `reason`: machine-readable (metav1.StatusReason), e.g. "Conflict".
    `message`: the request and the answer, for people. `retry_after`: seconds that the server requested, or None.
    """

    def __init__(self, status: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFoundError(ApiError):
    """404 from the API server itself."""


class ConflictError(ApiError):
    """409: the resourceVersion or UID has changed, or the object already exists.

    A patch without a resourceVersion gets this answer, too, if others change the object during each of the API server's
    own five attempts.
    """


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class ForbiddenError(ApiError):
    """403: RBAC or admission rejects the request; the message names user, verb and resource.

    Also 401, 404, 409 and 410 from an admission webhook, which chooses its code (`ToStatusErr` in the API server): what
    the webhook refuses is neither missing nor changed. Its other codes keep their meaning.
    """


class UnauthorizedError(ApiError):
    """401: the credentials are rejected. If they can be read again, a request was already repeated with new ones; a
    watch was not."""


class InvalidError(ApiError):
    """422: the object would be invalid."""


def is_other_object(error: ApiError) -> bool:
    """Return whether a patch with `metadata.uid` met another object of the name. A patch that also fails a precondition
    raises ConflictError, as if the object had changed."""
    return isinstance(error, InvalidError) and "metadata.uid" in error.message


class TooManyRequestsError(ApiError):
    """429. A request, but not a watch, has been repeated for as long as its deadline allows."""


class UnavailableError(ApiError):
    """No usable answer: the request lacks a credential, the connection fails, no answer comes in time, or the answer is
    a 5xx, not understood, or not from the API server."""


def not_understood(path: str, error: Exception) -> UnavailableError:
    return UnavailableError(200, "NotUnderstood", f"{path}: unexpected answer: {error}")


_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}
#: Errors about an object, or about our credentials, that only the API server itself can report.
_NEVER_OF_A_WEBHOOK = {UnauthorizedError, NotFoundError, ConflictError, GoneError}
#: Codes that are believed from any sender, because the API server itself sometimes sends them as plain text.
_ANY_SENDER = {401, 429}


def from_status(status: Status, context: str) -> ApiError:
    """Return the error for a Status object, for example from a watch."""
    after = float(status.details.retry_after_seconds) if status.details else 0.0
    kind = UnavailableError if status.code >= 500 else _BY_STATUS.get(status.code, ApiError)
    if kind in _NEVER_OF_A_WEBHOOK and status.message.startswith("admission webhook"):
        kind = ForbiddenError
    message = f"{context}: {status.code} {status.reason}: {status.message}"
    return kind(status.code, status.reason, message, retry_after=after or None)


#: Retry-After in seconds; the date form is not supported. Longer values are not realistic.
_SECONDS = re.compile(r"[0-9]{1,9}")


def from_response(code: int, content_type: str, body: bytes, retry_after: str | None, context: str) -> ApiError:
    """Return the error for an unsuccessful HTTP answer. Pure."""
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
        f"so an intermediary answered: {text}",
        retry_after=seconds,
    )


def _status_of(content_type: str, body: bytes) -> Status | None:
    if content_type not in (JSON, PROTOBUF):
        return None
    try:
        status = read(Status, body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" or content_type == PROTOBUF else None

# SPDX-License-Identifier: Apache-2.0
"""The ways in which a call to a cloud can fail, as types.

The controllers act on the type: only `NotFound` can lead to a deletion. The framework treats any other exception of a
provider as `Transient`, so a bug that raises one delays work and deletes nothing.

Messages appear in Events and logs: they name the object and the cloud's reason, and never contain credentials.
"""

from __future__ import annotations

from typing import Literal


class CloudError(Exception):
    """Base class of all errors of the contract.

    `retry_after`: how many seconds the cloud asks to wait before the next call; None if it does not say.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFound(CloudError):
    """The cloud confirms, with a complete and current answer, that the object does not exist."""


class NotImplementedByCloud(CloudError):
    """This cloud does not have this function (Go: `cloudprovider.NotImplemented`)."""


class ImplementedElsewhere(CloudError):
    """Another controller handles this object; do nothing (Go: `cloudprovider.ImplementedElsewhere`)."""


class RetryAfter(CloudError):
    """The work is not finished, and nothing is wrong: retry in `retry_after` seconds (Go: `api.RetryError`)."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)


class RateLimited(CloudError):
    """The cloud rejected the call because of too many requests (HTTP 429).

    `scope`: what must pause: all calls to this cloud, or only those of the same group of operations ("instances",
    "load_balancers", ...). A throttled load balancer API does not limit reads of instances.
    """

    scope: Literal["all", "group"] = "all"

    def __init__(
        self, message: str, *, retry_after: float | None = None, scope: Literal["all", "group"] = "all"
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.scope = scope


class Unauthorized(CloudError):
    """The credentials are wrong, expired, or missing a permission; the message says which.

    `scope`: "object" if the credentials are good for everything except what this one object requests, such as a bucket
    for logs. Otherwise "all". The framework treats the scopes as it does for `Transient`.
    """

    scope: Literal["all", "object"] = "all"

    def __init__(
        self, message: str, *, retry_after: float | None = None, scope: Literal["all", "object"] = "all"
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.scope = scope


class Forbidden(CloudError):
    """The cloud refuses this one call (HTTP 403), although the credentials are valid.

    An object may request something that its owner is not allowed to have, so this error says nothing about other calls.
    """


class Conflict(CloudError):
    """The object exists and belongs to someone else, or cannot be changed in its current state (HTTP 409)."""


class Invalid(CloudError):
    """The cloud rejects the desired state itself (HTTP 400, 422): only a change of the Kubernetes object can help."""


class QuotaExceeded(CloudError):
    """The quota of the project is used up; only a person can change it."""


class Transient(CloudError):
    """The cloud could not answer: network error, timeout, 5xx, an unreadable or incomplete answer.

    It says *nothing* about the object of the call: neither that it exists nor that it does not.

    `scope`: what the error concerns. "all": the cloud may be down, so the error counts towards the breaker of its group
    of operations. "object": the cloud itself answered, and refused or failed what this one object requests, for a
    reason that the provider does not know or that may pass. Only the work on this object is retried later.
    """

    scope: Literal["all", "object"] = "all"

    def __init__(
        self, message: str, *, retry_after: float | None = None, scope: Literal["all", "object"] = "all"
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.scope = scope

    @classmethod
    def late(cls, what: str, seconds: float, set_by: str = "") -> Transient:
        """Return the error for a call that got no answer in time. `what`: the call, for the message. `set_by`: the
        configuration key that sets `seconds`, "" if none does."""
        return cls(f"{what}: no answer within {seconds:g} s" + (f" (set by {set_by})" if set_by else ""))


class ConfigError(CloudError):
    """The configuration of the provider is invalid. `problems` lists all problems, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems

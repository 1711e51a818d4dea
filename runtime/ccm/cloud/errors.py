# SPDX-License-Identifier: Apache-2.0
"""Every way in which a cloud can fail to answer, as types.

The controllers act on the type alone: only `NotFound` may ever lead to a deletion. Whatever a provider raises that is
not a `CloudError` is treated as `Transient`, so a bug in a provider can delay work but never destroy anything.

Messages reach Events and logs: they name the thing and the cloud's own reason, never a credential.
"""

from __future__ import annotations

from typing import Literal


class CloudError(Exception):
    """Base of all errors of the contract.

    `retry_after`: seconds after which the cloud asked to be called again; None when it did not say.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotFound(CloudError):
    """The cloud itself says, completely and freshly, that the thing does not exist."""


class NotImplementedByCloud(CloudError):
    """This cloud has no such function (Go: `cloudprovider.NotImplemented`)."""


class ImplementedElsewhere(CloudError):
    """Another controller serves this object; leave it alone (Go: `cloudprovider.ImplementedElsewhere`)."""


class RetryAfter(CloudError):
    """Not done yet, nothing is wrong: come back in `retry_after` seconds (Go: `api.RetryError`)."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after=retry_after)


class RateLimited(CloudError):
    """The cloud refused the call because there were too many (HTTP 429).

    `scope`: what has to pause, all calls to this cloud or those of the same group of operations alone ("instances",
    "load_balancers", ...): a throttled load balancer service says nothing about reads of instances.
    """

    scope: Literal["all", "group"] = "all"

    def __init__(
        self, message: str, *, retry_after: float | None = None, scope: Literal["all", "group"] = "all"
    ) -> None:
        super().__init__(message, retry_after=retry_after)
        self.scope = scope


class Unauthorized(CloudError):
    """Credentials are wrong, expired, or lack a right; the message says which."""


class Forbidden(CloudError):
    """The cloud refuses this one call (HTTP 403), and the credentials are good.

    What one object asks for may be what its owner must not have, so this says nothing about any other call.
    """


class Conflict(CloudError):
    """The thing exists and is somebody else's, or cannot be changed in its present state (HTTP 409)."""


class Invalid(CloudError):
    """The cloud refuses the wish itself (HTTP 400, 422): only a change of the Kubernetes object can help."""


class QuotaExceeded(CloudError):
    """The project's quota is used up; only a person can change that."""


class Transient(CloudError):
    """The cloud could not answer: network, time-out, 5xx, an unreadable or incomplete answer.

    It says *nothing* about the thing that was asked for.
    """


class ConfigError(CloudError):
    """The provider's configuration cannot be used. `problems` holds all of them, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems

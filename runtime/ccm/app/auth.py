# SPDX-License-Identifier: Apache-2.0
"""Who may read `/metrics`: whomever the API server says, by TokenReview and SubjectAccessReview, as upstream does."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import msgspec

from ccm.engine.client import ApiError, KubeClient

#: Answers are kept for this long, in seconds (upstream's cache TTLs).
TTL = 10.0
_CACHE_SIZE = 1000


class _User(msgspec.Struct):
    username: str = ""
    groups: list[str] = []


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class Authorizer:
    """Asks the API server, and remembers its answers for TTL seconds."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._cache: dict[tuple[str, str], tuple[float, int, str]] = {}

    async def check(self, authorization: str, path: str) -> tuple[int, str]:
        """HTTP status and reason for a GET of `path` with this Authorization header: 200, 401, 403 or 500."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return 401, "give a bearer token that may get the nonResourceURL " + path
        key = (hashlib.sha256(token.encode()).hexdigest(), path)
        cached = self._cache.get(key)
        if cached is not None and self._clock() < cached[0]:
            return cached[1], cached[2]
        try:
            status, reason = await self._ask(token.strip(), path)
        except ApiError as error:
            return 500, f"the API server could not be asked: {error}"
        if len(self._cache) >= _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (self._clock() + TTL, status, reason)
        return status, reason

    async def _ask(self, token: str, path: str) -> tuple[int, str]:
        review = await self._client.ask(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
            _Review,
        )
        if not review.status.authenticated:
            return 401, "the API server does not know this token"
        user = review.status.user
        access = await self._client.ask(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user.username,
                    "groups": user.groups,
                    "nonResourceAttributes": {"path": path, "verb": "get"},
                },
            },
            _Review,
        )
        if not access.status.allowed:
            return 403, f"user {user.username!r} may not get the nonResourceURL {path}"
        return 200, ""

# SPDX-License-Identifier: Apache-2.0
"""Who asks, and whether they may: client certificate or TokenReview, then SubjectAccessReview, as upstream does it.

Who brings neither is `system:anonymous`, and whether that one may read `/metrics` is for the API server to say, too.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from ccm.engine.client import ApiError, KubeClient, NotFoundError

from .tls import CertificateError

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Members are always allowed, whatever the API server says.
MASTERS = "system:masters"
_CACHE_SIZE = 1000
#: Where kube-apiserver publishes the CA of the cluster's client certificates.
LOOKUP = ("kube-system", "extension-apiserver-authentication")
#: How often that is read again, in seconds.
LOOKUP_EVERY = 60.0


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict, compare=False)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class _UserInfo(msgspec.Struct):
    username: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


@dataclass(frozen=True)
class Lifetimes:
    """How long answers are kept, in seconds; 0 keeps none. Defaults are upstream's."""

    token: float = 10.0
    allowed: float = 10.0
    refused: float = 10.0


class _Memory(Generic[T]):
    """Answers for a while; the oldest go first when there are too many."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]], lifetime: Callable[[T], float]) -> T:
        kept = self._kept.get(key)
        if kept is not None and self._clock() < kept[0]:
            return kept[1]
        answer = await ask()
        if (seconds := lifetime(answer)) > 0:
            self._kept[key] = (self._clock() + seconds, answer)
            self._kept.move_to_end(key)
            if len(self._kept) > _CACHE_SIZE:
                self._kept.popitem(last=False)
        return answer


class Authorizer:
    """Asks the API server, and remembers its answers. `tokens` may be another identity than `access`."""

    def __init__(
        self,
        tokens: KubeClient,
        access: KubeClient | None = None,
        lifetimes: Lifetimes | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens, self._access = tokens, access or tokens
        self._lifetimes = lifetimes or Lifetimes()
        self._users: _Memory[User | None] = _Memory(clock)
        self._answers: _Memory[bool] = _Memory(clock)

    async def check(
        self, path: str, authorization: str = "", certificate: Mapping[str, Any] | None = None, *, verb: str = "get"
    ) -> tuple[int, str]:
        """HTTP status and reason for a request for `path`: 200, 401, 403 or 500.

        `authorization`: the header. `certificate`: the client's, as `SSLSocket.getpeercert` gives it when it is good.
        """
        try:
            user = user_of(certificate) if certificate else await self._by_token(authorization)
            if user is None:
                return 401, "the API server does not know this token"
            if MASTERS in user.groups:
                return 200, ""
            allowed = await self._answers.get(
                (user, path, verb), lambda: self._may(user, path, verb), lambda yes: self._lifetime(yes)
            )
        except ApiError as error:
            return 500, f"the API server could not be asked: {error}"
        return (200, "") if allowed else (403, f"user {user.name!r} may not {verb} the nonResourceURL {path}")

    def _lifetime(self, allowed: bool) -> float:
        return self._lifetimes.allowed if allowed else self._lifetimes.refused

    async def _by_token(self, authorization: str) -> User | None:
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        key = hashlib.sha256(token.encode()).digest()
        return await self._users.get(key, lambda: self._review(token), lambda _: self._lifetimes.token)

    async def _review(self, token: str) -> User | None:
        review = await self._tokens.ask(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
            _Review,
        )
        if not review.status.authenticated:
            return None
        found = review.status.user
        return User(found.username, tuple(found.groups), found.uid, found.extra)

    async def _may(self, user: User, path: str, verb: str) -> bool:
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            "nonResourceAttributes": {"path": path, "verb": verb},
            **({"uid": user.uid} if user.uid else {}),
            **({"extra": user.extra} if user.extra else {}),
        }
        access = await self._access.ask(
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
            _Review,
        )
        return access.status.allowed


def user_of(certificate: Mapping[str, Any]) -> User:
    """Common name and organisations of a client certificate are user and groups, as everywhere in Kubernetes."""
    subject = [pair for name in certificate.get("subject", ()) for pair in name]
    common = [value for key, value in subject if key == "commonName"]
    groups = [value for key, value in subject if key == "organizationName"]
    return User(common[-1] if common else "", (*groups, "system:authenticated"))


class ClientCas:
    """The CAs of client certificates: of `--client-ca-file`, and those that kube-apiserver publishes."""

    def __init__(self, file: str, client: KubeClient | None) -> None:
        """`client`: to look up the published ones; None skips that."""
        self._file, self._client = file, client
        self._published = b""

    def bundle(self) -> bytes:
        """All of them in PEM, as they are now. Raises CertificateError."""
        if not self._file:
            return self._published
        try:
            return Path(self._file).read_bytes() + b"\n" + self._published
        except OSError as error:
            raise CertificateError(f"--client-ca-file {self._file} cannot be read: {error.strerror}") from None

    async def look_up(self) -> None:
        """Raises ApiError. A cluster that publishes none has none."""
        if self._client is None:
            return
        namespace, name = LOOKUP
        try:
            found = await self._client.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}", _ConfigMap)
        except NotFoundError:
            log.warning("the cluster publishes no client CA: there is no ConfigMap %s/%s", namespace, name)
            return
        self._published = found.data.get("client-ca-file", "").encode()

    async def follow(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Look it up again and again, until cancelled; while that fails the last ones stay."""
        while self._client is not None:
            await sleep(LOOKUP_EVERY)
            try:
                await self.look_up()
            except ApiError as error:
                log.warning("the cluster's client CA stays what it was: %s", error)

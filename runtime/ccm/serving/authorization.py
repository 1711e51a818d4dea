# SPDX-License-Identifier: Apache-2.0
"""Decides who may read what, as upstream does: it authenticates clients by certificate or TokenReview, and authorizes
them by SubjectAccessReview.

A client with neither a certificate nor a token is `system:anonymous`; the API server decides whether that user may read
`/metrics`. `access_reviews` limits the number of queries.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ccm.base.clock import SYSTEM_CLOCK, Clock
from ccm.engine.client import ApiError, KubeClient, NotFoundError

from .access_reviews import KNOWN, RETRY_AFTER, STRANGERS, Acquaintances, Budget, BudgetSpent, Memory
from .certificates import CertificateError

log = logging.getLogger(__name__)

#: Members of this group are always allowed, without an access review by the API server.
MASTERS = "system:masters"
#: The timeout of a review by the API server, in seconds (as in upstream).
REVIEW_TIMEOUT = 10.0
#: The ConfigMap in which kube-apiserver publishes the CA of the cluster's client certificates.
LOOKUP = ("kube-system", "extension-apiserver-authentication")
#: How often that ConfigMap is read again, in seconds.
LOOKUP_EVERY = 60.0


class User(msgspec.Struct, frozen=True):
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = msgspec.field(default_factory=dict)


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


class Lifetimes(msgspec.Struct, frozen=True):
    """How long answers are cached, in seconds; 0 disables caching. Defaults are upstream's."""

    token: float = 10.0
    allowed: float = 10.0
    refused: float = 10.0


class Authorizer:
    """Queries the API server and caches its answers. `tokens` may use another identity than `access`.

    The controllers use other clients, so that these queries do not delay them.
    """

    def __init__(
        self,
        tokens: KubeClient,
        access: KubeClient | None = None,
        lifetimes: Lifetimes | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._tokens, self._access, self._clock = tokens, access or tokens, clock
        kept = lifetimes or Lifetimes()
        self._users: Memory[User | None] = Memory(clock, lambda _: kept.token, lambda user: user is not None)
        self._answers: Memory[bool] = Memory(clock, lambda yes: kept.allowed if yes else kept.refused, bool)
        self._strangers, self._known = Budget("stranger", STRANGERS, clock), Budget("known", KNOWN, clock)
        self._acquaintances = Acquaintances(clock)

    async def check(
        self,
        path: str,
        authorization: str = "",
        certificate: Mapping[str, Any] | None = None,
        *,
        verb: str = "get",
        peer: str = "",
    ) -> tuple[int, str]:
        """Return HTTP status and reason for a request for `path`: 200, 401, 403, 429 or 500.

        `authorization`: the header. `certificate`: the client's valid certificate, as from `SSLSocket.getpeercert`.
        `peer`: the client whose share of the reviews is spent.
        """
        try:
            user, budget = await self._who(authorization, certificate, peer)
            if user is None:
                return 401, "the API server does not accept this token"
            if MASTERS in user.groups:
                return 200, ""
            spec = _access_spec(user, path, verb)
            allowed = await self._answers.get(_key_of(spec), lambda: self._may(spec, budget, peer))
        except BudgetSpent:
            return 429, f"too many requests that need a review by the API server: try again in {RETRY_AFTER} s"
        except ApiError as error:
            return 500, f"cannot query the API server: {error}"
        return (200, "") if allowed else (403, f"user {user.name!r} may not {verb} the nonResourceURL {path}")

    async def _who(
        self, authorization: str, certificate: Mapping[str, Any] | None, peer: str
    ) -> tuple[User | None, Budget]:
        """Return the user (None for an invalid token) and the budget for further queries. Raises BudgetSpent and
        ApiError."""
        if certificate and not _expired(certificate, self._clock) and (user := user_of(certificate)):
            return user, self._known
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS, self._strangers
        if not (token.isascii() and token.isprintable()):
            return None, self._strangers
        key = hashlib.sha256(token.encode()).digest()
        budget = self._known if key in self._acquaintances else self._strangers
        user = await self._users.get(key, lambda: self._review(token, budget, peer))
        if user is None:
            self._acquaintances.leave(key)
        else:
            self._acquaintances.meet(key)
        return user, self._known

    async def _review(self, token: str, budget: Budget, peer: str) -> User | None:
        with budget.spend(peer):
            review = await self._tokens.ask(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}},
                _Review,
                timeout=REVIEW_TIMEOUT,
            )
        if not review.status.authenticated:
            return None
        user = review.status.user
        return User(user.username, tuple(user.groups), user.uid, user.extra)

    async def _may(self, spec: Mapping[str, Any], budget: Budget, peer: str) -> bool:
        with budget.spend(peer):
            access = await self._access.ask(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec},
                _Review,
                timeout=REVIEW_TIMEOUT,
            )
        return access.status.allowed


def _access_spec(user: User, path: str, verb: str) -> dict[str, Any]:
    return {
        "user": user.name,
        "groups": list(user.groups),
        "nonResourceAttributes": {"path": path, "verb": verb},
        **({"uid": user.uid} if user.uid else {}),
        **({"extra": user.extra} if user.extra else {}),
    }


def _key_of(spec: Mapping[str, Any]) -> bytes:
    """Return a cache key for the whole question, because `extra` may restrict a token to less than its user may do."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).digest()


def user_of(certificate: Mapping[str, Any]) -> User | None:
    """Return the user of a client certificate, None if it has no common name. As in Kubernetes (apiserver,
    `x509.CommonNameUserConversion`), the last common name is the user, and the organizations are the groups."""
    subject = [pair for name in certificate.get("subject", ()) for pair in name]
    common = [value for key, value in subject if key == "commonName"]
    groups = [value for key, value in subject if key == "organizationName"]
    return User(common[-1], (*groups, "system:authenticated")) if common and common[-1] else None


def _expired(certificate: Mapping[str, Any], clock: Clock) -> bool:
    """Return whether a certificate has expired. A connection may outlive its certificate; Kubernetes components verify
    certificates with each request."""
    until = certificate.get("notAfter")
    return until is not None and ssl.cert_time_to_seconds(until) < clock.now().timestamp()


class ClientCas:
    """The CAs of client certificates: from a file, and those that kube-apiserver publishes."""

    def __init__(self, file: str, client: KubeClient | None, *, flag: str = "--client-ca-file") -> None:
        """`client`: reads the published CAs; None skips that. `flag`: the flag that set the file."""
        self._file, self._client, self._flag = file, client, flag
        self._published = b""

    def bundle(self) -> bytes:
        """Return the current CAs in PEM format. Raises CertificateError if the file cannot be read."""
        if not self._file:
            return self._published
        try:
            return Path(self._file).read_bytes() + b"\n" + self._published
        except OSError as error:
            raise CertificateError(f"cannot read {self._flag} {self._file}: {error.strerror}") from None

    async def look_up(self) -> None:
        """Read the published CAs. If the ConfigMap does not exist, keep the last ones; at first there are none. Raises
        ApiError."""
        if self._client is None:
            return
        namespace, name = LOOKUP
        try:
            config_map = await self._client.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}", _ConfigMap)
        except NotFoundError:
            log.warning("the cluster publishes no client CA: the ConfigMap %s/%s does not exist", namespace, name)
            return
        self._published = config_map.data.get("client-ca-file", "").encode()

    async def follow(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Read the published CAs repeatedly, until cancelled; keep the last ones while that fails."""
        while self._client is not None:
            await sleep(LOOKUP_EVERY)
            try:
                await self.look_up()
            except ApiError as error:
                log.warning("cannot read the cluster's client CA again, keeping the last one: %s", error)

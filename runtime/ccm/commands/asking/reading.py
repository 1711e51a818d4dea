# SPDX-License-Identifier: Apache-2.0
"""Reads from the API server and the cloud, for commands that may not write.

Whatever a command does, both clients refuse to write: the API server gets only GETs and access reviews, which it does
not store, and the cloud gets only the calls of the contract that read. Port forwarding begins with a GET, too, and
`pod_page` sends only a GET through the forwarded port.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

from ccm.cloud import Cloud, CloudError, ConfigError, RateLimited
from ccm.controllers.shared.watched_kinds import Watched
from ccm.engine.client import (
    ApiError,
    ForbiddenError,
    KubeClient,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from ccm.engine.objects import UNREADABLE, KubeObject, PartialObject, identity, object_key
from ccm.gateway.gateway import Gateway, writes
from ccm.manager import cloud_reload, room_settings
from ccm.options.command_line import Options

from .answers import Unasked

T = TypeVar("T")
K = TypeVar("K", bound=KubeObject)

#: Reviews are POSTs that change nothing.
REVIEWS = "/apis/authorization.k8s.io/v1/"
#: Stands for all groups of calls.
ALL = "*"
#: Seconds to wait for the first answer of the API server, and for the one whose date is read.
FIRST_ANSWER = 10.0


class WriteRefused(RuntimeError):
    """A command tried to write, which is a bug."""


class ReadingClient(KubeClient):
    """A client that sends only GETs and access reviews. Raises WriteRefused for anything else."""

    async def _request(self, method: str, path: str, **more: Any) -> bytes:
        if method != "GET" and not (method == "POST" and path.startswith(REVIEWS)):
            raise WriteRefused(f"{method} {path}: commands only read")
        return await super()._request(method, path, **more)

    async def date(self) -> str:
        """Return the header Date of an answer, "" without one. Raises ApiError, aiohttp.ClientError and OSError."""
        limits = aiohttp.ClientTimeout(total=FIRST_ANSWER)
        async with self._pool.session() as session:
            sent = self._send(session, "GET", "/version", None, None, "application/json", limits, verb="GET")
            async with await sent as response:
                return response.headers.get("Date", "")


class ReadingGateway(Gateway):
    """A gateway that makes only the contract's reading calls. Raises WriteRefused for any other call.

    A person waits for the answer. So after the cloud throttled a call, the calls that the cloud asked to pause raise
    the same error at once.
    """

    def __init__(self, cloud: Cloud) -> None:
        super().__init__(cloud)
        self._throttled: dict[str, RateLimited] = {}

    async def call(self, operation: str, function: Callable[[], Awaitable[T]]) -> T:
        if writes(operation):
            raise WriteRefused(f"{operation}: commands only read")
        group = operation.partition(".")[0]
        for paused in (group, ALL):
            if paused in self._throttled:
                raise self._throttled[paused]
        try:
            return await super().call(operation, function)
        except RateLimited as error:
            self._throttled[ALL if error.scope == "all" else group] = error
            raise


class Cluster:
    """The API server, as far as this identity may read it. `unasked`: the questions that got no answer."""

    def __init__(self, client: ReadingClient) -> None:
        self.client = client
        self.unasked: builtins.list[Unasked] = []

    async def all(self, kind: Watched[K]) -> builtins.list[K] | None:
        """Return all objects of a kind, as a controller's cache keeps them; None if the API server does not list them.
        An object that cannot be read is left out, with an entry of `unasked`."""
        unreadable: builtins.list[bytes] = []
        try:
            objects, _ = await self.client.list(kind.path, kind.type, unreadable=unreadable.append)
        except ApiError as error:
            self.miss(f"list {kind.resource}", error)
            return None
        for data in unreadable:
            name = _name(data)
            self.unasked.append(Unasked(f"read {kind.resource} {name}", "it has fields of another type than expected"))
        return [kind.keep(each) for each in objects]

    async def list(
        self, what: str, path: str, type: type[T], params: Mapping[str, str] | None = None
    ) -> builtins.list[T]:
        """Return all items; [], with an entry of `unasked`, if the API server gives no answer. `what`: for messages."""
        try:
            objects, _ = await self.client.list(path, type, params=params)
        except ApiError as error:
            self.miss(what, error)
            return []
        return objects

    async def get(self, what: str, path: str, type: type[T]) -> T | None:
        """Return the object; None if it does not exist, and also, with an entry of `unasked`, if there is no answer."""
        try:
            return await self.client.get(path, type)
        except NotFoundError:
            return None
        except ApiError as error:
            self.miss(what, error)
            return None

    def miss(self, what: str, error: ApiError) -> None:
        self.unasked.append(Unasked(what, reason_of(error)))


def _name(data: bytes) -> str:
    try:
        return object_key(identity(data))
    except UNREADABLE:
        return "without a name"


def reason_of(error: ApiError) -> str:
    """Return the error for people. RBAC's own message names the user, the verb and the resource of a missing right."""
    return f"a right is missing: {error}" if isinstance(error, ForbiddenError) else str(error)


@contextlib.asynccontextmanager
async def open_cluster(options: Options) -> AsyncIterator[Cluster]:
    """Yield a Cluster whose API server answers. Raises KubeConfigError, UnavailableError and UnauthorizedError."""
    client = ReadingClient.from_config(kubeconfig=options.kubeconfig, master=options.master)
    assert isinstance(client, ReadingClient)
    try:
        await _first_answer(client)
        yield Cluster(client)
    finally:
        await client.close()


async def _first_answer(client: KubeClient) -> None:
    """Wait for an answer of the API server. Raises UnavailableError if it does not answer, UnauthorizedError if it
    rejects the credentials."""
    try:
        await client.get("/version", PartialObject, timeout=FIRST_ANSWER)
    except ForbiddenError:
        return  # an answer, too
    except UnavailableError as error:
        message = f"the API server {client.server} does not answer: {error}. Check --kubeconfig and the network"
        raise UnavailableError(error.status, error.reason, message) from None
    except UnauthorizedError as error:
        message = f"the API server {client.server} rejects the credentials of --kubeconfig: {error}"
        raise UnauthorizedError(error.status, error.reason, message) from None


@dataclass(frozen=True)
class CloudToAsk:
    """One cloud, which is not started yet. `options`: the options of its controllers, as if it were the only cloud."""

    options: Options
    gateway: Gateway


@contextlib.asynccontextmanager
async def open_clouds(options: Options) -> AsyncIterator[builtins.list[CloudToAsk]]:
    """Yield the clouds of `--cloud-provider`. Raises ConfigError with the problems of all, and StartError."""
    made, problems = [], []
    for settings in room_settings.clouds(options):
        try:
            made.append(cloud_reload.build(settings, cloud_reload.read(settings)))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    own = room_settings.for_each(options, made)
    async with contextlib.AsyncExitStack() as cleanup:
        clouds_to_ask = [CloudToAsk(flags, ReadingGateway(cloud)) for flags, cloud in zip(own, made, strict=True)]
        for opened in clouds_to_ask:
            cleanup.push_async_callback(opened.gateway.close)
        yield clouds_to_ask


async def answer_of(call: Callable[[], Awaitable[T]]) -> T | CloudError:
    """Return what `call` returns, or the CloudError that it raises."""
    try:
        return await call()
    except CloudError as error:
        return error

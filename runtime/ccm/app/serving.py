# SPDX-License-Identifier: Apache-2.0
"""What a process serves: health, metrics and options on the secure port, the provider's webhooks on another."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from ccm.engine.client import ApiError, KubeClient
from ccm.engine.informer import Informer
from ccm.engine.queue import QUEUES

from . import gates, server, webhooks
from .api import create_client
from .auth import LOOKUP, Authorizer, ClientCas, Lifetimes
from .clouds import Keeper
from .errors import StartError
from .health import Check, Health
from .leadership import Leadership
from .options import Options
from .tls import CertificateError, ServingTls

log = logging.getLogger(__name__)

#: Our view of the cluster is stale when no informer heard from the API server for this long, in seconds; bookmarks come
#: about once a minute.
STALE_AFTER = 180.0
#: Work that waited for this long is not waiting its turn any more, in seconds.
STUCK_AFTER = 600.0


def checks(options: Options, leadership: Leadership, informers: Sequence[Informer[Any]], keeper: Keeper) -> Health:
    """What `/healthz`, `/livez` and `/readyz` look at."""
    live: dict[str, Check] = {"ping": lambda: None}
    if options.leader_elect:
        live["leaderElection"] = leadership.unhealthy
    ready = {**live, "informers": lambda: stale(informers), "queues": stuck, "cloud": keeper.not_ready}
    return Health(healthz=live, livez=live, readyz=ready)


def stale(informers: Sequence[Informer[Any]]) -> str | None:
    """Why our view of the cluster cannot be trusted."""
    for informer in informers:
        if not informer.synced:
            return f"the {informer.name} have not been listed yet"
        if (silence := time.monotonic() - informer.last_contact) >= STALE_AFTER:
            return f"nothing heard from the API server about {informer.name} for {silence:.0f} s: {informer.last_error}"
    return None


def stuck() -> str | None:
    """Which work waits for so long that its workers must be stuck."""
    for queue in list(QUEUES):
        if (age := queue.oldest_age) >= STUCK_AFTER:
            return f"work in the queue {queue.name} has waited for {age:.0f} s"
    return None


class Serving:
    """The servers of one process; `start` them, then let `follow` run."""

    def __init__(
        self, options: Options, client: KubeClient, keeper: Keeper, cleanup: contextlib.AsyncExitStack
    ) -> None:
        self._options, self._client, self._keeper, self._cleanup = options, client, keeper, cleanup
        self._cas: ClientCas | None = None

    async def start(self, health: Health) -> None:
        """Raises StartError."""
        if self._options.secure_port:
            await self._start_secure_port(health)
        if self._options.webhooks and self._options.webhook_secure_port:
            await self._start_webhooks()

    async def follow(self) -> None:
        """Keep up with the cluster's client CA until cancelled."""
        if self._cas is not None:
            await self._cas.follow(asyncio.sleep)

    async def _start_secure_port(self, health: Health) -> None:
        o = self._options
        tokens = self._reviewer(o.authentication_kubeconfig)
        cas = self._cas = ClientCas(o.client_ca_file, None if o.authentication_skip_lookup else tokens)
        try:
            await cas.look_up()
        except ApiError as error:
            if not o.authentication_tolerate_lookup_failure:
                raise StartError(
                    f"the ConfigMap {'/'.join(LOOKUP)} with the CA of client certificates cannot be read: {error}. "
                    "Grant it, or give --authentication-skip-lookup or --authentication-tolerate-lookup-failure"
                ) from None
            log.warning("client certificates of the cluster's CA are not known: %s", error)
        lifetimes = Lifetimes(
            o.authentication_token_webhook_cache_ttl,
            o.authorization_webhook_cache_authorized_ttl,
            o.authorization_webhook_cache_unauthorized_ttl,
        )
        authorizer = Authorizer(tokens, self._reviewer(o.authorization_kubeconfig), lifetimes)
        app = server.application(health, authorizer, o.authorization_always_allow_paths, o.configz)
        await self._serve(app, "", cas)

    async def _start_webhooks(self) -> None:
        offered = self._keeper.gateway.cloud.webhooks
        try:
            chosen = webhooks.choose(self._options.webhooks, offered)
        except ValueError as error:
            raise StartError(str(error)) from None
        if chosen and gates.enabled(self._options.feature_gates, gates.WEBHOOK):
            app = webhooks.application(chosen, lambda: self._keeper.gateway.cloud.webhooks)
            file, flag = self._options.webhook_client_ca_file, "--webhook-client-ca-file"
            await self._serve(app, "webhook_", ClientCas(file, None, flag=flag) if file else None)
            if not file and not _is_loopback(self._options.webhook_bind_address):
                log.warning(
                    "everybody who reaches %s may ask the webhooks: --webhook-client-ca-file asks for a client "
                    "certificate",
                    self._options.webhook_bind_address,
                )
            log.info("webhooks: %s", ", ".join(chosen))

    async def _serve(self, app: web.Application, prefix: str, cas: ClientCas | None = None) -> None:
        o = self._options
        address, port = getattr(o, f"{prefix}bind_address"), getattr(o, f"{prefix}secure_port")
        try:
            tls = ServingTls(o.tls(prefix), cas.bundle if cas else None, required=bool(prefix))
            served = await server.serve(
                app, address, port, tls, share_port=o.permit_port_sharing, name="webhook" if prefix else "secure"
            )
        except CertificateError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(
                f"--{prefix.replace('_', '-')}secure-port {port} on {address} cannot be served: "
                f"{error.strerror or error}. Free the port or choose another one"
            ) from None
        self._cleanup.push_async_callback(served.cleanup)

    def _reviewer(self, kubeconfig: str) -> KubeClient:
        """A client for reviews alone, by default with our own identity. Its budget is the Authorizer's: the limits of
        the controllers' client are not for those who ask us."""
        client = create_client(self._options, kubeconfig=kubeconfig)
        client.set_rate_limit(0, 0)
        self._cleanup.push_async_callback(client.close)
        return client


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"

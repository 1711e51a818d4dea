# SPDX-License-Identifier: Apache-2.0
"""The servers of a process: health, metrics and options on the secure port, webhooks on another port."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import Callable, Mapping

from aiohttp import web

from ccm.base.start_error import StartError
from ccm.cloud import Webhook
from ccm.engine.client import ApiError, KubeClient

from . import secure_port, webhooks
from .authorization import LOOKUP, Authorizer, ClientCas
from .certificates import CertificateError, ServingTls
from .health import Health
from .serving_settings import PortSettings, ServingSettings

log = logging.getLogger(__name__)


class Serving:
    """The servers of one process; call `start`, then run `follow`.

    `client` creates a client of the API server from a kubeconfig file, "" for our own identity. `offered`: the webhooks
    by name, as they are now. `status` answers `/statusz`.
    """

    def __init__(
        self,
        settings: ServingSettings,
        client: Callable[[str], KubeClient],
        offered: Callable[[], Mapping[str, Webhook]],
        cleanup: contextlib.AsyncExitStack,
        status: secure_port.Handler | None = None,
    ) -> None:
        self._settings, self._client, self._offered, self._cleanup = settings, client, offered, cleanup
        self._status = status
        self._cas: ClientCas | None = None

    async def start(self, health: Health) -> None:
        """Start the servers that the settings ask for. Raises StartError if a port or a certificate cannot be used."""
        if self._settings.secure.port:
            await self._start_secure_port(health)
        if self._settings.names and self._settings.webhooks.port:
            await self._start_webhooks()

    async def follow(self) -> None:
        """Follow changes of the cluster's client CA until cancelled."""
        if self._cas is not None:
            await self._cas.follow(asyncio.sleep)

    async def _start_secure_port(self, health: Health) -> None:
        port, clients = self._settings.secure, self._settings.clients
        tokens = self._reviewer(clients.authentication)
        cas = self._cas = ClientCas(port.client_ca_file, None if clients.skip_lookup else tokens)
        try:
            await cas.look_up()
        except ApiError as error:
            if not clients.tolerate_lookup_failure:
                raise StartError(
                    f"cannot read the ConfigMap {'/'.join(LOOKUP)} with the CA of client certificates: {error}. "
                    "Grant it, or set --authentication-skip-lookup or --authentication-tolerate-lookup-failure"
                ) from None
            log.warning("client certificates of the cluster's CA are not accepted: %s", error)
        authorizer = Authorizer(tokens, self._reviewer(clients.authorization), clients.lifetimes)
        configz = self._settings.configz
        app = secure_port.application(health, authorizer, clients.open_paths, configz, self._status)
        await self._serve(app, port, cas)

    async def _start_webhooks(self) -> None:
        try:
            chosen = webhooks.choose(self._settings.names, self._offered())
        except ValueError as error:
            raise StartError(str(error)) from None
        if chosen:
            port = self._settings.webhooks
            app = webhooks.application(chosen, self._offered)
            file, flag = port.client_ca_file, "--webhook-client-ca-file"
            await self._serve(app, port, ClientCas(file, None, flag=flag) if file else None, name="webhook")
            if not file and not _is_loopback(port.address):
                log.warning(
                    "anyone who can reach %s may call the webhooks: --webhook-client-ca-file requires a client "
                    "certificate",
                    port.address,
                )
            log.info("webhooks: %s", ", ".join(chosen))

    async def _serve(
        self, app: web.Application, port: PortSettings, cas: ClientCas | None = None, *, name: str = "secure"
    ) -> None:
        try:
            tls = ServingTls(port.tls, cas.bundle if cas else None, required=name == "webhook")
            served = await secure_port.serve(app, port.address, port.port, tls, share_port=port.share, name=name)
        except CertificateError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(
                f"cannot serve {port.flag}secure-port {port.port} on {port.address}: "
                f"{error.strerror or error}. Free the port or choose another one"
            ) from None
        self._cleanup.push_async_callback(served.cleanup)

    def _reviewer(self, kubeconfig: str) -> KubeClient:
        """Return a client for reviews and for the published CAs. `kubeconfig`: "" for the controllers' identity. The
        client has no rate limit, because the Authorizer limits the reviews that others cause."""
        client = self._client(kubeconfig)
        client.set_rate_limit(0, 0)
        self._cleanup.push_async_callback(client.close)
        return client


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"

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
from ccm.options import feature_gates
from ccm.options.command_line import Options

from . import secure_port, webhooks
from .authorization import LOOKUP, Authorizer, ClientCas, Lifetimes
from .certificates import CertificateError, ServingTls
from .health import Health

log = logging.getLogger(__name__)


class Serving:
    """The servers of one process; call `start`, then run `follow`.

    `client` creates a client of the API server from a kubeconfig file, "" for our own identity. `offered`: the webhooks
    by name, as they are now. `status` answers `/statusz`.
    """

    def __init__(
        self,
        options: Options,
        client: Callable[[str], KubeClient],
        offered: Callable[[], Mapping[str, Webhook]],
        cleanup: contextlib.AsyncExitStack,
        status: secure_port.Handler | None = None,
    ) -> None:
        self._options, self._client, self._offered, self._cleanup = options, client, offered, cleanup
        self._status = status
        self._cas: ClientCas | None = None

    async def start(self, health: Health) -> None:
        """Raises StartError."""
        if self._options.secure_port:
            await self._start_secure_port(health)
        if self._options.webhooks and self._options.webhook_secure_port:
            await self._start_webhooks()

    async def follow(self) -> None:
        """Follow changes of the cluster's client CA until cancelled."""
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
                    f"cannot read the ConfigMap {'/'.join(LOOKUP)} with the CA of client certificates: {error}. "
                    "Grant it, or set --authentication-skip-lookup or --authentication-tolerate-lookup-failure"
                ) from None
            log.warning("client certificates of the cluster's CA are not accepted: %s", error)
        lifetimes = Lifetimes(
            o.authentication_token_webhook_cache_ttl,
            o.authorization_webhook_cache_authorized_ttl,
            o.authorization_webhook_cache_unauthorized_ttl,
        )
        authorizer = Authorizer(tokens, self._reviewer(o.authorization_kubeconfig), lifetimes)
        app = secure_port.application(health, authorizer, o.authorization_always_allow_paths, o.configz, self._status)
        await self._serve(app, "", cas)

    async def _start_webhooks(self) -> None:
        try:
            chosen = webhooks.choose(self._options.webhooks, self._offered())
        except ValueError as error:
            raise StartError(str(error)) from None
        if chosen and feature_gates.enabled(self._options.feature_gates, feature_gates.WEBHOOK):
            app = webhooks.application(chosen, self._offered)
            file, flag = self._options.webhook_client_ca_file, "--webhook-client-ca-file"
            await self._serve(app, "webhook_", ClientCas(file, None, flag=flag) if file else None)
            if not file and not _is_loopback(self._options.webhook_bind_address):
                log.warning(
                    "anyone who can reach %s may call the webhooks: --webhook-client-ca-file requires a client "
                    "certificate",
                    self._options.webhook_bind_address,
                )
            log.info("webhooks: %s", ", ".join(chosen))

    async def _serve(self, app: web.Application, prefix: str, cas: ClientCas | None = None) -> None:
        o = self._options
        address, port = getattr(o, f"{prefix}bind_address"), getattr(o, f"{prefix}secure_port")
        try:
            tls = ServingTls(o.tls(prefix), cas.bundle if cas else None, required=bool(prefix))
            served = await secure_port.serve(
                app, address, port, tls, share_port=o.permit_port_sharing, name="webhook" if prefix else "secure"
            )
        except CertificateError as error:
            raise StartError(str(error)) from None
        except OSError as error:
            raise StartError(
                f"cannot serve --{prefix.replace('_', '-')}secure-port {port} on {address}: "
                f"{error.strerror or error}. Free the port or choose another one"
            ) from None
        self._cleanup.push_async_callback(served.cleanup)

    def _reviewer(self, kubeconfig: str) -> KubeClient:
        """A client only for reviews, by default with our own identity. The Authorizer limits its use: the rate limit of
        the controllers' client does not apply to requests of others."""
        client = self._client(kubeconfig)
        client.set_rate_limit(0, 0)
        self._cleanup.push_async_callback(client.close)
        return client


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"

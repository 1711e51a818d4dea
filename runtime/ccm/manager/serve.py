# SPDX-License-Identifier: Apache-2.0
"""The third stage of a process: health, metrics, options, status and webhooks, on leaders and standbys alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import msgspec
from aiohttp import web

from ccm.controllers.built_in_webhooks import Webhooks
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.shared.holds import Holds
from ccm.controllers.shared.watched_kinds import NODES, SERVICES
from ccm.engine.client import KubeClient
from ccm.serving import ports
from ccm.serving.serving_settings import ServingSettings

from . import readiness
from .cloud_reload import CloudReloader
from .leadership import Leadership
from .observe import View
from .status_history import Sampler


class Shown(msgspec.Struct, frozen=True):
    """What a process shows of itself. `provider`, `cluster`: the names that it was started with.
    `classes`: which Services any of its clouds serves."""

    provider: str
    cluster: str
    clouds: Sequence[CloudReloader]
    view: View
    leadership: Leadership
    holds: Holds
    sampler: Sampler
    classes: ServedClasses


async def serve(
    settings: ServingSettings,
    client: Callable[[str], KubeClient],
    shown: Shown,
    cleanup: contextlib.AsyncExitStack,
) -> ports.Serving:
    """Start the servers. `client`: see `ports.Serving`. Raises StartError if a port or a certificate cannot be used."""
    health = readiness.checks(shown.leadership, shown.view.informers, *shown.clouds)
    gateways = [cloud.gateway for cloud in shown.clouds]

    async def show_status(request: web.Request) -> web.StreamResponse:
        from ccm.serving import statusz

        from . import status_collection  # only if somebody asks

        sources = status_collection.Sources(
            shown.provider,
            shown.cluster,
            shown.leadership,
            gateways,
            shown.view.caches[NODES],
            shown.view.caches[SERVICES],
            shown.holds,
            health,
            shown.classes,
            shown.sampler.history,
            shown.sampler.started,
        )
        return statusz.response(request, status_collection.report(sources))

    servers = ports.Serving(settings, client, Webhooks(*gateways).offered, cleanup, show_status)
    await servers.start(health)
    return servers

# SPDX-License-Identifier: Apache-2.0
"""The second stage of a process: caches of what controllers watch, and recorders of Events. Standbys have them, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ccm.controllers.controller_spec import ControllerSpec
from ccm.controllers.shared.watched_kinds import NODES, SERVICES, Watched
from ccm.engine.client import KubeClient
from ccm.engine.identity import ClusterIdentity
from ccm.engine.informer import Informer

from .event_recorders import Recorders


class View(msgspec.Struct, frozen=True):
    """What a process sees of the cluster, and its recorders of Events. The caches are empty until they run."""

    identity: ClusterIdentity
    caches: Mapping[Watched[Any], Informer[Any]]
    recorders: Recorders

    @property
    def informers(self) -> list[Informer[Any]]:
        return list(self.caches.values())


def observe(client: KubeClient, specs: Iterable[ControllerSpec[Any]], cleanup: contextlib.AsyncExitStack) -> View:
    """Return the view that these controllers need."""
    identity, recorders = ClusterIdentity(client), Recorders(client)
    cleanup.push_async_callback(recorders.close)
    kinds: list[Watched[Any]] = [NODES, SERVICES, *(kind for spec in specs for kind in spec.watches)]
    return View(identity, {kind: kind.informer(client, identity.check) for kind in kinds}, recorders)

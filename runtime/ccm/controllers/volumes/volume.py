# SPDX-License-Identifier: Apache-2.0
"""persistentvolume-label-controller: labels manually created PersistentVolumes with zone and region.

Without these labels, a Pod may be scheduled to a Node that cannot attach its volume. A provisioner sets them itself.
Upstream had this in its cloud-controller-manager until 1.13 and in an admission plugin of the API
server until 1.30, and has removed it since. The controller is therefore off unless `--controllers` names it.
"""

from __future__ import annotations

import logging
from typing import ClassVar

import msgspec
from prometheus_client import Counter

from ccm.cloud import CloudError, Invalid, NotImplementedByCloud, Volumes
from ccm.engine.client import ApiError, ConflictError, NotFoundError
from ccm.engine.informer import Informer
from ccm.engine.objects import ObjectRef, PersistentVolume
from ccm.engine.queue import Requeue, WorkQueue

from ..shared.context import Context, log_failure
from ..shared.rule_error import RuleError
from . import volume_rules as rules

log = logging.getLogger(__name__)

LABELLED = Counter("ccm_volumes_labelled", "PersistentVolumes labelled with the zone and region of their volume.")
NOT_LABELLED = Counter(
    "ccm_volume_labelling_failures",
    "Failed attempts to label a PersistentVolume with zone and region, by reason: Cloud (it could not answer, or knows "
    "no such volume), Invalid (no retry can help), API (the API server refused the change).",
    ["reason"],
)
for _reason in ("Cloud", "Invalid", "API"):
    NOT_LABELLED.labels(_reason)


class VolumeOptions(msgspec.Struct, frozen=True):
    """Options of the controller. `workers`: the number of volumes about which the cloud is asked at the same time (5 in
    upstream)."""

    workers: int = 5


class VolumeController:
    name: ClassVar[str] = "persistentvolume-label-controller"

    def __init__(
        self, context: Context, volumes: Informer[PersistentVolume], options: VolumeOptions | None = None
    ) -> None:
        if context.gateway.cloud.volumes is None:
            raise ValueError(f"{self.name} needs a provider with volumes")
        self._context, self._volumes, self._options = context, volumes, options or VolumeOptions()
        self._events = context.recorder(self.name)
        self._queue: WorkQueue[str] = WorkQueue(context.of_cloud("PersistentVolumes"), base_delay=1.0, max_delay=600.0)

    @property
    def _cloud(self) -> Volumes:
        """The volume functions of the current cloud. A reload of the credentials replaces the cloud."""
        volumes = self._context.gateway.cloud.volumes
        assert volumes is not None
        return volumes

    async def run(self) -> None:
        self._volumes.add_handler(self._on_volume)
        await self._volumes.wait_synced()
        self._context.gateway.on_recovery("volumes", self._queue.add)
        await self._queue.run_workers(self._options.workers, self._sync, on_error=log_failure(log))

    def _on_volume(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        if new is None or not rules.needs_labels(new):
            return
        if old is None or not rules.needs_labels(old) or rules.reference(old) != rules.reference(new):
            self._queue.add(new.metadata.name)

    async def _sync(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or not rules.needs_labels(volume):
            return
        ref = rules.reference(volume)
        assert ref is not None
        try:
            labels = await self._context.gateway.call("volumes.labels", lambda: self._cloud.labels(ref))
            patch = rules.patch(volume, labels)
        except NotImplementedByCloud as error:
            log.debug("volume %s stays unchanged: %s", name, error)
            return
        except (Invalid, RuleError) as error:
            self._report(volume, "Invalid", error)
            return  # only a change of the volume helps
        except CloudError as error:
            self._report(volume, "Cloud", error)
            if error.retry_after is not None:
                raise Requeue(error.retry_after) from error
            raise
        if patch is not None:
            await self._write(volume, patch)

    async def _write(self, volume: PersistentVolume, patch: dict[str, object]) -> None:
        name = volume.metadata.name
        try:
            await self._context.client.patch(f"/api/v1/persistentvolumes/{name}", patch)
        except (ConflictError, NotFoundError):
            raise  # the volume has changed or is gone: the queue tries again
        except ApiError as error:
            self._report(volume, "API", error)
            raise
        LABELLED.inc()
        log.info("labelled volume %s with the zone and region of its disk", name)

    def _report(self, volume: PersistentVolume, reason: str, error: Exception) -> None:
        NOT_LABELLED.labels(reason).inc()
        self._events.event(
            ObjectRef("v1", "PersistentVolume", volume.metadata.name, uid=volume.metadata.uid),
            "Warning",
            "VolumeNotLabelled",
            f"the volume's zone and region are unknown, so Pods may be scheduled where it cannot be attached: {error}",
        )

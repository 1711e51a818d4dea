# SPDX-License-Identifier: Apache-2.0
"""The webhook `persistentvolume-label`: completes a PersistentVolume while it is created, before the scheduler sees it.

It decides with the rules of persistentvolume-label-controller. If that controller runs, it completes later what the
cloud did not answer in time. The webhook writes nothing, so standbys answer as the leader does. By default, each API
server asks the process on its own host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import Counter

from ccm.base.text import quoted
from ccm.base.token_bucket import TokenBucket
from ccm.cloud import CloudError, NotImplementedByCloud, VolumeRef
from ccm.gateway.gateway import Gateway

from ..shared.rule_error import RuleError
from . import volume_rules
from . import volume_webhook_rules as rules

log = logging.getLogger(__name__)

REVIEWS = Counter(
    "ccm_volume_reviews",
    "PersistentVolumes that the webhook persistentvolume-label admitted, by result: Completed (zone and region added), "
    "Unchanged (nothing to add, or not of this cloud), Unknown (the cloud gave no usable answer in time), Limited (too "
    "many questions, so the cloud was not asked).",
    ["result"],
)
for _result in ("Completed", "Unchanged", "Unknown", "Limited"):
    REVIEWS.labels(_result)

#: Seconds for the cloud's answer. The API server waits for 10 s by default (`timeoutSeconds`), and must not give up
#: first, because its failure policy applies then.
DEADLINE = 8.0
#: Questions to the cloud: `RATE` per second, and up to `BURST` at once. Everybody who reaches the port can cause one,
#: and all controllers share the cloud's limits. People create few volumes by hand; a backup tool restores dozens.
RATE, BURST = 1.0, 60
#: Questions in progress, as many as the controller has workers.
CONCURRENCY = 5


class VolumeWebhook:
    """Answers requests for admission. The clouds of all `gateways` must have volumes."""

    def __init__(self, *gateways: Gateway, clock: Callable[[], float] = time.monotonic) -> None:
        self._gateways, self._slots = gateways, asyncio.Semaphore(CONCURRENCY)
        self._questions = TokenBucket(RATE, BURST, clock)

    async def handle(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the AdmissionResponse to an AdmissionRequest."""
        volume = rules.volume_of(request)
        if volume is not None and rules.is_check(request, volume):
            return rules.checked()
        ref = volume_rules.reference(volume) if volume is not None and volume_rules.needs_labels(volume) else None
        if volume is None or ref is None:
            return self._answer("Unchanged", rules.UNCHANGED)
        if not self._questions.take():
            return self._answer("Limited", rules.unknown("too many volumes are created at once"))
        try:
            async with asyncio.timeout(DEADLINE):
                added = volume_rules.additions(volume, await self._ask(ref))
        except NotImplementedByCloud:
            return self._answer("Unchanged", rules.UNCHANGED)
        except TimeoutError:
            return self._answer("Unknown", rules.unknown(f"the cloud did not answer within {DEADLINE:g} s"))
        except (CloudError, RuleError) as error:
            return self._answer("Unknown", rules.unknown(str(error)))
        if added is None:
            return self._answer("Unchanged", rules.UNCHANGED)
        log.info("adds zone and region to volume %s, which is being created", quoted(volume.metadata.name))
        return self._answer("Completed", rules.completed(volume, added))

    async def _ask(self, ref: VolumeRef) -> Mapping[str, str]:
        """Return the labels of the volume, from the first cloud that answers with labels. Raises NotImplementedByCloud
        if none has volumes of this driver, and otherwise the error of a cloud that may have it. A silent cloud does
        not delay the answer of another one."""
        async with self._slots:
            if len(self._gateways) == 1:
                return await self._ask_one(self._gateways[0], ref)
            tasks = [asyncio.create_task(self._ask_one(gateway, ref)) for gateway in self._gateways]
            try:
                errors: list[CloudError] = []
                for answer in asyncio.as_completed(tasks):
                    try:
                        return await answer
                    except CloudError as error:
                        errors.append(error)
                raise next((each for each in errors if not isinstance(each, NotImplementedByCloud)), errors[0])
            finally:
                for task in tasks:
                    task.cancel()

    async def _ask_one(self, gateway: Gateway, ref: VolumeRef) -> Mapping[str, str]:
        async def labels() -> Mapping[str, str]:
            volumes = gateway.cloud.volumes  # read for each call, because a reload replaces the cloud
            assert volumes is not None
            return await volumes.labels(ref)

        return await gateway.call("volumes.labels", labels)

    def _answer(self, result: str, response: Mapping[str, Any]) -> Mapping[str, Any]:
        REVIEWS.labels(result).inc()
        return response

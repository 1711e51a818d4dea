# SPDX-License-Identifier: Apache-2.0
"""Tags of instances: one read and one write serve all instances that get the same tags at about the same time.

EC2 has no write that depends on the value of a tag, so a value that somebody sets between the read and the write is
overwritten. Other keys always stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ccm.cloud import CloudError, NotFound, QuotaExceeded, Transient
from ccm.cloud.toolkit.shared_reads import GATHER, retrieve_failure

from . import instance_tag_rules as rules
from .api import Api, filters, pairs
from .instance_rules import instance_id
from .instances import Ec2Instances

#: Codes of CreateTags for an instance that is gone.
MISSING = ("InvalidInstanceID.NotFound", "InvalidID")
#: The maximum number of instances in one call, as in cloud-provider-aws.
CHUNK = 50

#: The outcome for each providerID: None, or the error.
Outcomes = dict[str, CloudError | None]


class Batch:
    """Instances that get the same tags. Callers add to `provider_ids` for GATHER seconds, before anything is read or
    written."""

    def __init__(self) -> None:
        self.provider_ids: set[str] = set()
        self.outcomes: asyncio.Task[Outcomes]


class Ec2Tags:
    def __init__(self, api: Api, instances: Ec2Instances) -> None:
        self._api, self._instances = api, instances
        self._coming: dict[frozenset[tuple[str, str]], Batch] = {}

    async def list(self) -> Mapping[str, Mapping[str, str]]:
        """Return providerID -> tags of the instances of the VPC, with one request for each page. Raises Transient if an
        answer does not have the form that EC2's API describes."""
        groups = await self._api.ec2_rows(
            "describe_instances",
            "Reservations",
            Filters=filters(vpc_id=self._api.vpc),
            MaxResults=self._api.settings.runtime.page_size,
        )
        try:
            return rules.tags_by_provider_id(row for group in groups for row in group["Instances"])
        except (LookupError, TypeError):
            raise Transient("an instance in the answer does not have the form that EC2's API describes") from None

    async def add(self, provider_id: str, tags: Mapping[str, str]) -> None:
        rules.check(tags)
        key = frozenset(tags.items())
        if (batch := self._coming.get(key)) is None:
            batch = self._coming[key] = Batch()
            batch.outcomes = asyncio.create_task(self._gather(batch, dict(tags)), name="tags that are shared")
            batch.outcomes.add_done_callback(retrieve_failure)
        batch.provider_ids.add(provider_id)
        outcomes = await asyncio.shield(batch.outcomes)
        if (error := outcomes[provider_id]) is not None:
            raise error

    async def _gather(self, batch: Batch, tags: Mapping[str, str]) -> Outcomes:
        await asyncio.sleep(GATHER)
        del self._coming[frozenset(tags.items())]  # a later caller starts the next batch
        ids = sorted(filter(None, map(instance_id, batch.provider_ids)))
        rows = await self._instances.fresh(ids)
        verdicts = rules.verdicts(batch.provider_ids, rows, tags)
        outcomes: Outcomes = {
            each: verdict if isinstance(verdict, CloudError) else None for each, verdict in verdicts.items()
        }
        missing = sorted((id, each) for each, id in verdicts.items() if isinstance(id, str) and id)
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            failed = await self._write([id for id, _ in chunk], tags)
            outcomes |= {each: failed[id] for id, each in chunk if id in failed}
        return outcomes

    async def _write(self, ids: Sequence[str], tags: Mapping[str, str]) -> dict[str, CloudError]:
        """Write the tags. Returns ID -> error for the instances that are gone or have 50 tags already. One such
        instance makes the whole call fail, so each instance then gets a call of its own. Raises any other error,
        because it concerns all instances."""
        try:
            await self._api.ec2(
                "create_tags", missing=MISSING, what=f"instance {', '.join(ids)}", Resources=list(ids), Tags=pairs(tags)
            )
        except (NotFound, QuotaExceeded) as error:
            if len(ids) == 1:
                return {ids[0]: error}
            failed: dict[str, CloudError] = {}
            for id_ in ids:
                failed |= await self._write([id_], tags)
            return failed
        return {}

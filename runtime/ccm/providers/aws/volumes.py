# SPDX-License-Identifier: Apache-2.0
"""Reads EBS volumes, with one request for all volumes that are needed at about the same time."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.cloud import Transient, VolumeRef
from ccm.cloud.toolkit.shared_reads import Shared

from . import volume_rules as rules
from .api import Api, filters
from .instance_rules import Row

#: The maximum number of values in a filter of EC2.
CHUNK = 200


class EbsVolumes:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._requested: set[str] = set()
        self._rows: Shared[Mapping[str, Row]] = Shared(self._read)

    async def labels(self, ref: VolumeRef) -> Mapping[str, str]:
        id = rules.volume_id(ref)
        self._requested.add(id)
        return rules.labels(id, await self._rows.get(), self._api.region)

    async def _read(self) -> Mapping[str, Row]:
        """Read the volumes that were requested since the last read. The request has a filter instead of a list of IDs,
        so a volume that does not exist is left out and makes no other call fail. Raises Transient if an answer does not
        have the form that EC2's API describes."""
        ids, self._requested = sorted(self._requested), set()
        rows_by_id: dict[str, Row] = {}
        for start in range(0, len(ids), CHUNK):
            rows = await self._api.ec2_rows(
                "describe_volumes", "Volumes", Filters=filters(volume_id=ids[start : start + CHUNK])
            )
            try:
                rows_by_id |= {str(row["VolumeId"]): row for row in rows}
            except (LookupError, TypeError):
                raise Transient("a volume in the answer does not have the form that EC2's API describes") from None
        return rows_by_id

# SPDX-License-Identifier: Apache-2.0
"""Calls to AWS, in threads: one call is one request, and nothing retries."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ccm.cloud import BlockingCalls, CloudError, ConfigError, Transient

from .errors import TIMEOUT, is_missing, not_found, translated
from .instance_rules import Row
from .session import CONNECTIONS, Session
from .settings import Settings

log = logging.getLogger(__name__)

CLUSTER_TAG = "kubernetes.io/cluster/"
LEGACY_TAG = "KubernetesCluster"
#: How long AWS may still show the state before a write, in seconds.
LAG = 5.0
#: The maximum number of pages of a listing. With it, a listing ends even if the service repeats its pages.
MOST_PAGES = 1000


class Api:
    """The client of AWS. `vpc`, `subnet`, `cluster` and `zone_ids` are known after `open`; `subnet` and `cluster` may
    stay empty. `zone_types`: zone -> `availability-zone`, `local-zone` and so on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session = Session(settings)
        self.vpc, self.subnet, self.cluster = settings.common.vpc, settings.common.subnetid, settings.cluster
        self.zone_ids: dict[str, str] = {}
        self.zone_types: dict[str, str] = {}
        timeout = settings.runtime.request_timeout
        self._calls = BlockingCalls(
            "aws",
            threads=CONNECTIONS,
            deadline=timeout + 1,
            set_by=TIMEOUT,
            translate=lambda error: translated(error, timeout),
        )

    @property
    def region(self) -> str:
        return self.session.region

    async def open(self) -> None:
        """Check the credentials by reading the zones, then find the VPC and the name of the cluster. Raises
        Unauthorized, Transient, and ConfigError if the region or the VPC is unknown."""
        await self._calls.run(self.session.open)
        await self.read_zones()
        if not self.vpc or not self.cluster:
            await self._read_own_instance()
        if not self.vpc:
            raise ConfigError(
                [f"{self.settings.source}: the VPC is unknown, and instance metadata has none: set VPC in [Global]"]
            )

    async def close(self) -> None:
        with contextlib.suppress(CloudError):
            await self._calls.run(self.session.close)
        self._calls.close()

    async def call(
        self, service: str, operation: str, *, missing: Sequence[str] = (), what: str = "", **arguments: Any
    ) -> Mapping[str, Any]:
        """Make one request. `missing`: error codes that mean that `what` does not exist, so they raise NotFound."""

        def run() -> Mapping[str, Any]:
            try:
                answer: Mapping[str, Any] = self.session.call(service, operation, arguments)
            except Exception as error:
                if missing and is_missing(error, *missing):
                    raise not_found(error, what or operation) from None
                raise
            return answer

        return await self._calls.run(run)

    async def ec2(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        return await self.call("ec2", operation, **arguments)

    async def elb(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        return await self.call("elbv2", operation, **arguments)

    async def classic(self, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Make one request to the API of Classic Load Balancers."""
        return await self.call("elb", operation, **arguments)

    async def ec2_rows(self, operation: str, rows: str, **arguments: Any) -> list[Row]:
        """Return the rows of all pages of a listing of EC2."""
        return await self._rows("ec2", operation, rows, "NextToken", "NextToken", arguments)

    async def elb_rows(self, operation: str, rows: str, **arguments: Any) -> list[Row]:
        """Return the rows of all pages of a listing of Elastic Load Balancing."""
        return await self._rows("elbv2", operation, rows, "NextMarker", "Marker", arguments)

    async def classic_rows(self, operation: str, rows: str, **arguments: Any) -> list[Row]:
        """Return the rows of all pages of a listing of Classic Load Balancers."""
        return await self._rows("elb", operation, rows, "NextMarker", "Marker", arguments)

    async def read_zones(self) -> None:
        """Read the zones of the region, with IDs and types, including the zones that the account has not enabled."""
        answer = await self.ec2("describe_availability_zones", AllAvailabilityZones=True)
        rows = answer.get("AvailabilityZones") or []
        self.zone_ids = {str(row["ZoneName"]): str(row["ZoneId"]) for row in rows if row.get("ZoneId")}
        self.zone_types = {str(row["ZoneName"]): str(row.get("ZoneType") or "availability-zone") for row in rows}

    async def _read_own_instance(self) -> None:
        """Read the VPC, the subnet and the cluster's tag of the instance on which this process runs, if the process
        runs on EC2."""
        own = await self._calls.run(self.session.metadata.instance_id)
        if not own:
            if not self.cluster:
                log.warning(
                    "%s: the instance metadata service did not answer, so the name of the cluster is that of "
                    "--cluster-name and not that of this instance's tag; KubernetesClusterID in [Global] sets it",
                    self.settings.source,
                )
            return
        rows = await self.ec2_rows("describe_instances", "Reservations", InstanceIds=[own])
        row: Row = next((instance for group in rows for instance in group["Instances"]), {})
        self.vpc = self.vpc or str(row.get("VpcId") or "")
        self.subnet = self.subnet or str(row.get("SubnetId") or "")
        self.cluster = self.cluster or cluster_of(tags_of(row))

    async def _rows(
        self, service: str, operation: str, rows: str, next_: str, token: str, arguments: Mapping[str, Any]
    ) -> list[Row]:
        every: list[Row] = []
        more: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            answer = await self.call(service, operation, **arguments, **more)
            every += answer.get(rows) or []
            if not (value := answer.get(next_)):
                return every
            more = {token: value}
        raise Transient(f"{operation}: the listing does not end")


def tags_of(row: Row) -> dict[str, str]:
    return {str(each.get("Key")): str(each.get("Value") or "") for each in row.get("Tags") or ()}


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def cluster_of(tags: Mapping[str, str]) -> str:
    """Return the name of the cluster that a resource belongs to, from its only cluster tag, or else from the legacy
    tag. Return "" if the tags name no cluster."""
    names = [key.removeprefix(CLUSTER_TAG) for key in tags if key.startswith(CLUSTER_TAG)]
    return names[0] if len(names) == 1 else tags.get(LEGACY_TAG, "")


def is_of_cluster(tags: Mapping[str, str], cluster: str) -> bool:
    return f"{CLUSTER_TAG}{cluster}" in tags or tags.get(LEGACY_TAG) == cluster


def filters(**values: str | Sequence[str]) -> list[dict[str, Any]]:
    """Return filters of EC2; `vpc_id="vpc-1"` is the filter `vpc-id`."""
    return [
        {"Name": name.replace("_", "-"), "Values": [texts] if isinstance(texts, str) else list(texts)}
        for name, texts in values.items()
    ]

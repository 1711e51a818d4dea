# SPDX-License-Identifier: Apache-2.0
"""Converts instances of the cloud to the contract's. Pure."""

from __future__ import annotations

import re

from ccm import cloud

from .api import Instance

PROVIDER_ID = re.compile(r"sim://(?P<region>[a-z0-9][a-z0-9-]*)/(?P<id>i-[0-9a-f]{12})")


def instance(row: Instance) -> cloud.Instance:
    return cloud.Instance(
        provider_id=f"sim://{row.region}/{row.id}",
        name=row.name,
        type=row.type,
        zone=row.zone,
        region=row.region,
        addresses=tuple(cloud.Address(address.type, address.address) for address in row.addresses),
        state=cloud.InstanceState.RUNNING if row.state == "running" else cloud.InstanceState.SHUTDOWN,
        labels=row.labels,
        pod_cidrs=row.pod_cidrs,
    )

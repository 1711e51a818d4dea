# SPDX-License-Identifier: Apache-2.0
"""Converts a server of the cloud into an instance of the contract. No I/O."""

from __future__ import annotations

import re
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceState

PROVIDER_ID = re.compile(r"acme://(?P<id>srv-[0-9]+)")


def instance_of(row: dict[str, Any]) -> Instance:
    private = Address(AddressType.INTERNAL_IP, row["private_ip"])
    public = [Address(AddressType.EXTERNAL_IP, row["public_ip"])] if row.get("public_ip") else []
    return Instance(
        provider_id=f"acme://{row['id']}",
        name=row["hostname"],
        type=row["plan"],
        zone=row["site"],
        region=row["site"].partition("-")[0],
        addresses=(private, *public, Address(AddressType.HOSTNAME, row["hostname"])),
        state=InstanceState.RUNNING if row["power"] == "on" else InstanceState.SHUTDOWN,
    )

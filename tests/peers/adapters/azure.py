# SPDX-License-Identifier: Apache-2.0
"""Tables of cloud-provider-azure, except for those about load balancers, because our provider has none."""

from __future__ import annotations

from typing import Any

from ccm.cloud import InstanceState
from ccm.providers.azure import instance_rules, resource_ids

from ..suite import ERROR, Row, Suite, outcome

SUITE = Suite("azure", "pkg/provider")


@SUITE.table("azure_wrap_test.go::TestConvertResourceGroupNameToLower", rows=7)
def resource_group(row: Row) -> tuple[Any, Any]:
    text = row["resourceID"]
    found = resource_ids.machine_id(text)
    if row.get("expectError"):
        return None, found
    return row["expected"], found and (found.provider_id if text.startswith("azure://") else found.path)


@SUITE.table("azure_wrap_test.go::TestIsNodeUnmanagedByProviderID", rows=5)
def unmanaged(row: Row) -> tuple[Any, Any]:
    return row["expected"], resource_ids.of_provider_id(row["providerID"]) is None


@SUITE.table("azure_zones_test.go::TestGetZone", rows=6, variable="testcases")
def zone(row: Row) -> tuple[Any, Any]:
    """The peer reads the zone from the instance's own metadata; our function reads it from the machine's row."""
    if row.get("isNilResp"):
        return ERROR, "a row of the machine, always"
    return _zone(row, row["location"], [row["zone"]] if row.get("zone") else None, row.get("faultDomain"))


def _zone(row: Row, location: str, zones: Any, domain: Any) -> tuple[Any, Any]:
    machine = {"location": location, "zones": zones, "properties": {"instanceView": {"platformFaultDomain": domain}}}
    ours = outcome(lambda: instance_rules._zone(machine, False))
    return ERROR if row.get("expectedErr") else row["expected"], ours


@SUITE.table("azure_vmss_test.go::TestGetZoneByNodeName", rows=4, variable="testCases")
def zone_in_scale_set(row: Row) -> tuple[Any, Any]:
    """The test's scale sets are in westus, unless the row has a location."""
    if row.get("expectError"):
        return ERROR, "a row of the machine, always"
    return _zone(row, row.get("location", "westus"), [row["zone"]] if row.get("zone") else None, row["faultDomain"])


@SUITE.table("azure_instances_test.go::TestInstanceShutdownByProviderID", rows=11, variable="testcases")
def shutdown(row: Row) -> tuple[Any, Any]:
    """If there is no machine for the providerID, our answer is False."""
    machine = resource_ids.of_provider_id(row.get("providerID", ""))
    power = (row.get("vmList") or {}).get(machine.name) if machine else None
    if power is None:
        return row["expected"], False
    properties = {
        "instanceView": {"statuses": [{"code": power}]},
        "provisioningState": row.get("provisioningState", "Succeeded"),
    }
    return row["expected"], instance_rules._state(properties) is not InstanceState.RUNNING

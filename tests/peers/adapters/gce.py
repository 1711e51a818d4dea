# SPDX-License-Identifier: Apache-2.0
"""Tables of cloud-provider-gcp's provider."""

from __future__ import annotations

from typing import Any

from ccm.providers.gce import instance_rules

from ..suite import Row, Suite

SUITE = Suite("gce", "gce")


@SUITE.table("gce_test.go::TestSplitProviderID", rows=8, variable="providers")
def place(row: Row) -> tuple[Any, Any]:
    expected = None if row["fail"] else (row["project"], row["zone"], row["instance"])
    return expected, instance_rules.place(row["providerID"])


@SUITE.table("gce_test.go::TestGetZoneByProviderID", rows=4)
def zone(row: Row) -> tuple[Any, Any]:
    found = instance_rules.place(row["providerID"])
    expected = None if row["fail"] else (row["expectedZone"]["FailureDomain"], row["expectedZone"]["Region"])
    return expected, found and (found.zone, instance_rules.region_of(found.zone))


def _instance(tables: Row, name: str) -> Any:
    """Return our instance for the test's instance with this name; None if the test has none."""
    for variable in tables:
        row = tables[variable]
        if not variable.startswith("instance") or row["Name"] != name:
            continue
        interfaces = [_interface(interface) for interface in row.get("NetworkInterfaces") or ()]
        answer = {
            "name": name,
            "zone": f"zones/{row['Zone']}",
            "status": "RUNNING",
            "machineType": "machineTypes/n1-standard-1",
            "networkInterfaces": interfaces,
        }
        return instance_rules.instance(answer, instance_rules.Scope("p1"), False)
    return None


_FIELDS = {"NetworkIP": "networkIP", "Ipv6Address": "ipv6Address", "Ipv6AccessType": "ipv6AccessType"}


def _interface(row: Row) -> dict[str, Any]:
    lists = {
        "accessConfigs": [{"natIP": entry["NatIP"]} for entry in row.get("AccessConfigs") or ()],
        "ipv6AccessConfigs": [{"externalIpv6": entry["ExternalIpv6"]} for entry in row.get("Ipv6AccessConfigs") or ()],
        "aliasIpRanges": [{"ipCidrRange": entry["IpCidrRange"]} for entry in row.get("AliasIpRanges") or ()],
    }
    return lists | {ours: row[name] for name, ours in _FIELDS.items() if name in row}


@SUITE.whole("gce_instances_test.go::TestAliasRangesByProviderID")
def pod_ranges(tables: Row) -> tuple[Any, Any]:
    expected, ours = {}, {}
    for row in tables["testcases"]:
        name = row["providerId"].rpartition("/")[2]
        found = _instance(tables, name)
        expected[name] = row.get("wantCIDRs") or []
        ours[name] = list(found.pod_cidrs) if found is not None else []
    return expected, ours


@SUITE.whole("gce_instances_test.go::TestNodeAddresses")
def addresses(tables: Row) -> tuple[Any, Any]:
    """The peer keeps Compute Engine's order; our addresses are sorted by family, in the order of the flag."""
    expected, ours = {}, {}
    for row in tables["testcases"]:
        found = _instance(tables, row["nodeName"])
        expected[row["nodeName"]] = [(entry["Type"], entry["Address"]) for entry in row.get("wantAddrs") or ()]
        ours[row["nodeName"]] = [(entry.type.value, entry.address) for entry in found.addresses] if found else []
    return expected, ours

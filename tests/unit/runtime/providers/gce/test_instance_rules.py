# SPDX-License-Identifier: Apache-2.0
"""What a Node gets from a row of Compute Engine's API, and what a listing leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import InstanceState, Transient
from ccm.providers.gce import instance_rules
from ccm.providers.gce.instance_rules import ELSEWHERE, LISTING, MISSING, Scope

SCOPE = Scope("p", "europe-west1-b")
URL = "https://www.googleapis.com/compute/v1/projects/p/zones/europe-west1-b"


def row(**more: Any) -> dict[str, Any]:
    found = {
        "name": "worker-0",
        "zone": URL,
        "machineType": f"{URL}/machineTypes/n2-custom-4-8192",
        "status": "RUNNING",
        "networkInterfaces": [{"networkIP": "10.0.0.2", "accessConfigs": [{"natIP": "198.51.100.2"}]}],
    }
    return {**found, **more}


def addresses(*interfaces: dict[str, Any], ipv6_first: bool = False) -> list[tuple[str, str]]:
    found = instance_rules.instance(row(networkInterfaces=list(interfaces)), SCOPE, ipv6_first)
    return [(each.type.value, each.address) for each in found.addresses]


def test_an_instance() -> None:
    found = instance_rules.instance(row(), SCOPE, False)
    assert (found.provider_id, found.name) == ("gce://p/europe-west1-b/worker-0", "worker-0")
    assert (found.type, found.zone, found.region) == ("n2-custom-4-8192", "europe-west1-b", "europe-west1")
    assert found.aliases == ("worker-0.europe-west1-b.c.p.internal", "worker-0.c.p.internal")
    assert not found.incomplete


V4 = {"networkIP": "10.0.0.2", "accessConfigs": [{"natIP": "198.51.100.2"}]}
#: Google writes IPv6 addresses in full length, and Nodes get them unchanged.
V6 = {"ipv6Address": "fd20:0:0:1:0:0:0:0"}
OUTSIDE = {"ipv6AccessType": "EXTERNAL", "ipv6AccessConfigs": [{"externalIpv6": "2600:1900:4000::1"}]}


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        ([V4], [("InternalIP", "10.0.0.2"), ("ExternalIP", "198.51.100.2")]),
        ([{"networkIP": "10.0.0.2", "accessConfigs": [{"name": "External NAT"}]}], [("InternalIP", "10.0.0.2")]),
        (
            [V4, {"networkIP": "10.1.0.2"}],
            [("InternalIP", "10.0.0.2"), ("ExternalIP", "198.51.100.2"), ("InternalIP", "10.1.0.2")],
        ),
        ([{**V6, "networkIP": "10.0.0.2"}], [("InternalIP", "10.0.0.2"), ("InternalIP", "fd20:0:0:1:0:0:0:0")]),
        (
            [V6, {"networkIP": "10.1.0.2"}],
            [("InternalIP", "10.1.0.2"), ("InternalIP", "fd20:0:0:1:0:0:0:0")],
        ),
        ([OUTSIDE], [("InternalIP", "2600:1900:4000::1")]),
        ([{**OUTSIDE, **V6}], [("InternalIP", "fd20:0:0:1:0:0:0:0")]),
        ([{**OUTSIDE, "ipv6AccessType": "INTERNAL"}], []),
        ([], []),
    ],
)
def test_addresses_are_those_of_cloud_provider_gcp(
    interfaces: list[dict[str, Any]], expected: list[tuple[str, str]]
) -> None:
    assert addresses(*interfaces) == expected


def test_in_an_ipv6_cluster_ipv6_comes_first() -> None:
    found = addresses({**V4, **V6}, ipv6_first=True)
    assert found[0] == ("InternalIP", "fd20:0:0:1:0:0:0:0") and len(found) == 3


@pytest.mark.parametrize(
    ("status", "state"),
    [
        *((each, InstanceState.SHUTDOWN) for each in ("TERMINATED", "STOPPED")),
        ("SUSPENDED", InstanceState.SUSPENDED),
        *(
            (each, InstanceState.RUNNING)
            for each in ("RUNNING", "STOPPING", "SUSPENDING", "REPAIRING", "STAGING", "DEPROVISIONING", "A_NEW_ONE")
        ),
    ],
)
def test_states(status: str, state: InstanceState) -> None:
    assert instance_rules.instance(row(status=status), SCOPE, False).state is state


def test_an_instance_without_an_address_is_incomplete() -> None:
    found = instance_rules.instance(row(status="PROVISIONING", networkInterfaces=[{"name": "nic0"}]), SCOPE, False)
    assert found.incomplete == "Compute Engine shows no address of it yet"


@pytest.mark.parametrize(
    "more",
    [
        {"name": "Not A Name"},
        {"name": None},
        {"zone": None},
        {"zone": ""},
        {"machineType": 4},
        {"status": None},
        {"networkInterfaces": ["eth0"]},
        {"networkInterfaces": [{"networkIP": "10.0.0"}]},
    ],
)
def test_a_row_of_another_form_says_nothing(more: dict[str, Any]) -> None:
    with pytest.raises(Transient):
        instance_rules.instance(row(**more), SCOPE, False)
    with pytest.raises(Transient):
        instance_rules.instance("worker-0", SCOPE, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scope", "zones"),
    [
        (Scope("p"), {"europe-west1-b", "europe-west1-c", "us-east1-b"}),
        (Scope("p", "europe-west1-b"), {"europe-west1-b"}),
        (Scope("p", "europe-west1-b", True), {"europe-west1-b", "europe-west1-c"}),
        (Scope("p", "europe-west1-z", True), {"europe-west1-b", "europe-west1-c"}),
    ],
)
def test_the_zones_of_names(scope: Scope, zones: set[str]) -> None:
    known = ("europe-west1-b", "europe-west1-c", "us-east1-b")
    assert {each for each in known if scope.covers(each)} == zones
    assert scope.covers("europe-west12-b") is (scope.zone == "")


def test_an_instance_of_another_zone_has_its_zonal_dns_name_alone() -> None:
    found = instance_rules.instance(row(hostname="db.example"), Scope("p", "europe-west1-c"), False)
    assert found.names == ("worker-0.europe-west1-b.c.p.internal",)


def test_names_in_a_project_of_an_organisation() -> None:
    found = instance_rules.instance(row(), Scope("example.com:p", "europe-west1-b"), False)
    assert found.provider_id == "gce://example.com:p/europe-west1-b/worker-0"
    assert found.aliases[0] == "worker-0.europe-west1-b.c.p.example.com.internal"


@pytest.mark.parametrize(
    "text", ["gce://p/z", "gce://p/z/n/", "gce:///z/n", "gce://p/z/N", "gcp://p/z/n", "gce://p/z/n\n", ""]
)
def test_other_providerids(text: str) -> None:
    assert instance_rules.place(text) is None


@pytest.mark.parametrize(
    ("answer", "unreachable"),
    [
        ({"items": {"zones/b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}}, ""),
        ({}, ""),
        (
            {"items": {"zones/b": {"warning": {"code": "UNREACHABLE", "message": "no answer"}}}},
            "b: UNREACHABLE",
        ),
        ({"warning": {"code": "LIST_OVERHEAD_QUOTA_EXCEED"}}, "the project: LIST_OVERHEAD_QUOTA_EXCEED"),
        ({"unreachables": ["zones/b", "projects/p/zones/c"]}, "b; c"),
        ({"unreachables": [f"zones/{each}" for each in "abcdefg"]}, "a; b; c; d; e; and 2 more"),
    ],
)
def test_what_a_listing_leaves_open(answer: dict[str, Any], unreachable: str) -> None:
    assert instance_rules.listing({"kind": LISTING, **answer}).unreachable == unreachable


def error(reason: str, message: str) -> dict[str, Any]:
    return {"error": {"code": 404, "message": message, "errors": [{"reason": reason, "message": message}]}}


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("The resource 'projects/p/zones/z/instances/n' was not found", MISSING),
        ("The resource 'projects/p/zones/z' was not found", ELSEWHERE),
        ("The resource 'projects/p' was not found", ELSEWHERE),
        ("Not found.", MISSING),
    ],
)
def test_only_a_404_about_the_instance_is_about_the_instance(message: str, code: str) -> None:
    assert instance_rules.failure(error("notFound", message)).code == code


def test_pod_cidrs_are_the_alias_ranges_of_all_interfaces() -> None:
    ranges = [{"ipCidrRange": "10.4.1.0/24", "subnetworkRangeName": "pods"}, {"ipCidrRange": "/24"}, {}]
    interfaces = [
        {**V4, "aliasIpRanges": ranges},
        {"networkIP": "10.1.0.2", "aliasIpRanges": [{"ipCidrRange": "10.5.0.0/24"}]},
    ]
    found = instance_rules.instance(row(networkInterfaces=interfaces), SCOPE, False)
    assert found.pod_cidrs == ("10.4.1.0/24", "10.5.0.0/24")


@pytest.mark.parametrize(
    "ipv6",
    [
        {"ipv6Address": "2001:2d00::1:0:0"},
        {"ipv6Address": "2001:2d00::1:0:5"},
        {"ipv6AccessType": "EXTERNAL", "ipv6AccessConfigs": [{"externalIpv6": "2001:2d00::1:0:0"}]},
    ],
)
def test_pod_cidrs_have_the_first_112_of_the_ipv6_range(ipv6: dict[str, Any]) -> None:
    interface = {**V4, "aliasIpRanges": [{"ipCidrRange": "10.4.1.0/24"}], **ipv6}
    found = instance_rules.instance(row(networkInterfaces=[interface]), SCOPE, False)
    assert found.pod_cidrs == ("10.4.1.0/24", "2001:2d00::1:0:0/112")

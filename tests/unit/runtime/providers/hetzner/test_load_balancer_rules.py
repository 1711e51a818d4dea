# SPDX-License-Identifier: Apache-2.0
"""The desired load balancer, from annotations and variables as hcloud-cloud-controller-manager reads them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Backend, Backends, Ingress, Invalid, Kept, Port
from ccm.providers.hetzner import load_balancer_rules as rules
from ccm.providers.hetzner.settings import Variables

from .wants import PREFIX, backend, row, spec, want

NETWORK = {"hcloud_network": "kube"}
MANAGED = {"protocol": "https", "certificate-type": "managed", "http-managed-certificate-domains": "a.example"}
UPLOADED = {"protocol": "https", "certificate-type": "uploaded", "http-certificates": "one"}


@pytest.mark.parametrize(
    ("field", "annotation", "variable", "unset", "by_variable", "by_annotation"),
    [
        ("type", {"type": "lb31"}, {"hcloud_load_balancers_type": "lb21"}, "", "lb21", "lb31"),
        (
            "algorithm",
            {"algorithm_type": "round_robin"},
            {"hcloud_load_balancers_algorithm_type": "least_connections"},
            "",
            "least_connections",
            "round_robin",
        ),
        (
            "public",
            {"disable_public_network": "false"},
            {"hcloud_load_balancers_disable_public_network": True},
            None,
            False,
            True,
        ),
        ("private_ip", {"use_private_ip": "false"}, {"hcloud_load_balancers_use_private_ip": True}, False, True, False),
        (
            "subnet",
            {"private_subnet_ip_range": "10.0.2.0/24"},
            {"hcloud_load_balancers_private_subnet_ip_range": "10.0.1.0/24"},
            "",
            "10.0.1.0/24",
            "10.0.2.0/24",
        ),
        ("ipv6", {"ipv6_disabled": "false"}, {"hcloud_load_balancers_disable_ipv6": True}, True, False, True),
        (
            "private_ingress",
            {"disable_private_ingress": "false"},
            {"hcloud_load_balancers_disable_private_ingress": True},
            True,
            False,
            True,
        ),
        (
            "proxy",
            {"uses_proxyprotocol": "false"},
            {"hcloud_load_balancers_uses_proxyprotocol": True},
            False,
            True,
            False,
        ),
    ],
)
def test_an_annotation_counts_before_a_variable(
    field: str, annotation: dict[str, str], variable: dict[str, Any], unset: Any, by_variable: Any, by_annotation: Any
) -> None:
    variables = Variables(**NETWORK, **variable)
    assert getattr(want(), field) == unset
    assert getattr(want(variables), field) == by_variable
    assert getattr(want(variables, **annotation), field) == by_annotation


def test_a_location_counts_before_a_zone_and_an_empty_one_resets_it() -> None:
    variables = Variables(hcloud_load_balancers_location="fsn1")
    found = want(variables, network_zone="eu-central")
    assert (found.location, found.zone) == ("fsn1", "")
    found = want(variables, location="", network_zone="eu-central")
    assert (found.location, found.zone) == ("", "eu-central")


def test_a_health_check_without_settings_is_tcp_on_the_node_port() -> None:
    assert want(protocol="http").services[0]["health_check"] == {"protocol": "tcp", "port": 30080}


def test_a_health_check_with_settings_has_the_protocol_of_the_service() -> None:
    found = want(protocol="http", health_check_interval="5s", health_check_http_path="/x").services[0]["health_check"]
    assert found == {"protocol": "http", "port": 30080, "interval": 5, "http": {"path": "/x"}}
    found = want(health_check_protocol="https", health_check_port="1", http_status_codes="2??,404").services[0]
    check = {"protocol": "https", "port": 1, "http": {"status_codes": ["2??", "404"]}}
    assert found["health_check"] == check
    variables = Variables(hcloud_load_balancers_health_check_retries=5, hcloud_load_balancers_health_check_timeout=9)
    assert want(variables).services[0]["health_check"] == {"protocol": "tcp", "port": 30080, "timeout": 9, "retries": 5}


def test_settings_of_http_do_not_belong_to_tcp() -> None:
    http = {"http_cookie_name": "c", "http_cookie_lifetime": "5m", "http_timeout_idle": "60s"}
    assert "http" not in want(**http).services[0]
    assert want(protocol="http", http_redirect_http="false", **http).services[0]["http"] == {
        "cookie_name": "c",
        "cookie_lifetime": 300,
        "timeout_idle": 60,
        "redirect_http": False,
    }


def test_certificates_belong_to_services_with_tls() -> None:
    found = dataclasses.replace(want(protocol="https", http_certificates="a, 7"), certificate_ids=(3, 7))
    assert found.certificates == ("a", "7") and found.all_services[0]["http"] == {"certificates": [3, 7]}
    plain = dataclasses.replace(want(protocol="http"), certificate_ids=(3,))
    assert plain.all_services == plain.services
    managed = want(certificate_type="managed", http_managed_certificate_domains="a.org,*.b.org")
    assert managed.managed == rules.Certificate("ccm-managed-certificate-1-2-3-4", ("a.org", "*.b.org"))
    with pytest.raises(Invalid, match="http-managed-certificate-domains: it is missing"):
        want(certificate_type="managed")


def test_a_fingerprint_covers_what_is_asked_for() -> None:
    assert dataclasses.replace(want(), certificate_ids=(1,)).digest == want().digest
    changes = (
        {"type": "lb21"},
        {"hostname": "a.org"},
        {"node_selector": "a=b"},
        {"ipv4_rdns": "a.org"},
        {"uses_proxyprotocol": "true"},
        {"private_ipv4": "10.0.1.9"},
        {"location": "fsn1"},
        {"network_zone": "eu-central"},
    )
    assert len({want(**each).digest for each in changes} | {want().digest}) == len(changes) + 1


def test_what_the_cloud_cannot_do_is_refused_but_not_for_a_change_of_nodes() -> None:
    udp = dataclasses.replace(spec(), ports=(Port("d", "UDP", 53, 30053),))
    closed = dataclasses.replace(spec(), source_ranges=("192.0.2.0/24",))
    for each, field in ((udp, "spec.ports"), (closed, "spec.loadBalancerSourceRanges")):
        with pytest.raises(Invalid, match=field):
            rules.desired_state(each, Variables())
        assert rules.desired_state(each, Variables(), nodes_only=True)
    for open_ in (("0.0.0.0/0", "::/0"), ("192.0.2.0/24", "0.0.0.0/0")):
        assert rules.desired_state(dataclasses.replace(spec(), source_ranges=open_), Variables())


@pytest.mark.parametrize(("annotations", "fields", "problem"), [
    ({}, {"source_ranges": ("192.0.2.0/24",)}, "0.0.0.0/0 is not in the list"),
    ({}, {"source_ranges": ("0.0.0.0/0", "2001:db8::/32")}, "::/0 is not in the list"),
    ({"name": "b"}, {"take_back": "a"}, "takes back the load balancer a"),
    ({"name": "a"}, {"take_back": "a"}, ""), ({"name": "b"}, {}, ""), ({}, {"take_back": "a"}, ""),
    (MANAGED, {"keep": Kept.LOAD_BALANCER}, "a managed certificate is deleted with its Service"),
    (MANAGED, {}, ""), (UPLOADED, {"keep": Kept.LOAD_BALANCER}, ""),
])  # fmt: skip
def test_which_requests_exclude_each_other(annotations: dict[str, str], fields: dict[str, Any], problem: str) -> None:
    each = dataclasses.replace(spec(**annotations), **fields)
    try:
        rules.desired_state(each, Variables(hcloud_network="kube"))
    except Invalid as error:
        assert problem and problem in str(error)
    else:
        assert not problem


def test_a_later_change_of_the_location_is_reported() -> None:
    row = {"location": {"name": "fsn1", "network_zone": "eu-central"}}
    assert rules.kept(row, want(location="fsn1")) == rules.kept(row, want(network_zone="eu-central")) == ()
    assert rules.kept(row, want()) == ()
    [place] = rules.kept(row, want(location="nbg1"))
    assert f"{PREFIX}location nbg1 (it has fsn1)" in place
    [zone] = rules.kept(row, want(Variables(hcloud_load_balancers_network_zone="us-east")))
    assert "network-zone us-east (it has eu-central)" in zone
    for name, text in {
        "private-ipv4": "10.0.0.9",
        "private-subnet-ip-range": "10.0.0.0/24",
        "use-private-ip": "true",
    }.items():
        with pytest.raises(Invalid, match=f"{name}: it needs HCLOUD_NETWORK"):
            want(Variables(), **{name.replace("-", "_"): text})


def test_defaults_that_need_a_network_where_there_is_none() -> None:
    subnet = Variables(hcloud_load_balancers_private_subnet_ip_range="10.0.0.0/24")
    assert want(subnet).digest == want(Variables()).digest and want(subnet).subnet == ""
    private = Variables(hcloud_load_balancers_use_private_ip=True)
    with pytest.raises(Invalid, match="HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP: it needs HCLOUD_NETWORK"):
        want(private)
    assert want(private, use_private_ip="false").private_ip is False


def test_what_has_no_effect_is_a_warning_and_part_of_the_fingerprint() -> None:
    found = rules.desired_state(dataclasses.replace(spec(), session_affinity="ClientIP"), Variables(**NETWORK))
    assert "spec.sessionAffinity" in found.warnings[0] and found.digest != want().digest
    assert want().warnings == ()


def test_a_check_asks_for_pods_if_the_service_says_where() -> None:
    local = dataclasses.replace(spec(), health_check_node_port=32000)
    check = {"protocol": "http", "port": 32000, "http": {"path": "/healthz"}}
    assert rules.desired_state(local, Variables()).services[0]["health_check"] == check
    given = {f"{PREFIX}health-check-port": "81"}
    own = rules.desired_state(dataclasses.replace(local, annotations=given), Variables()).services[0]["health_check"]
    assert own == {"protocol": "tcp", "port": 81}


def test_targets_are_cloud_servers_whose_addresses_are_confirmed() -> None:
    silent = Backend("worker-9", "hcloud://9", ())
    every = [backend(3), backend(1), backend(2, "hrobot://2"), backend(4, "hcloud://bm-4"), silent, backend(3)]
    assert rules.targets(want(), every) == (1, 3)
    assert rules.targets(want(node_selector="a=b"), [backend(1, a="b"), backend(2, a="c")]) == (1,)
    selector = Variables(hcloud_load_balancers_target_selector="x=y")
    assert rules.targets(want(selector), every) == ()
    assert rules.targets(want(selector, node_selector="!a"), every) == (1, 3)


def test_the_digest_of_targets_equals_that_of_the_load_balancer() -> None:
    public, private = want(), want(use_private_ip="true")
    nodes = Backends([backend(2), backend(1)])
    assert rules.targets_digest(public, nodes) == rules.digest_of_row(row())
    assert rules.targets_digest(private, nodes) != rules.digest_of_row(row())
    inside = [each | {"use_private_ip": True} for each in row()["targets"]]
    assert rules.targets_digest(private, nodes) == rules.digest_of_row(row(targets=inside))
    assert rules.digest_of_row(row(targets=[inside[0], row()["targets"][1]])) == "mixed"
    robot = {"type": "ip", "ip": {"ip": "192.0.2.1"}}
    assert rules.digest_of_row(row(targets=[robot])) == rules.targets_digest(public, Backends()) == "none"
    selected = want(Variables(hcloud_load_balancers_target_selector="x=y"))
    target = {"type": "label_selector", "label_selector": {"selector": "x=y"}, "use_private_ip": False}
    assert rules.targets_digest(selected, nodes) == rules.digest_of_row(row(targets=[target, robot]))
    assert rules.digest_of_row(row(targets=[target, row()["targets"][0]])) == "mixed"


@pytest.mark.parametrize(
    ("flags", "changed", "expected"),
    [
        ("", {}, ["203.0.113.7", "2001:db8::7", "10.0.1.2"]),
        ("6", {}, ["203.0.113.7", "10.0.1.2"]),
        ("i", {}, ["203.0.113.7", "2001:db8::7"]),
        ("6i", {}, ["203.0.113.7"]),
        ("", {"public_net": row()["public_net"] | {"enabled": False}}, ["10.0.1.2"]),
    ],
)
def test_the_status_has_the_addresses_in_the_originals_order(flags: str, changed: Any, expected: list[str]) -> None:
    assert rules.ingress(row(**changed), "", flags) == tuple(Ingress(ip=each, ip_mode="VIP") for each in expected)
    assert {each.ip_mode for each in rules.ingress(row(**changed), "", f"p{flags}")} == {"Proxy"}
    assert rules.ingress(row(**changed), "a.org", flags) == (Ingress(hostname="a.org"),)


def test_flags_say_what_a_listing_must_know() -> None:
    assert want().flags == ""
    given = {"uses_proxyprotocol": "true", "ipv6_disabled": "true", "disable_private_ingress": "true"}
    managed = {"certificate_type": "managed", "http_managed_certificate_domains": "a.org"}
    assert want(hostname="a.org", **given, **managed).flags == "p6ihm"


@pytest.mark.parametrize(
    "annotations",
    [
        {"algorithm-type": "nonsense"},
        {"no-such-annotation": "x"},
        {"health-check-interval": "1h"},
        {"certificate-type": "managed"},
        {"http-certificates": ",,"},
    ],
)
def test_what_does_not_concern_targets_does_not_keep_them_from_following(annotations):
    desired = spec(**annotations)
    with pytest.raises(Invalid):
        rules.desired_state(desired, Variables(hcloud_network="kube"))
    assert rules.desired_state(desired, Variables(hcloud_network="kube"), nodes_only=True)


@pytest.mark.parametrize("annotations", [{"node-selector": "a in"}, {"use-private-ip": "perhaps"}])
def test_which_targets_and_where_is_never_guessed(annotations):
    with pytest.raises(Invalid):
        rules.desired_state(spec(**annotations), Variables(hcloud_network="kube"), nodes_only=True)


def test_a_type_without_room_for_all_has_other_targets_for_each_service_and_changes_few() -> None:
    """The smallest type has room for 25 targets. If all Services had the same 25, other Nodes would get no traffic."""
    nodes = [backend(number) for number in range(1, 61)]
    chosen = {uid: rules.fitting(want(), Backends(nodes), 25, uid) for uid in map(str, range(20))}
    assert {len(each) for each in chosen.values()} == {25}
    assert {id_ for each in chosen.values() for id_ in each} == set(range(1, 61)), "each node has a part of the traffic"
    for uid, before in chosen.items():
        after = rules.fitting(want(), Backends([*nodes[1:], backend(61)]), 25, uid)
        assert len(set(before) - set(after)) <= 2, "one that went, and one that is before it in the order"
    assert rules.fitting(want(), Backends(nodes), 60, "0") == tuple(range(1, 61))
    assert rules.fitting(want(), Backends(nodes), 0, "0") == ()

# SPDX-License-Identifier: Apache-2.0
"""What Services may ask for, and who owns a port that a Service names."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from ccm.cloud import Invalid
from ccm.providers.openstack.annotations import BY_KEY, PREFIX, TABLE
from ccm.providers.openstack.load_balancers import permissions
from ccm.providers.openstack.settings_sections import DEFAULT, EVERY, EVERYWHERE, LoadBalancerSection

ID = "7f8a2b1c-0000-4000-8000-000000000001"
BALANCER, FLAVOR, TLS = f"{PREFIX}load-balancer-id", f"{PREFIX}flavor-id", permissions.TLS
NOBODY = LoadBalancerSection(allowed_annotations=())
ANYBODY = LoadBalancerSection(allowed_annotations=(EVERY,))


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ((), set()),
        ((EVERY,), set(BY_KEY)),
        ((DEFAULT,), {each.key for each in TABLE if not each.names_another}),
        (("flavor-id", "load-balancer-id"), {FLAVOR, BALANCER}),
        ((DEFAULT, "load-balancer-id"), {each.key for each in TABLE if not each.names_another} | {BALANCER}),
    ],
)
def test_the_annotations_that_are_allowed(allowed, expected):
    assert permissions.allowed(LoadBalancerSection(allowed_annotations=allowed)) == expected


def test_annotations_that_mean_nothing_are_not_denied():
    assert permissions.denied({"a/b": "1", f"{PREFIX}odd": "1"}, NOBODY) == ()
    assert [each.key for each in permissions.denied([TLS, FLAVOR], NOBODY)] == sorted([TLS, FLAVOR])
    assert permissions.denied([TLS, FLAVOR], ANYBODY) == ()


def test_only_what_is_for_a_new_load_balancer_has_no_effect():
    given = {BALANCER: ID, TLS: "https://x/1", "a/b": "1"}
    assert permissions.effective(given, NOBODY) == {TLS: "https://x/1", "a/b": "1"}
    assert permissions.effective(given, ANYBODY) == given


@pytest.mark.parametrize(("text", "expected"), [(ID, ID), (f" {ID.upper()} ", ID), ("odd", ""), ("", "")])
def test_the_load_balancer_that_a_service_names(text, expected):
    assert permissions.named({BALANCER: text}, ANYBODY) == expected
    assert permissions.named({BALANCER: text}, NOBODY) == permissions.named({}, ANYBODY) == ""


def test_a_new_service_is_refused_and_told_which_annotation():
    with pytest.raises(Invalid, match="flavor-id"):
        permissions.check_new([FLAVOR], NOBODY)
    permissions.check_new([FLAVOR], ANYBODY)
    permissions.check_new(["a/b"], NOBODY)


@pytest.mark.parametrize(
    ("annotations", "section", "present", "refused"),
    [
        ([TLS], NOBODY, ["https://x/2"], True),
        ([TLS], NOBODY, ["https://x/1", "https://x/2"], False),
        ([TLS], ANYBODY, [], False),
        ([BALANCER], NOBODY, [], False),
        ([BALANCER, TLS], NOBODY, [], True),
        ([], NOBODY, [], False),
    ],
)
def test_one_that_has_a_load_balancer_keeps_it_as_it_is(annotations, section, present, refused):
    if refused:
        with pytest.raises(Invalid, match="default-tls-container-ref"):
            permissions.check_kept(annotations, section, present, "https://x/1")
    else:
        permissions.check_kept(annotations, section, present, "https://x/1")


@pytest.mark.parametrize(
    ("annotations", "keys"),
    [
        ({}, []),
        ({BALANCER: ID}, []),
        ({BALANCER: f" {ID.upper()} "}, []),
        ({BALANCER: "another"}, [BALANCER]),
        ({BALANCER: ID, FLAVOR: "f"}, [FLAVOR]),
        ({FLAVOR: "f"}, [FLAVOR]),
    ],
)
def test_its_own_id_is_not_worth_a_word(annotations, keys):
    told = permissions.warning(annotations, NOBODY, ID)
    assert [key for key in (BALANCER, FLAVOR) if key in told] == keys and bool(told) is bool(keys)
    assert permissions.warning(annotations, ANYBODY, ID) == ""


NETS = tuple(ipaddress.ip_network(each) for each in ("192.0.2.0/24", "fd00::/8"))


@pytest.mark.parametrize(
    ("address", "networks", "allowed"),
    [
        ("", (), True),
        ("192.0.2.1", NETS, True),
        ("fd00::1", NETS, True),
        ("198.51.100.1", NETS, False),
        ("192.0.2.1", (), False),
    ],
)
def test_an_address_that_a_service_may_ask_for(address, networks, allowed):
    assert permissions.may_have(address, LoadBalancerSection(allowed_load_balancer_ips=networks)) is allowed


@pytest.mark.parametrize(
    ("networks", "allowed"), [((), False), (NETS, False), (EVERYWHERE, True), (EVERYWHERE[:1], False)]
)
def test_the_floating_ips_of_others(networks, allowed):
    section = LoadBalancerSection(allowed_load_balancer_ips=tuple(networks))
    assert permissions.may_have_others(section) is allowed


PORT: dict[str, Any] = {"id": "p", "project_id": "mine", "fixed_ips": [{"ip_address": "10.0.0.9"}]}


def neighbour(address: str, name: str = "q") -> dict[str, Any]:
    return {"id": name, "allowed_address_pairs": [{"ip_address": address}]}


@pytest.mark.parametrize(
    ("port", "balancers", "neighbours", "floating", "word"),
    [
        ({}, [], [], None, ""),
        ({"project_id": "other"}, [], [], None, "project"),
        ({"project_id": None}, [], [], None, ""),
        ({"device_id": "d"}, [], [], None, "uses it"),
        ({"device_owner": "compute:nova"}, [], [], None, "compute:nova"),
        ({"binding:host_id": "h"}, [], [], None, "uses it"),
        ({}, [{"vip_port_id": "q"}, {"vip_port_id": "p"}], [], None, "VIP"),
        ({}, [{"vip_port_id": "q"}], [], None, ""),
        ({}, [], [], {"floating_ip_address": "192.0.2.1"}, "192.0.2.1"),
        ({}, [], [neighbour("10.0.0.9")], None, "port q"),
        ({}, [], [neighbour("10.0.0.9/32")], None, "port q"),
        ({}, [], [neighbour("10.0.0.0/24")], None, ""),
        ({}, [], [neighbour("10.0.0.9", "p")], None, ""),
        ({}, [], [neighbour("10.0.0.8"), {"id": "r"}], None, ""),
        ({"fixed_ips": [{"ip_address": "fd00::9"}]}, [], [neighbour("fd00::9/128")], None, "port q"),
        ({"fixed_ips": [{"ip_address": "fd00::9"}]}, [], [neighbour("fd00::9/32")], None, ""),
        ({"fixed_ips": None}, [], [neighbour("10.0.0.9")], None, ""),
    ],
)
def test_whether_a_port_can_become_the_vip(port, balancers, neighbours, floating, word):
    told = permissions.port_problem({**PORT, **port}, balancers, neighbours, floating, "mine")
    assert word in told and bool(told) is bool(word)


def test_of_an_unknown_project_any_port_is_taken():
    assert permissions.port_problem({**PORT, "project_id": "other"}, [], [], None, "") == ""

# SPDX-License-Identifier: Apache-2.0
"""The small parts of the toolkit: members, rules, steps, and when to retry."""

import dataclasses

import pytest

from ccm.cloud import Address, AddressType, Backend, RetryAfter
from ccm.cloud.toolkit.backend_addresses import members_of, node_address, serving
from ccm.cloud.toolkit.retry_after import retry_after, unix_time
from ccm.cloud.toolkit.rule_changes import rule_changes
from ccm.cloud.toolkit.steps import Step, do_next


def backend(name, *addresses, **labels):
    pairs = tuple(Address(AddressType(kind), text) for kind, text in addresses)
    return Backend(name, f"fake://{name}", pairs, labels)


IN, EX = "InternalIP", "ExternalIP"
BOTH = backend("n1", (EX, "192.0.2.1"), (IN, "10.0.0.1"), (IN, "10.0.0.2"), (IN, "fd00::1"))


def test_the_address_of_a_family_is_internal_where_there_is_one():
    assert (node_address(BOTH, "IPv4"), node_address(BOTH, "IPv6")) == ("10.0.0.1", "fd00::1")
    assert node_address(backend("n", (EX, "192.0.2.1")), "IPv4") == "192.0.2.1"
    assert node_address(backend("n", ("Hostname", "n"), (IN, "10.0.0.1")), "IPv6") == ""


def test_members_are_those_that_the_selector_chooses_and_that_have_an_address():
    nodes = [
        backend("b", (IN, "10.0.0.2"), pool="web"),
        backend("a", (IN, "10.0.0.1"), pool="db"),
        backend("c", (IN, "fd00::3"), pool="web"),
        backend("d", (IN, "10.0.0.4")),
    ]
    assert members_of(nodes, "IPv4") == [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("d", "10.0.0.4")]
    assert members_of(nodes, "IPv4", {"pool": "web"}) == [("b", "10.0.0.2")]
    assert members_of(nodes, "IPv4", {"pool": None}) == [("a", "10.0.0.1"), ("b", "10.0.0.2")]
    assert members_of(nodes, "IPv6", {"pool": None}) == [("c", "fd00::3")]


def test_of_two_nodes_with_one_address_the_first_by_name_serves():
    found = serving([backend("b", (IN, "10.0.0.1")), backend("a", (IN, "10.0.0.1"))], "IPv4")
    assert [each.node_name for each in found.values()] == ["a"]


def test_rules_to_make_and_to_delete():
    present = [{"id": 1, "port": "80"}, {"id": 2, "port": "443"}, {"id": 3, "port": "443"}]
    missing, superfluous = rule_changes([{"port": 80}, {"port": 22}], present, lambda rule: int(rule["port"]))
    assert missing == [{"port": 22}]
    assert [row["id"] for row in superfluous] == [2, 3]
    assert rule_changes([], [], str) == ([], [])


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("headers", "content", "expected"),
    [
        ({"Retry-After": "7"}, b"", 7.0),
        ({"Retry-After": " 1.5 "}, b"", 1.5),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:30 GMT"}, b"", 10.0),
        ({"Retry-After": "Tue, 14 Nov 2023 22:13:00 GMT"}, b"", 0.0),
        ({"Retry-After": "soon"}, b"", None),
        ({"Retry-After": "-3"}, b"", None),
        ({}, b'{"overLimit": {"retryAfter": "12"}}', 12.0),
        ({"Retry-After": "3"}, b'{"retryAfter": 12}', 3.0),
        ({}, b"", None),
    ],
)
def test_when_to_come_back(headers, content, expected):
    assert retry_after(headers, content, NOW) == expected


def test_a_date_of_another_form_is_none():
    assert unix_time("yesterday") is None and unix_time("") is None


async def test_one_step_is_done_and_the_rest_is_asked_for_again():
    done = []

    async def do(step):
        done.append(step)

    steps = [Step("POST", "/listeners", {}), Step("DELETE", "/pools/1")]
    with pytest.raises(RetryAfter, match="load balancer lb1 is being changed: 2 steps left") as caught:
        await do_next(steps, do, "load balancer lb1", lambda: 1.5)
    assert done == steps[:1] and caught.value.retry_after == 1.5
    with pytest.raises(RetryAfter, match="7 steps"):
        await do_next(steps, do, "it", lambda: 1.0, left=7)


async def test_a_step_that_fails_is_told_as_it_failed():
    async def do(step):
        raise KeyError(step.path)

    with pytest.raises(KeyError):
        await do_next([Step("PUT", "/pools/1")], do, "it", lambda: 1.0)


def test_a_step_says_what_it_is_about():
    assert str(Step("PUT", "/pools/1", {})) == "other values in pools/1"
    assert str(dataclasses.replace(Step("PUT", "/pools/1"), repairs="pool 1")) == "pool 1"

# SPDX-License-Identifier: Apache-2.0
"""The members of load balancers that have no room for all nodes."""

import hashlib
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Backend
from ccm.cloud.toolkit import limited_members
from ccm.cloud.toolkit.backend_addresses import serving
from ccm.cloud.toolkit.limited_members import SETS, ZONE, Candidates, Choices, limited


def node(name, address, zone):
    return Backend(name, f"fake://{name}", (Address(AddressType.INTERNAL_IP, address),), {ZONE: zone})


def members(*numbers, zones=3):
    """Return the members for these node numbers, spread over `zones` zones."""
    nodes = [node(f"n{each}", f"10.0.{each // 250}.{each % 250}", f"z{each % zones}") for each in numbers]
    return serving(nodes, "IPv4")


@pytest.mark.parametrize("most", [0, 6, 7])
def test_all_are_members_without_a_limit_and_below_it(most):
    assert limited(members(*range(6)), most, "web") == members(*range(6))


@given(
    numbers=st.sets(st.integers(0, 40), min_size=2), most=st.integers(1, 12), zones=st.integers(1, 4), gone=st.data()
)
def test_a_node_that_goes_or_comes_replaces_one_member_at_most(numbers, most, zones, gone):
    left = numbers - {gone.draw(st.sampled_from(sorted(numbers)))}
    before, after = (limited(members(*each, zones=zones), most, "web") for each in (numbers, left))
    assert len(before) == min(most, len(numbers)) and len(after) == min(most, len(left))
    assert len(before.keys() - after.keys()) <= 1 and len(after.keys() - before.keys()) <= 1
    assert [*before] == [each for each in members(*sorted(numbers), zones=zones) if each in before]


def test_zones_share_the_members_of_a_service_and_services_share_the_nodes():
    nodes, chosen = members(*range(60)), Counter()
    for service in range(40):
        some = limited(nodes, 9, f"service-{service}")
        assert sorted(Counter(each.labels[ZONE] for each in some.values()).values()) == [3, 3, 3]
        chosen.update(some.keys())
    assert len(chosen) == 60 and max(chosen.values()) <= 15  # 6 on average


def test_a_small_zone_does_not_leave_places_empty():
    nodes = {**members(*range(10), zones=1), **members(100, 101, zones=200)}
    assert len(limited(nodes, 8, "web")) == 8


def test_the_choice_of_a_release_is_that_of_the_next_one():
    """Another choice would replace targets of all load balancers at an upgrade."""
    chosen = limited(members(*range(40), zones=4), 7, "6f9619ff-8b86-4d01-b42d-00c04fc964ff")
    assert [each.node_name for each in chosen.values()] == ["n0", "n1", "n13", "n30", "n31", "n38", "n39"]


@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.integers(0, 30), st.sampled_from("abc")),  # which nodes exist, with their zones
            st.integers(0, 9),  # which of them a selector excludes
            st.lists(st.tuples(st.sampled_from(["web", "app", "db"]), st.sampled_from([1, 2, 2, 5])), max_size=4),
        ),
        max_size=2 * SETS,
    ),
    known=st.sampled_from([1, 2, 10]),
)
def test_what_is_remembered_changes_no_choice(steps, known):
    choices = Choices(known)
    for nodes, excluded, services in steps:
        zones = {number: zone for number, zone in nodes.items() if number != excluded}
        present = {f"10.0.0.{number}": node(f"n{number}", f"10.0.0.{number}", zone) for number, zone in zones.items()}
        candidates = Candidates(present)
        for service, most in services:
            chosen = choices.limited(candidates, most, service)
            assert [*chosen.items()] == [*limited(present, most, service).items()]


@given(
    changes=st.lists(st.tuples(st.integers(0, 25), st.sampled_from("abc")), min_size=1, max_size=40),
    most=st.integers(1, 6),
)
def test_nodes_that_come_and_go_one_by_one_change_no_choice(changes, most):
    choices, zones = Choices(), {}
    for number, zone in changes:
        if zones.pop(number, None) is None:
            zones[number] = zone
        present = {each: node(f"n{each}", f"10.0.0.{each}", place) for each, place in sorted(zones.items())}
        assert [*choices.limited(Candidates(present), most, "web")] == [*limited(present, most, "web")]


def test_an_address_that_changes_is_that_of_the_chosen_node():
    before, after = members(*range(30)), {f"new {key}": value for key, value in members(*range(30)).items()}
    choices = Choices()
    choices.limited(Candidates(before), 5, "web")
    assert [*choices.limited(Candidates(after), 5, "web")] == [*limited(after, 5, "web")]


def test_nodes_of_one_name_are_chosen_as_without_a_memory():
    twins = {number: node(f"n{number // 2}", f"10.0.0.{number}", "a") for number in range(30)}
    choices = Choices()
    for _ in range(2):
        assert [*choices.limited(Candidates(twins), 5, "web")] == [*limited(twins, 5, "web")]


@pytest.fixture
def hashes(monkeypatch):
    """Return an object whose `count` is the number of hashes that were computed."""
    made = SimpleNamespace(count=0)

    def sha256(text):
        made.count += 1
        return hashlib.sha256(text)

    monkeypatch.setattr(limited_members, "hashlib", SimpleNamespace(sha256=sha256))
    return made


def test_a_node_that_comes_or_goes_costs_each_service_a_few_hashes(hashes):
    """2,000 hashes for each of 1,000 Services took two seconds."""
    choices, services = Choices(), [f"service-{number}" for number in range(20)]

    def cost(*numbers):
        hashes.count, candidates = 0, Candidates(members(*numbers))
        chosen = [choices.limited(candidates, 25, service) for service in services]
        return hashes.count, {backend.node_name for each in chosen for backend in each.values()}

    first, _ = cost(*range(400))
    again, _ = cost(*range(400))
    joined, used = cost(*range(401))
    unused = next(number for number in range(401) if f"n{number}" not in used)
    gone, _ = cost(*(number for number in range(401) if number != unused))
    assert (first, again, joined, gone) == (20 * 400, 0, 20 * 26, 0)


def test_a_service_whose_own_node_goes_chooses_among_all(hashes):
    choices, nodes = Choices(), members(*range(100))
    chosen = choices.limited(Candidates(nodes), 10, "web")
    left = {key: value for key, value in nodes.items() if key != next(iter(chosen))}
    hashes.count = 0
    assert choices.limited(Candidates(left), 10, "web") == limited(left, 10, "web")
    assert hashes.count == 99 + 99


def test_nothing_grows():
    choices = Choices(100)
    for number in range(1000):
        candidates = Candidates(members(*range(number % 40, 60)))
        for service in ("web", f"service-{number}"):
            choices.limited(candidates, 5, service)
    assert (len(choices._chosen), len(choices._sets), len(choices._changes)) == (100, SETS, SETS)

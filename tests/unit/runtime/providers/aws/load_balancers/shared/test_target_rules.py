# SPDX-License-Identifier: Apache-2.0
"""Which instances are targets: selected AWS instances, without draining ones unless all selected ones drain."""

from __future__ import annotations

import pytest

from ccm.cloud import Address, AddressType, Backend, Backends
from ccm.providers.aws.load_balancers.shared import target_rules as rules

from .targets import MANY, Desired, backend, id_of

ELSEWHERE = Backend("metal", "static://metal", (Address(AddressType.INTERNAL_IP, "10.0.0.99"),))


@pytest.mark.parametrize(
    ("nodes", "backends", "targets"),
    [
        ({}, [], ()),
        ({}, [backend(2), backend(1)], (id_of(1), id_of(2))),
        ({}, [backend(1), ELSEWHERE, backend(2, addressed=False)], (id_of(1),)),
        ({}, [backend(1), backend(2, draining=True)], (id_of(1),)),
        ({}, [backend(1, draining=True), backend(2, draining=True)], (id_of(1), id_of(2))),
        ({"pool": "web"}, [backend(1, pool="web"), backend(2, pool="db"), backend(3)], (id_of(1),)),
        ({"pool": None}, [backend(1, pool="web"), backend(2, pool="db"), backend(3)], (id_of(1), id_of(2))),
        ({"pool": "web"}, [backend(1, pool="web", draining=True), backend(2, pool="db")], (id_of(1),)),
    ],
)
def test_targets(nodes: dict[str, str | None], backends: list[Backend], targets: tuple[str, ...]) -> None:
    assert rules.ids(Desired(nodes), backends) == targets


def test_a_stopped_instance_is_left_out_and_nothing_is_copied_if_none_is() -> None:
    targets = (id_of(1), id_of(2))
    assert rules.without(targets, {id_of(2)}) == (id_of(1),)
    assert rules.without(targets, set()) is targets


def test_what_goes_and_what_comes() -> None:
    assert rules.changed((id_of(1), id_of(2)), (id_of(2), id_of(3)), [backend(2)]) == ((id_of(1),), (id_of(3),))
    assert rules.changed((id_of(1),), (id_of(1),), [backend(1)]) == ((), ())


def test_the_digest_follows_the_targets_alone() -> None:
    before = rules.digest_of(Desired(), [backend(1), backend(2)])
    assert before == rules.digest_of(Desired(), [backend(2), backend(1), ELSEWHERE])
    assert before != rules.digest_of(Desired(), [backend(1), backend(2, draining=True)])
    assert before != rules.digest_of(Desired({"pool": "web"}), [backend(1, pool="web"), backend(2)])


def test_a_limit_is_kept_and_shared_by_zones_and_services() -> None:
    limit = Desired(most=4)
    chosen = rules.ids(limit, MANY)
    assert len(chosen) == 4 and sum(int(each.removeprefix("i-"), 16) % 2 for each in chosen) == 2, "2 of each zone"
    others = {id_ for number in range(20) for id_ in rules.ids(Desired(most=4, service=f"u-{number}"), MANY)}
    assert len(others) == 10, "together, the Services use all"
    for gone in MANY:
        after = rules.ids(limit, [each for each in MANY if each is not gone])
        assert len(set(chosen) - set(after)) <= 1, "a Node that goes replaces at most itself"
    assert rules.digest_of(limit, MANY) != rules.digest_of(Desired(), MANY)
    assert rules.digest_of(limit, MANY) != rules.digest_of(Desired(most=4, service="u-2"), MANY)


def test_with_local_each_node_may_have_the_only_pod() -> None:
    local = Desired(most=4, local=True)
    assert len(rules.ids(local, MANY)) == 10
    assert rules.digest_of(local, MANY) == rules.digest_of(Desired(), MANY)


@pytest.mark.parametrize(
    ("most", "local", "number", "is_too_many"),
    [
        (0, False, 10, False),
        (1, False, 2, True),
        (1, False, 1, False),
        (4, False, 5, True),
        (4, False, 4, False),
        (4, True, 5, False),
    ],
)
def test_the_limit_counts_without_local(most: int, local: bool, number: int, is_too_many: bool) -> None:
    targets = [id_of(each) for each in range(number)]
    assert rules.is_too_many(Desired(most=most, local=local), targets) is is_too_many


def test_a_limit_chooses_among_the_selected_nodes() -> None:
    nodes = [backend(number, pool="web" if number in (3, 7) else "db") for number in range(10)]
    for service in map(str, range(20)):
        assert set(rules.ids(Desired({"pool": "web"}, most=1, service=service), nodes)) < {id_of(3), id_of(7)}


def test_services_share_a_digest_unless_each_chooses_its_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Backends(MANY)
    limited = {rules.digest_of(Desired(most=4, service=service), nodes) for service in ("u-1", "u-2")}
    assert len(limited) == 2
    computed: list[tuple[str, ...]] = []
    monkeypatch.setattr(rules, "desired_digest", lambda ids: computed.append(ids) or "digest")
    for desired in (Desired(), Desired(service="u-2"), Desired(most=4, local=True), Desired(most=5, local=True)):
        assert rules.digest_of(desired, nodes) == "digest"
    assert len(computed) == 1


@pytest.mark.parametrize(("most", "ports", "share"), [(0, 3, 0), (9, 3, 3), (2, 3, 1), (500, 0, 500)])
def test_an_instance_counts_for_each_port(most: int, ports: int, share: int) -> None:
    assert rules.share(most, ports) == share

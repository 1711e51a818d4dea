# SPDX-License-Identifier: Apache-2.0
"""Which instances are targets: selected AWS instances that serve, and draining ones only if all drain."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ccm.cloud import Address, AddressType, Backend
from ccm.providers.aws.load_balancers.shared import target_rules as rules


@dataclass
class Desired:
    nodes: dict[str, str | None] = field(default_factory=dict)


def backend(number: int, *, draining: bool = False, addressed: bool = True, **labels: str) -> Backend:
    addresses = (Address(AddressType.INTERNAL_IP, f"10.0.0.{number}"),) if addressed else ()
    return Backend(f"n{number}", f"aws:///eu-west-1a/i-{number:017x}", addresses, labels, draining)


def id_of(number: int) -> str:
    return f"i-{number:017x}"


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


def test_a_selector_that_no_node_has_is_named() -> None:
    assert rules.nobody(Desired(), [backend(1)]) == ()
    (warning,) = rules.nobody(Desired({"pool": "web"}), [backend(1)])
    assert "target-node-labels" in warning


def test_the_digest_follows_the_targets_alone() -> None:
    before = rules.digest_of(Desired(), [backend(1), backend(2)])
    assert before == rules.digest_of(Desired(), [backend(2), backend(1), ELSEWHERE])
    assert before != rules.digest_of(Desired(), [backend(1), backend(2, draining=True)])
    assert before != rules.digest_of(Desired({"pool": "web"}), [backend(1, pool="web"), backend(2)])

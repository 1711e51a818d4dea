# SPDX-License-Identifier: Apache-2.0
"""Which Service owns a rule, and whether the rule's address is released with the Service."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.providers.cloudstack import load_balancer_owners as owners
from ccm.providers.cloudstack.load_balancer_rules import desired_state

from .wants import ADDRESS, BASE, rule, service

SPEC = service()


def marked(port: int = 80, *, associated: bool = True, fingerprint: str = "", **more: Any) -> dict[str, Any]:
    spec = service(**more)
    return rule(port, description=owners.description(spec, desired_state(spec), associated, fingerprint))


def test_a_mark_says_whose_a_rule_is() -> None:
    row = marked()
    assert owners.is_own(row, SPEC)
    assert not owners.is_own(row, dataclasses.replace(SPEC, cluster="other"))
    assert not owners.is_own(row, dataclasses.replace(SPEC, uid=SPEC.uid.replace("6", "7")))


@pytest.mark.parametrize(
    ("changed", "own"),
    [
        ({}, True),
        ({"description": "a text of a person"}, True),
        ({"name": BASE}, False),
        ({"name": f"{BASE}x-tcp-80"}, False),
        ({"name": "web-tcp-80"}, False),
    ],
)
def test_without_a_mark_the_name_counts(changed: dict[str, str], own: bool) -> None:
    """A rule without a mark is the Service's if it has the name that cloudstack-kubernetes-provider gives."""
    assert owners.is_own(rule(**changed), SPEC) is own
    assert owners.Rules([rule(**changed)]).of(SPEC) == ([rule(**changed)] if own else [])


def test_rules_of_one_read() -> None:
    stranger = rule(8080, name="by-hand")
    other = marked(81) | {"id": "rule-81", "description": "ccm:v1:other:uid:name:::default"}
    every = owners.Rules([marked(443), stranger, marked(80), other])
    assert [row["publicport"] for row in every.of(SPEC)] == ["80", "443"]
    assert set(every.balancers("kubernetes")) == {SPEC.uid} and set(every.balancers("other")) == {"uid"}
    assert [row["name"] for row in every.others_on(ADDRESS, every.of(SPEC))] == ["by-hand", f"{BASE}-tcp-81"]
    assert every.others_on("address-2", ()) == []


@pytest.mark.parametrize(
    ("rows", "more", "expected"),
    [
        ([marked()], {}, True),
        ([marked(associated=False)], {}, False),
        ([marked(associated=False), marked(443)], {}, True),
        ([rule()], {}, True),
        ([rule()], {"load_balancer_ip": "203.0.113.7"}, False),
        ([rule()], {"load_balancer_ip": "203.0.113.8"}, True),
        (
            [rule()],
            {"load_balancer_ip": "203.0.113.7", "annotations": {"ip-associated-by-controller": "true"}},
            True,
        ),
    ],
)
def test_whether_an_address_goes_with_its_service(rows: Any, more: Any, expected: bool) -> None:
    """Rules without a mark are decided as by cloudstack-kubernetes-provider."""
    assert owners.is_associated(rows, desired_state(service(**more))) is expected


def test_without_a_mark_and_without_a_service_an_address_stays() -> None:
    assert not owners.is_associated([rule()], None) and owners.is_associated([marked()], None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([marked(fingerprint="f")], "f"),
        ([marked(fingerprint="f"), marked(443)], "f"),
        ([marked(), marked(443)], ""),
        ([marked(fingerprint="f"), marked(443, fingerprint="g")], ""),
        ([rule()], ""),
        ([marked(fingerprint="f", annotations={"hostname": "lb.example.org"})], ""),
    ],
)
def test_what_was_written_last(rows: Any, expected: str) -> None:
    assert owners.fingerprint(rows) == expected


def test_the_tag_of_an_address_names_cluster_and_service() -> None:
    other = dataclasses.replace(SPEC, cluster="other")
    assert owners.intent_key(SPEC).endswith(f"/{SPEC.uid}") and owners.intent_key(SPEC) != owners.intent_key(other)
    assert len(owners.intent_key(SPEC)) < 255

# SPDX-License-Identifier: Apache-2.0
"""DesiredStates remembers the desired state of a Service until the Service changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ccm.cloud import Ingress, Invalid, LoadBalancerSpec, Port
from ccm.providers.openstack.annotations import PREFIX
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules
from ccm.providers.openstack.load_balancers.desired_states import DesiredStates
from ccm.providers.openstack.settings_sections import LoadBalancerSection

SECTION = LoadBalancerSection()
SPEC = LoadBalancerSpec("kubernetes", "u-1", "shop", "web", (Port("", "TCP", 80, 30080),))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that collects the name of each rule that is computed."""
    calls: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(rules, name)

        def call(*arguments: Any, **more: Any) -> Any:
            calls.append(name)
            return real(*arguments, **more)

        return call

    for name in ("desired_load_balancer", "fingerprint"):
        monkeypatch.setattr(rules, name, counted(name))
    return calls


def test_a_service_that_did_not_change_is_computed_once(computed: list[str]) -> None:
    states = DesiredStates(SECTION, {})
    first, print_ = states.of(SPEC), states.fingerprint(SPEC)
    computed.clear()
    same = replace(SPEC, annotations=dict(SPEC.annotations), ingress=(Ingress(ip="203.0.113.1"),))
    assert states.of(same) is first
    assert states.fingerprint(same) == print_
    assert computed == []


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {f"{PREFIX}connection-limit": "3"}},
        {"ports": (Port("", "TCP", 80, 30081),)},
        {"source_ranges": ("10.0.0.0/8",)},
        {"load_balancer_ip": "203.0.113.9"},
    ],
)
def test_a_service_that_changed_is_computed_again(change: dict[str, Any]) -> None:
    states = DesiredStates(SECTION, {})
    states.of(SPEC), states.fingerprint(SPEC)
    changed = replace(SPEC, **change)
    for each in (changed, SPEC, changed):
        assert states.of(each) == rules.desired_load_balancer(each, SECTION, {})
        assert states.fingerprint(each) == rules.fingerprint(each, SECTION, {})


def test_services_and_octavia_providers_are_kept_apart() -> None:
    states = DesiredStates(SECTION, {})
    other = replace(SPEC, uid="u-2", name="api")
    assert states.of(SPEC).name != states.of(other).name
    assert states.of(SPEC, "ovn").method == "SOURCE_IP_PORT"
    assert states.of(SPEC).method == "ROUND_ROBIN"


def test_an_invalid_service_stays_invalid_until_it_is_fixed() -> None:
    states = DesiredStates(SECTION, {})
    wrong = replace(SPEC, ports=())
    for _ in range(2):
        with pytest.raises(Invalid, match="the Service has no ports"):
            states.of(wrong)
        assert states.fingerprint(wrong).startswith("!")
    assert states.of(SPEC).name


def test_a_service_that_is_gone_is_forgotten(computed: list[str]) -> None:
    states = DesiredStates(SECTION, {})
    states.of(SPEC)
    states.forget(SPEC)
    states.forget(SPEC)
    computed.clear()
    states.of(SPEC)
    assert computed == ["desired_load_balancer"]


@pytest.mark.parametrize("configured", ["amphora", "ovn"])
@pytest.mark.parametrize("made_by", ["amphora", "ovn", "other"])
def test_a_load_balancer_of_the_configured_provider_takes_the_state_of_a_new_one(
    configured: str, made_by: str, computed: list[str]
) -> None:
    section = LoadBalancerSection(lb_provider=configured)
    states = DesiredStates(section, {})
    states.of(SPEC)
    computed.clear()
    found = states.of(SPEC, made_by)
    assert computed == ([] if made_by == configured else ["desired_load_balancer"])
    assert found == rules.desired_load_balancer(SPEC, section, {}, made_by)

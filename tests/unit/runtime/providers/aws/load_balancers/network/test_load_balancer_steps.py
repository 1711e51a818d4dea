# SPDX-License-Identifier: Apache-2.0
"""The calls that bring a load balancer to its desired state, in their order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Port
from ccm.providers.aws.api import pairs
from ccm.providers.aws.load_balancers.network import load_balancer_steps as balancer_steps
from ccm.providers.aws.load_balancers.network.load_balancer_rules import DesiredState
from ccm.providers.aws.load_balancers.network.load_balancer_steps import Present, steps, target_steps

from ...rows import spec, want

ARN = "arn:balancer"
BALANCER = {"LoadBalancerArn": ARN, "VpcId": "vpc-1"}
IDS = ["i-0a1", "i-0b2"]
CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a1"
TLS = spec(Port("https", "TCP", 443, 30443), annotations={"ssl-cert": CERTIFICATE, "ssl-negotiation-policy": "strict"})

NO_POLICY = {name: text for name, text in TLS.annotations.items() if not name.endswith("policy")}


def group(listener: Any, **more: Any) -> dict[str, Any]:
    return {
        "TargetGroupArn": f"arn:{listener.group}",
        "TargetGroupName": listener.group,
        "Port": listener.node_port,
        "HealthCheckPort": listener.check.port,
        "HealthyThresholdCount": listener.check.healthy,
        "UnhealthyThresholdCount": listener.check.unhealthy,
        **({"HealthCheckPath": listener.check.path} if listener.check.path else {}),
        **more,
    }


def present(wanted: DesiredState, **more: Any) -> Present:
    """Return what exists: exactly the desired state, except for `more`."""
    listeners = [
        {
            "ListenerArn": f"arn:listener:{each.port}",
            "Port": each.port,
            "Protocol": each.protocol,
            "DefaultActions": [{"TargetGroupArn": f"arn:{each.group}"}],
            **({"Certificates": [{"CertificateArn": each.certificate}]} if each.certificate else {}),
            **({"SslPolicy": each.policy} if each.policy else {}),
        }
        for each in wanted.listeners
    ]
    found = Present(
        BALANCER,
        listeners,
        {each.group: group(each) for each in wanted.listeners},
        {each.group: frozenset((id, each.node_port) for id in IDS) for each in wanted.listeners},
        wanted.attributes,
        {each.group: wanted.group_attributes for each in wanted.listeners},
    )
    return dataclasses.replace(found, **more)


def names(existing: Present, wanted: DesiredState, ids: list[str] = IDS) -> list[str]:
    return [each.operation for each in steps(existing, wanted, ids, {})]


@pytest.mark.parametrize("service", [spec(), TLS, spec(external_traffic_policy="Local", health_check_node_port=32000)])
def test_nothing_is_left_where_everything_is_there(service):
    assert steps(present(want(service)), want(service), IDS, {}) == []


def test_a_new_one_gets_its_parts_in_an_order_that_loses_nothing():
    found = steps(Present(BALANCER), want(), IDS, {"a": "b"})
    create, register, listen = found
    assert [each.operation for each in found] == ["create_target_group", "register_targets", "create_listener"]
    assert create.arguments == {
        "Name": want().listeners[0].group,
        "Protocol": "TCP",
        "Port": 30080,
        "VpcId": "vpc-1",
        "TargetType": "instance",
        "Tags": [{"Key": "a", "Value": "b"}],
        "HealthCheckProtocol": "TCP",
        "HealthCheckPort": "traffic-port",
        "HealthCheckIntervalSeconds": 30,
        "HealthyThresholdCount": 3,
        "UnhealthyThresholdCount": 3,
    }
    assert register.group == listen.group == want().listeners[0].group
    assert listen.in_action
    assert listen.arguments == {
        "LoadBalancerArn": ARN,
        "Port": 80,
        "Protocol": "TCP",
        "Tags": [{"Key": "a", "Value": "b"}],
    }


def test_attributes_of_a_new_one_are_written_only_if_aws_has_others():
    wanted = want(spec(annotations={"cross-zone-load-balancing-enabled": "true"}))
    last = steps(Present(BALANCER), wanted, IDS, {})[-1]
    assert last.operation == "modify_load_balancer_attributes"
    assert last.arguments["Attributes"] == [{"Key": "load_balancing.cross_zone.enabled", "Value": "true"}]
    assert "load_balancing.cross_zone.enabled" in last.what


def test_a_listener_that_gets_tls_gets_the_policy_of_a_new_one():
    plain, wanted = want(spec(TLS.ports[0])), want(dataclasses.replace(TLS, annotations=NO_POLICY))
    (change,) = [each for each in steps(present(plain), wanted, IDS, {}) if each.operation == "modify_listener"]
    assert change.arguments["SslPolicy"] == "ELBSecurityPolicy-2016-08"
    (new,) = [each for each in steps(Present(BALANCER), wanted, IDS, {}) if each.operation == "create_listener"]
    assert "SslPolicy" not in new.arguments
    assert steps(present(wanted), wanted, IDS, {}) == []


def test_a_path_is_checked_only_by_http():
    wanted = want(spec(annotations={"healthcheck-protocol": "http", "healthcheck-path": "/ok"}))
    assert steps(Present(BALANCER), wanted, [], {})[0].arguments["HealthCheckPath"] == "/ok"


@pytest.mark.parametrize(
    ("key", "value"), [("HealthCheckPort", "1"), ("HealthyThresholdCount", 2), ("UnhealthyThresholdCount", 2)]
)
def test_another_check_is_changed_in_place(key, value):
    (listener,) = want().listeners
    found = present(want(), groups={listener.group: group(listener, **{key: value})})
    (step,) = steps(found, want(), IDS, {})
    assert (step.operation, step.group) == ("modify_target_group", listener.group)
    assert step.arguments.keys() == {key}


def test_another_node_port_has_another_group_and_the_old_one_goes_last():
    changed = want(spec(Port("http", "TCP", 80, 30081)))
    found = steps(present(want()), changed, IDS, {})
    assert [each.operation for each in found] == [
        "create_target_group",
        "register_targets",
        "modify_listener",
        "delete_target_group",
    ]
    assert found[2].group == changed.listeners[0].group
    assert found[3].group == want().listeners[0].group


def test_a_port_more_and_a_port_less():
    one, two = want(), want(spec(Port("http", "TCP", 80, 30080), Port("more", "TCP", 81, 30081)))
    assert names(present(one), two) == ["create_target_group", "register_targets", "create_listener"]
    less = steps(present(two), one, IDS, {})
    assert [each.operation for each in less] == ["delete_listener", "delete_target_group"]
    assert less[0].arguments == {"ListenerArn": "arn:listener:81"}


def test_tcp_becomes_tls_in_place_and_udp_does_not():
    plain = want(spec(Port("https", "TCP", 443, 30443)))
    (step,) = steps(present(plain), want(TLS), IDS, {})
    assert step.operation == "modify_listener"
    assert step.arguments == {
        "ListenerArn": "arn:listener:443",
        "Port": 443,
        "Protocol": "TLS",
        "Certificates": [{"CertificateArn": CERTIFICATE}],
        "SslPolicy": "strict",
    }
    udp = want(spec(Port("https", "UDP", 443, 30443)))
    assert names(present(plain), udp) == [
        "create_target_group",
        "register_targets",
        "delete_listener",
        "create_listener",
        "delete_target_group",
    ]


@pytest.mark.parametrize(
    "changed", [{"Certificates": [{"CertificateArn": "other"}]}, {"Certificates": []}, {"SslPolicy": "weak"}]
)
def test_certificate_and_policy_are_repaired(changed):
    wanted = want(TLS)
    found = present(wanted)
    assert names(dataclasses.replace(found, listeners=[{**found.listeners[0], **changed}]), wanted) == [
        "modify_listener"
    ]


def test_without_a_policy_that_of_aws_stays():
    wanted = want(spec(Port("https", "TCP", 443, 30443), annotations={"ssl-cert": CERTIFICATE}))
    found = present(wanted)
    assert names(dataclasses.replace(found, listeners=[{**found.listeners[0], "SslPolicy": "aws"}]), wanted) == []


def test_attributes_of_groups_count_only_if_asked_for():
    wanted = want(spec(annotations={"target-group-attributes": "proxy_protocol_v2.enabled=true"}))
    (step,) = steps(present(wanted, group_attributes={}), wanted, IDS, {})
    assert (step.operation, step.group) == ("modify_target_group_attributes", wanted.listeners[0].group)
    assert step.arguments["Attributes"] == pairs({"proxy_protocol_v2.enabled": "true"})


def test_targets_join_before_others_leave():
    found = list(target_steps("g", 1, frozenset({("i-0a", 1), ("i-0b", 2)}), ["i-0b", "i-0a", "i-0c"]))
    assert [(each.operation, each.arguments["Targets"]) for each in found] == [
        ("register_targets", [{"Id": "i-0b", "Port": 1}, {"Id": "i-0c", "Port": 1}]),
        ("deregister_targets", [{"Id": "i-0b", "Port": 2}]),
    ]
    assert [each.what for each in found] == [
        "2 instances are not targets of g",
        "1 instances are superfluous targets of g",
    ]


def test_many_targets_are_several_calls():
    ids = [f"i-{number:03x}" for number in range(balancer_steps.CHUNK + 1)]
    assert [len(each.arguments["Targets"]) for each in target_steps("g", 1, frozenset(), ids)] == [100, 1]


@pytest.mark.parametrize(
    ("has", "flags", "dual_stack", "expected"),
    [
        ("ipv4", "", True, ["dualstack"]),
        ("dualstack", "", True, []),
        ("dualstack", "d", False, ["ipv4"]),
        pytest.param("dualstack", "n", False, [], id="a-person-set-it"),
        ("ipv4", "d", False, []),
    ],
)
def test_the_address_type_follows_the_service(has, flags, dual_stack, expected):
    wanted = dataclasses.replace(want(), dual_stack=dual_stack)
    there = present(wanted, balancer={**BALANCER, "IpAddressType": has}, tags={"ccm-outoftree/flags": flags})
    made = [each for each in steps(there, wanted, IDS, {}) if each.operation == "set_ip_address_type"]
    assert [each.arguments["IpAddressType"] for each in made] == expected


@pytest.mark.parametrize(("flags", "off"), [("kn", True), ("k", False)])
def test_what_is_left_of_one_that_is_kept(flags, off):
    listeners = [{"ListenerArn": "arn:listener:80", "Port": 80}]
    made = balancer_steps.to_leave(ARN, listeners, {"ccm-outoftree/flags": flags})
    protection = ["modify_load_balancer_attributes"] if off else []
    assert [each.operation for each in made] == ["delete_listener", *protection]

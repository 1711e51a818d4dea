# SPDX-License-Identifier: Apache-2.0
"""The calls that bring a Classic Load Balancer to its desired state, and their order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.providers.aws.load_balancers.classic import load_balancer_steps
from ccm.providers.aws.load_balancers.classic.load_balancer_steps import PROXY_POLICY, Place, Present

from ...classic import CERTIFICATE, HTTP, HTTPS, PLACE, want

OTHER = CERTIFICATE.replace("0a1", "0b2")
POLICY = "ELBSecurityPolicy-TLS-1-2-2017-01"
TLS_POLICY = f"k8s-SSLNegotiationPolicy-{POLICY}"
REGISTER = "register_instances_with_load_balancer"
LISTENERS = ("delete_load_balancer_listeners", "create_load_balancer_listeners")
SET_PROXY, SET_TLS = "set_load_balancer_policies_for_backend_server", "set_load_balancer_policies_of_listener"
CREATE_POLICY = "create_load_balancer_policy"


def whole(desired: Any, ids: tuple[str, ...] = ("i-0a",), place: Place = PLACE, **changed: Any) -> dict[str, Any]:
    """Return AWS's description of a load balancer in its desired state, except for `changed`."""
    check = desired.check
    made = {
        **load_balancer_steps.created(desired, place, "web.eu-central-1.elb.amazonaws.com"),
        "Instances": [{"InstanceId": each} for each in ids],
        "HealthCheck": {
            "Target": check.target,
            "Interval": check.interval,
            "Timeout": check.timeout,
            "HealthyThreshold": check.healthy,
            "UnhealthyThreshold": check.unhealthy,
        },
    }
    if desired.proxy_protocol:
        made["Policies"] = {"OtherPolicies": [PROXY_POLICY]}
        made["BackendServerDescriptions"] = [
            {"InstancePort": each.node_port, "PolicyNames": [PROXY_POLICY]} for each in desired.listeners
        ]
    return {**made, **changed}


def calls(row: Any, desired: Any, ids: tuple[str, ...] = ("i-0a",), attributes: Any = None, place: Place = PLACE):
    present = Present(row, desired.attributes if attributes is None else attributes)
    return [(each.operation, dict(each.arguments)) for each in load_balancer_steps.steps(present, desired, place, ids)]


@pytest.mark.parametrize(
    "desired",
    [
        want(),
        want(HTTP, HTTPS, ssl_cert=CERTIFICATE, ssl_ports="443", backend_protocol="http"),
        want(proxy_protocol="*"),
        want(internal="true", healthcheck_protocol="http", healthcheck_interval="20"),
        want(access_log_enabled="true", access_log_s3_bucket_name="logs", connection_draining_enabled="true"),
    ],
)
def test_nothing_is_left_to_do_with_what_was_asked_for(desired):
    assert calls(whole(desired), desired) == []


def test_a_new_one_gets_its_check_and_its_instances():
    given = want()
    found = calls(load_balancer_steps.created(given, PLACE, "web"), given, attributes={})
    assert [operation for operation, _ in found] == ["configure_health_check", REGISTER]


def test_what_creates_it():
    assert load_balancer_steps.creation(want(HTTPS, internal="true", ssl_cert=CERTIFICATE), PLACE) == {
        "LoadBalancerName": want().name,
        "Listeners": [
            {
                "Protocol": "SSL",
                "LoadBalancerPort": 443,
                "InstanceProtocol": "TCP",
                "InstancePort": 30443,
                "SSLCertificateId": CERTIFICATE,
            }
        ],
        "Subnets": ["subnet-a", "subnet-b"],
        "SecurityGroups": ["sg-own"],
        "Scheme": "internal",
    }


def test_new_instances_come_before_old_ones_go():
    given = want()
    found = calls(whole(given, ("i-0a", "i-0b")), given, ("i-0b", "i-0c"))
    assert found == [
        (REGISTER, {"Instances": [{"InstanceId": "i-0c"}]}),
        ("deregister_instances_from_load_balancer", {"Instances": [{"InstanceId": "i-0a"}]}),
    ]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["subnet-a"], [("attach", ["subnet-b"])]),
        (["subnet-a", "subnet-b", "subnet-c"], [("detach", ["subnet-c"])]),
        # Another subnet of zone a is attached. A zone has at most one, so this subnet is detached first.
        (["subnet-a2", "subnet-b"], [("detach", ["subnet-a2"]), ("attach", ["subnet-a"])]),
        (["subnet-a2"], [("attach", ["subnet-b"]), ("detach", ["subnet-a2"]), ("attach", ["subnet-a"])]),
    ],
)
def test_subnets_follow(present, expected):
    given = want()
    found = calls(whole(given, Subnets=present), given)
    assert [(operation.partition("_")[0], arguments["Subnets"]) for operation, arguments in found] == expected


def test_security_groups_follow_and_their_order_does_not_matter():
    given, place = want(), dataclasses.replace(PLACE, groups=("sg-own", "sg-more"))
    assert calls(whole(given, place=place, SecurityGroups=["sg-more", "sg-own"]), given, place=place) == []
    found = calls(whole(given), given, place=place)
    assert found == [("apply_security_groups_to_load_balancer", {"SecurityGroups": ["sg-own", "sg-more"]})]


def test_listeners_that_differ_are_others():
    before, after = (
        want(HTTP, HTTPS),
        want(dataclasses.replace(HTTP, node_port=30081), dataclasses.replace(HTTPS, port=8443)),
    )
    found = [each for each in calls(whole(before), after) if each[0] in LISTENERS]
    assert [operation for operation, _ in found] == list(LISTENERS)
    assert found[0][1] == {"LoadBalancerPorts": [80, 443]}
    assert [each["LoadBalancerPort"] for each in found[1][1]["Listeners"]] == [80, 8443]


def test_upper_and_lower_case_of_protocols_do_not_matter():
    given = want()
    row = whole(given)
    row["ListenerDescriptions"][0]["Listener"] |= {"Protocol": "tcp", "InstanceProtocol": "tcp"}
    assert calls(row, given) == []


def test_a_certificate_changes_in_place():
    found = calls(whole(want(HTTPS, ssl_cert=CERTIFICATE)), want(HTTPS, ssl_cert=OTHER))
    arguments = {"LoadBalancerPort": 443, "SSLCertificateId": OTHER}
    assert found == [("set_load_balancer_listener_ssl_certificate", arguments)]


def test_the_proxy_protocol_is_switched_on_for_each_node_port():
    found = calls(whole(want(HTTP, HTTPS)), want(HTTP, HTTPS, proxy_protocol="*"))
    assert [operation for operation, _ in found] == [CREATE_POLICY, SET_PROXY, SET_PROXY]
    assert found[0][1]["PolicyTypeName"] == "ProxyProtocolPolicyType"
    assert [each["InstancePort"] for _, each in found[1:]] == [30080, 30443]
    assert all(each["PolicyNames"] == [PROXY_POLICY] for _, each in found[1:])


def test_the_proxy_protocol_is_switched_off_and_other_policies_stay():
    row = whole(want(proxy_protocol="*"))
    row["BackendServerDescriptions"] = [{"InstancePort": 30080, "PolicyNames": ["of-somebody", PROXY_POLICY]}]
    assert calls(row, want()) == [(SET_PROXY, {"InstancePort": 30080, "PolicyNames": ["of-somebody"]})]


def test_a_node_port_without_a_listener_loses_the_policy_that_would_stay():
    before, after = want(HTTP, HTTPS, proxy_protocol="*"), want(HTTP, proxy_protocol="*")
    found = calls(whole(before), after)
    assert found[1:] == [(SET_PROXY, {"InstancePort": 30443, "PolicyNames": []})]


def test_the_policy_of_tls_is_set_on_each_listener_that_has_another_one():
    given = want(HTTP, HTTPS, ssl_cert=CERTIFICATE, ssl_ports="443", ssl_negotiation_policy=POLICY)
    found = calls(whole(given), given)
    assert [operation for operation, _ in found] == [CREATE_POLICY, SET_TLS]
    assert found[0][1]["PolicyAttributes"] == [{"AttributeName": "Reference-Security-Policy", "AttributeValue": POLICY}]
    assert found[1][1] == {"LoadBalancerPort": 443, "PolicyNames": [TLS_POLICY]}
    row = whole(given, Policies={"OtherPolicies": [TLS_POLICY]})
    assert [operation for operation, _ in calls(row, given)] == [SET_TLS]
    row["ListenerDescriptions"][1]["PolicyNames"] = [TLS_POLICY]
    assert calls(row, given) == []


def test_a_listener_that_becomes_another_one_gets_the_policy_again():
    before = want(HTTPS, ssl_cert=CERTIFICATE, ssl_negotiation_policy=POLICY)
    row = whole(before, Policies={"OtherPolicies": [TLS_POLICY]})
    row["ListenerDescriptions"][0]["PolicyNames"] = [TLS_POLICY]
    after = want(HTTPS, ssl_cert=CERTIFICATE, ssl_negotiation_policy=POLICY, backend_protocol="ssl")
    assert [operation for operation, _ in calls(row, after)][:3] == [*LISTENERS, SET_TLS]


@pytest.mark.parametrize(
    ("annotations", "present", "changed"),
    [
        ({"connection_idle_timeout": "61"}, {}, {"ConnectionSettings": {"IdleTimeout": 61}}),
        ({"cross_zone_load_balancing_enabled": "true"}, {}, {"CrossZoneLoadBalancing": {"Enabled": True}}),
        ({}, {"CrossZoneLoadBalancing": {"Enabled": True}}, {"CrossZoneLoadBalancing": {"Enabled": False}}),
        # Values of a disabled attribute do not count.
        ({}, {"ConnectionDraining": {"Enabled": False, "Timeout": 20}}, None),
        ({}, {"AccessLog": {"Enabled": False, "S3BucketName": "logs"}}, None),
        ({}, {"AdditionalAttributes": [{"Key": "elb.http.desyncmitigationmode", "Value": "defensive"}]}, None),
        ({"connection_draining_enabled": "true"}, {"ConnectionDraining": {"Enabled": True, "Timeout": 300}}, None),
        # The annotation was removed, so the default applies again.
        (
            {"connection_draining_enabled": "true"},
            {"ConnectionDraining": {"Enabled": True, "Timeout": 20}},
            {"ConnectionDraining": {"Enabled": True, "Timeout": 300}},
        ),
    ],
)
def test_attributes_follow(annotations, present, changed):
    given = want(**annotations)
    found = calls(whole(given), given, attributes=present)
    if changed is None:
        assert found == []
        return
    ((operation, arguments),) = found
    assert operation == "modify_load_balancer_attributes"
    assert {key: arguments["LoadBalancerAttributes"][key] for key in changed} == changed


def test_the_health_check_follows():
    given = want(healthcheck_interval="20")
    found = calls(whole(want()), given)
    assert [operation for operation, _ in found] == ["configure_health_check"]
    assert found[0][1]["HealthCheck"]["Interval"] == 20

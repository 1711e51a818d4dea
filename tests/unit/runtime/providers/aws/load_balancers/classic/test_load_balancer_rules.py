# SPDX-License-Identifier: Apache-2.0
"""The desired Classic Load Balancer of a Service, from annotations and cloud.conf as cloud-provider-aws reads them."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Invalid, Port
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as rules
from ccm.providers.aws.load_balancers.classic.load_balancer_rules import Check, Listener
from ccm.providers.aws.settings_sections import Global

from ...classic import CERTIFICATE, HTTP, HTTPS, spec, want
from ...rows import NAME

SHARED = {
    "clusterserviceloadbalancerhealthprobemode": "Shared",
    "clusterservicesharedloadbalancerhealthprobeport": 10257,
    "clusterservicesharedloadbalancerhealthprobepath": "/livez",
}
LOCAL = {"external_traffic_policy": "Local", "health_check_node_port": 32000}


def test_a_plain_service():
    found = want()
    assert (found.name, found.internal, found.clients, found.warnings) == (NAME, False, ("0.0.0.0/0",), ())
    assert found.own_group == f"k8s-elb-{NAME}"
    assert found.tags == {"kubernetes.io/service-name": "default/web", "kubernetes.io/cluster/kube": "owned"}
    assert found.attributes == {
        "AccessLog": {"Enabled": False},
        "ConnectionDraining": {"Enabled": False},
        "ConnectionSettings": {"IdleTimeout": 60},
        "CrossZoneLoadBalancing": {"Enabled": False},
    }
    assert found.listeners == (Listener(80, "TCP", 30080, "TCP"),)
    assert found.check == Check("TCP:30080", 10, 5, 2, 6)
    assert (found.groups, found.extra, found.subnets, found.policy, found.proxy_protocol) == ((), (), (), "", False)


@pytest.mark.parametrize(
    ("annotations", "protocols"),
    [
        ({}, ("TCP", "TCP", "")),
        ({"backend-protocol": "http"}, ("HTTP", "HTTP", "")),
        ({"backend-protocol": "https"}, ("TCP", "TCP", "")),
        ({"backend-protocol": "ssl"}, ("TCP", "TCP", "")),
        ({"ssl-cert": CERTIFICATE}, ("SSL", "TCP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "backend-protocol": "tcp"}, ("SSL", "TCP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "backend-protocol": "ssl"}, ("SSL", "SSL", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "backend-protocol": "http"}, ("HTTPS", "HTTP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "backend-protocol": "https"}, ("HTTPS", "HTTPS", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "ssl-ports": "*"}, ("SSL", "TCP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "ssl-ports": "443"}, ("SSL", "TCP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "ssl-ports": "https"}, ("SSL", "TCP", CERTIFICATE)),
        ({"ssl-cert": CERTIFICATE, "ssl-ports": "80,http"}, ("TCP", "TCP", "")),
        ({"ssl-cert": CERTIFICATE, "ssl-ports": "80", "backend-protocol": "http"}, ("HTTP", "HTTP", "")),
    ],
)
def test_the_protocols_of_a_port(annotations, protocols):
    found = want(HTTPS, **{name.replace("-", "_"): text for name, text in annotations.items()})
    client, node, certificate = protocols
    assert found.listeners == (Listener(443, client, 30443, node, certificate),)
    assert found.listeners[0].has_tls == bool(certificate)


@pytest.mark.parametrize(
    ("annotations", "service", "common", "target"),
    [
        ({}, {}, {}, "TCP:30080"),
        ({"backend-protocol": "http"}, {}, {}, "TCP:30080"),
        ({"backend-protocol": "ssl"}, {}, {}, "SSL:30080"),
        ({"backend-protocol": "https"}, {}, {}, "SSL:30080"),
        ({"healthcheck-protocol": "http"}, {}, {}, "HTTP:30080/"),
        ({"healthcheck-protocol": "https", "healthcheck-path": "/up"}, {}, {}, "HTTPS:30080/up"),
        ({"healthcheck-path": "/up"}, {}, {}, "TCP:30080"),
        ({"healthcheck-port": "8080"}, {}, {}, "TCP:8080"),
        ({"healthcheck-port": "traffic-port"}, {}, {}, "TCP:30080"),
        ({}, LOCAL, {}, "HTTP:32000/healthz"),
        ({"backend-protocol": "https"}, LOCAL, {}, "HTTP:32000/healthz"),
        ({"healthcheck-port": "traffic-port"}, LOCAL, {}, "HTTP:30080/healthz"),
        ({"healthcheck-port": "8080", "healthcheck-protocol": "tcp"}, LOCAL, {}, "TCP:8080"),
        ({}, {}, SHARED, "HTTP:10257/livez"),
        ({"backend-protocol": "ssl"}, {}, SHARED, "HTTP:10257/livez"),
        ({"healthcheck-port": "traffic-port"}, {}, SHARED, "HTTP:10257/livez"),
        ({"healthcheck-port": "8080", "healthcheck-path": "/up"}, {}, SHARED, "HTTP:8080/up"),
        ({}, LOCAL, SHARED, "HTTP:32000/healthz"),
    ],
)
def test_the_target_of_the_health_check(annotations, service, common, target):
    found = rules.desired_state(spec(HTTP, HTTPS, annotations=annotations, **service), Global(**common), "kube")
    assert found.check == Check(target, 10, 5, 2, 6)


def test_the_numbers_of_the_health_check():
    found = want(
        healthcheck_interval="30",
        healthcheck_timeout="6",
        healthcheck_healthy_threshold="4",
        healthcheck_unhealthy_threshold="3",
    )
    assert found.check == Check("TCP:30080", 30, 6, 4, 3)


def test_attributes_have_what_annotations_name():
    found = want(
        access_log_enabled="true",
        access_log_emit_interval="5",
        access_log_s3_bucket_name="logs",
        access_log_s3_bucket_prefix="web",
        connection_draining_enabled="true",
        connection_draining_timeout="20",
        connection_idle_timeout="90",
        cross_zone_load_balancing_enabled="true",
    )
    assert found.attributes == {
        "AccessLog": {"Enabled": True, "EmitInterval": 5, "S3BucketName": "logs", "S3BucketPrefix": "web"},
        "ConnectionDraining": {"Enabled": True, "Timeout": 20},
        "ConnectionSettings": {"IdleTimeout": 90},
        "CrossZoneLoadBalancing": {"Enabled": True},
    }


@pytest.mark.parametrize(
    ("annotations", "common", "groups", "extra"),
    [
        ({}, {}, (), ()),
        ({"extra_security_groups": "sg-0e, sg-0f"}, {}, (), ("sg-0e", "sg-0f")),
        ({"security_groups": "sg-0b,sg-0a"}, {}, ("sg-0b", "sg-0a"), ()),
        ({}, {"elbsecuritygroup": "sg-0c"}, ("sg-0c",), ()),
        ({"security_groups": "sg-0b", "extra_security_groups": "sg-0e"}, {"elbsecuritygroup": "sg-0c"},
         ("sg-0b",), ("sg-0e",)),
    ],
)  # fmt: skip
def test_security_groups(annotations, common, groups, extra):
    found = want(common=common, **annotations)
    assert (found.groups, found.extra) == (groups, extra)


def test_ranges_stay_as_they_are():
    found = rules.desired_state(spec(source_ranges=("192.0.2.0/24", "0.0.0.0/0", "::/0")), Global(), "kube")
    assert found.clients == ("0.0.0.0/0", "192.0.2.0/24")


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (spec(Port("", "UDP", 80, 30080)), "forwards TCP, not UDP: a Network Load Balancer also"),
        (spec(HTTP, Port("", "SCTP", 81, 30081)), "not SCTP"),
        (spec(Port("", "TCP", 80, 0)), "spec.allocateLoadBalancerNodePorts"),
        (spec(session_affinity="ClientIP"), "spec.sessionAffinity"),
        (spec(load_balancer_ip="203.0.113.7"), "spec.loadBalancerIP"),
        (spec(source_ranges=("2001:db8::/32",)), "no IPv4 range"),
        (
            spec(source_ranges=("192.0.2.0/24",), annotations={"security-groups": "sg-0a"}),
            "sg-0a are not changed, so nothing would apply the ranges",
        ),
        (spec(annotations={"healthcheck-timeout": "10"}), "10 s is not less than the interval 10 s"),
        (spec(annotations={"healthcheck-interval": "5"}), "5 s is not less than the interval 5 s"),
        (spec(annotations={"access-log-enabled": "true"}), "access-log-s3-bucket-name is missing"),
        (spec(annotations={"proxy-protocol": "80"}), "proxy-protocol: '80' is not"),
        (spec(annotations={"access-log-emit-interval": "7"}), "access-log-emit-interval: '7' is not 5 or 60"),
        (spec(annotations={"connection-idle-timeout": "0"}), "connection-idle-timeout: '0' is not"),
        (spec(annotations={"connection-draining-timeout": "3601"}), "connection-draining-timeout: '3601' is not"),
        (spec(annotations={"security-groups": "default"}), "security-groups: 'default' is not"),
        (spec(annotations={"target-group-attributes": "a=b"}), "has no target groups"),
        (spec(annotations={"proxy-protcol": "*"}), "proxy-protcol: unknown"),
    ],
)
def test_what_cannot_be_served_is_refused(service, message):
    with pytest.raises(Invalid, match=message):
        rules.desired_state(service, Global(), "kube")


def test_the_open_range_counts_with_groups_of_others():
    given = spec(source_ranges=("0.0.0.0/0", "192.0.2.0/24"), annotations={"security-groups": "sg-0a"})
    assert rules.desired_state(given, Global(), "kube").groups == ("sg-0a",)


def test_for_a_change_of_nodes_it_does_not_matter_whether_the_rest_is_possible():
    assert rules.desired_state(spec(session_affinity="ClientIP"), Global(), "kube", nodes_only=True).name == NAME


def test_annotations_without_effect_are_reported():
    found = want(eip_allocations="eipalloc-0a", private_ipv4_addresses="10.0.0.9", nlb_target_type="ip", type="clb")
    assert ["eip" in each or "private" in each or "nlb-target" in each or "clb" in each for each in found.warnings] == [
        True
    ] * 4


@pytest.mark.parametrize(
    "changed",
    [
        {"ports": (HTTP, HTTPS)},
        {"ports": (dataclasses.replace(HTTP, node_port=30081),)},
        {"source_ranges": ("192.0.2.0/24",)},
        {"annotations": {"proxy-protocol": "*"}},
        {"annotations": {"subnets": "subnet-0a"}},
        {"annotations": {"extra-security-groups": "sg-0a"}},
        {"annotations": {"ssl-negotiation-policy": "ELBSecurityPolicy-TLS-1-2-2017-01"}},
        {"annotations": {"connection-idle-timeout": "61"}},
        {"annotations": {"target-node-labels": "side=left"}},
    ],
)
def test_the_digest_covers_what_is_asked_for(changed):
    ports = changed.pop("ports", ())
    assert rules.desired_state(spec(*ports, **changed), Global(), "kube").digest != want().digest

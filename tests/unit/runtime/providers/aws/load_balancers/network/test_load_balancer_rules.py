# SPDX-License-Identifier: Apache-2.0
"""The desired load balancer of a Service, from annotations and cloud.conf as cloud-provider-aws reads them."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.cloud import Backends, Invalid, Port
from ccm.providers.aws.load_balancers.network import load_balancer_rules as rules
from ccm.providers.aws.load_balancers.network.load_balancer_rules import Check
from ccm.providers.aws.load_balancers.shared import target_rules as targets
from ccm.providers.aws.settings_sections import Global

from ...rows import NAME, backend, spec, want

CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0a1"
HTTPS, HTTP = Port("https", "TCP", 443, 30443), Port("http", "TCP", 80, 30080)


def test_a_plain_service():
    found = want()
    assert (found.name, found.internal, found.clients, found.warnings) == (NAME, False, ("0.0.0.0/0",), ())
    assert found.tags == {"kubernetes.io/service-name": "default/web", "kubernetes.io/cluster/kube": "owned"}
    assert found.attributes == {"load_balancing.cross_zone.enabled": "false", "access_logs.s3.enabled": "false"}
    (listener,) = found.listeners
    assert (listener.port, listener.protocol, listener.node_port, listener.group_protocol) == (80, "TCP", 30080, "TCP")
    assert listener.check == Check("TCP", "traffic-port", "", 30, 3, 3)
    assert (found.client_protocol, found.traffic_ports, found.check_ports) == ("tcp", {30080}, {30080})


def test_a_cluster_with_the_older_tag_writes_both_as_the_original_does():
    both = {"KubernetesCluster": "kube", "kubernetes.io/cluster/kube": "owned"}
    assert want(kubernetesclustertag="kube").tags == {"kubernetes.io/service-name": "default/web", **both}


def test_the_name_of_a_target_group_is_that_of_the_original():
    # sha1("kube" "default" "web" "80" "30080" "TCP" "instance" "TCP" "30")
    assert want().listeners[0].group == "k8s-default-web-45e1aa9fad"


@pytest.mark.parametrize(
    "changed",
    [
        {"namespace": "other"},
        {"name": "other"},
        {"ports": (Port("http", "TCP", 81, 30080),)},
        {"ports": (Port("http", "TCP", 80, 30081),)},
        {"ports": (Port("http", "UDP", 80, 30080),)},
        {"annotations": {"healthcheck-protocol": "http"}},
        {"annotations": {"healthcheck-interval": "10"}},
    ],
)
def test_the_name_of_a_target_group_changes_with_what_cannot_change_in_place(changed):
    ports = changed.pop("ports", ())
    assert want(spec(*ports, **changed)).listeners[0].group != want().listeners[0].group


def test_names_have_letters_and_digits_of_namespace_and_service_only():
    found = want(spec(namespace="my-namespace", name="w.e-b-service-1")).listeners[0].group
    assert found.startswith("k8s-mynamesp-webservi-")
    assert len(found) == 32


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (spec(Port("", "SCTP", 80, 30080)), "not SCTP"),
        (spec(HTTP, Port("", "UDP", 81, 30081)), "TCP or UDP, not both"),
        (spec(Port("", "TCP", 80, 0)), "spec.allocateLoadBalancerNodePorts"),
        (spec(session_affinity="ClientIP"), "spec.sessionAffinity"),
        (spec(load_balancer_ip="203.0.113.7"), "spec.loadBalancerIP"),
        (spec(source_ranges=("2001:db8::/32",)), "no IPv4 range"),
        (
            spec(source_ranges=("192.0.2.0/24",), annotations={"ssl-cert": CERTIFICATE}),
            "with TLS, Nodes do not see the addresses",
        ),
        (
            spec(
                source_ranges=("192.0.2.0/24",),
                annotations={"target-group-attributes": "preserve_client_ip.enabled=false"},
            ),
            "with preserve_client_ip.enabled=false, Nodes do not see",
        ),
        (
            spec(
                Port("", "UDP", 53, 30053),
                annotations={"target-group-attributes": "preserve_client_ip.enabled=false"},
            ),
            "always on for UDP",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(service, message):
    with pytest.raises(Invalid, match=message):
        want(service)
    assert rules.desired_state(service, Global(), "kube", nodes_only=True).name == NAME


def test_ranges_need_rules_that_apply_them():
    given = spec(source_ranges=("192.0.2.0/24", "198.51.100.0/24"))
    assert want(given).clients == ("192.0.2.0/24", "198.51.100.0/24")
    with pytest.raises(Invalid, match="DisableSecurityGroupIngress"):
        want(given, disablesecuritygroupingress=True)
    assert want(spec(source_ranges=("0.0.0.0/0", "192.0.2.0/24")), disablesecuritygroupingress=True).clients == (
        "0.0.0.0/0",
    )


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, ["TLS", "TLS"]), ("*", ["TLS", "TLS"]), ("443", ["TLS", "TCP"]), ("https,81", ["TLS", "TCP"])],
)
def test_which_ports_have_tls(chosen, expected):
    annotations = {"ssl-cert": CERTIFICATE, "ssl-negotiation-policy": "strict", "ssl-ports": chosen}
    found = want(spec(HTTPS, HTTP, annotations=annotations)).listeners
    assert [each.protocol for each in found] == expected
    assert [each.certificate for each in found] == [CERTIFICATE if each == "TLS" else "" for each in expected]
    assert [each.group_protocol for each in found] == ["TCP", "TCP"]
    assert found[0].policy == "strict"


def test_targets_get_tls_only_if_asked_for():
    found = want(spec(HTTPS, annotations={"ssl-cert": CERTIFICATE, "backend-protocol": "ssl"})).listeners
    assert [each.group_protocol for each in found] == ["TLS"]
    udp = want(spec(Port("", "UDP", 53, 30053), annotations={"ssl-cert": CERTIFICATE}))
    assert (udp.listeners[0].protocol, udp.client_protocol) == ("UDP", "udp")


LOCAL = {"external_traffic_policy": "Local", "health_check_node_port": 32000}
SHARED = {"clusterserviceloadbalancerhealthprobemode": "Shared"}


@pytest.mark.parametrize(
    ("annotations", "fields", "common", "expected"),
    [
        ({}, LOCAL, {}, Check("HTTP", "32000", "/healthz", 10, 2, 2)),
        ({"healthcheck-protocol": "tcp"}, LOCAL, {}, Check("TCP", "32000", "", 10, 2, 2)),
        ({"healthcheck-protocol": "http"}, {}, {}, Check("HTTP", "traffic-port", "/", 30, 3, 3)),
        (
            {"healthcheck-protocol": "https", "healthcheck-path": "/ok", "healthcheck-port": "8443"},
            {},
            {},
            Check("HTTPS", "8443", "/ok", 30, 3, 3),
        ),
        (
            {
                "healthcheck-interval": "10",
                "healthcheck-healthy-threshold": "5",
                "healthcheck-unhealthy-threshold": "6",
            },
            {},
            {},
            Check("TCP", "traffic-port", "", 10, 5, 6),
        ),
        ({}, {}, SHARED, Check("HTTP", "10256", "/healthz", 30, 3, 3)),
        ({"healthcheck-protocol": "tcp", "healthcheck-port": "1"}, {}, SHARED, Check("HTTP", "10256", "/healthz")),
        (
            {},
            {},
            {
                **SHARED,
                "clusterservicesharedloadbalancerhealthprobeport": 99,
                "clusterservicesharedloadbalancerhealthprobepath": "/x",
            },
            Check("HTTP", "99", "/x"),
        ),
        ({}, LOCAL, SHARED, Check("HTTP", "32000", "/healthz", 10, 2, 2)),
    ],
)
def test_health_checks(annotations, fields, common, expected):
    found = want(spec(annotations=annotations, **fields), **common)
    assert found.listeners[0].check == expected
    assert found.check_ports == {30080 if expected.port == "traffic-port" else int(expected.port)}


def test_a_log_needs_its_bucket():
    annotations = {"access-log-s3-bucket-name": "logs", "access-log-s3-bucket-prefix": "kube"}
    assert want(spec(annotations=annotations)).attributes == want().attributes
    assert want(spec(annotations={**annotations, "access-log-enabled": "true"})).attributes == {
        "load_balancing.cross_zone.enabled": "false",
        "access_logs.s3.enabled": "true",
        "access_logs.s3.bucket": "logs",
        "access_logs.s3.prefix": "kube",
    }
    with pytest.raises(Invalid, match="access-log-s3-bucket-name is missing"):
        want(spec(annotations={"access-log-enabled": "true", "access-log-s3-bucket-prefix": "kube"}))


def test_the_digest_covers_what_is_written_and_what_only_a_new_one_gets():
    for other in (
        spec(annotations={"subnets": "subnet-1"}),
        spec(annotations={"eip-allocations": "eipalloc-1"}),
        spec(annotations={"private-ipv4-addresses": "10.0.0.9"}),
        spec(annotations={"internal": "true"}),
        spec(annotations={"additional-resource-tags": "a=b"}),
        spec(annotations={"cross-zone-load-balancing-enabled": "true"}),
        spec(annotations={"target-group-attributes": "proxy_protocol_v2.enabled=true"}),
        spec(annotations={"healthcheck-healthy-threshold": "5"}),
        spec(source_ranges=("192.0.2.0/24",)),
    ):
        assert want(other).digest != want().digest
    assert len(want().digest) == 24


def test_targets_are_instances_of_nodes_that_confirm_addresses_and_have_the_labels():
    found = dataclasses.replace(want(), nodes={"pool": "web", "fast": None})
    good = backend("i-0b", pool="web", fast="yes")
    backends = [
        good,
        backend("i-0a", pool="web", fast=""),
        backend("i-0c", pool="db", fast=""),
        backend("i-0d", pool="web"),
        backend("i-0e", addresses=(), pool="web", fast=""),
        dataclasses.replace(good, provider_id="hcloud://1"),
    ]
    assert targets.ids(found, backends) == ("i-0a", "i-0b")
    assert targets.ids(want(), backends) == ("i-0a", "i-0b", "i-0c", "i-0d")


def test_nodes_that_drain_are_deregistered_unless_all_are():
    one, two = (dataclasses.replace(backend(id_, pool=id_), draining=id_ == "i-0a") for id_ in ("i-0a", "i-0b"))
    assert targets.ids(want(), [one, two]) == ("i-0b",)
    assert targets.ids(want(), [one]) == ("i-0a",)
    assert targets.ids(dataclasses.replace(want(), nodes={"pool": "i-0a"}), [one, two]) == ("i-0a",)


def test_the_digest_of_targets_is_that_of_the_selected_ones():
    one, other = dataclasses.replace(want(), nodes={"pool": "web"}), want()
    backends = Backends([backend("i-0a", pool="web"), backend("i-0b")])
    assert targets.digest_of(one, backends) != targets.digest_of(other, backends)
    assert targets.digest_of(one, backends) == targets.digest_of(other, Backends(backends[:1]))


def test_targets_that_go_and_come_are_computed_once_for_all_services():
    backends = Backends([backend("i-0a")])
    found = targets.changed(("i-0a", "i-0b"), ("i-0a", "i-0c"), backends)
    assert found == (("i-0b",), ("i-0c",))
    assert targets.changed(("i-0a", "i-0b"), ("i-0a", "i-0c"), backends) is found
    assert targets.changed((), ("i-0a",), backends) == ((), ("i-0a",))


UDP = Port("dns", "UDP", 53, 30053)
BOTH = ("IPv4", "IPv6")


@pytest.mark.parametrize(
    ("more", "dual_stack", "warning"),
    [
        ({}, False, ""),
        ({"ip_families": BOTH}, True, ""),
        ({"ip_families": BOTH, "source_ranges": ("::/0", "0.0.0.0/0")}, True, ""),
        ({"ip_families": BOTH, "source_ranges": ("0.0.0.0/0",)}, False, "would apply loadBalancerSourceRanges to them"),
        ({"ip_families": BOTH, "source_ranges": ("192.0.2.0/24", "::/0")}, False, "would apply"),
        ({"ip_families": BOTH, "ports": (UDP,)}, False, "does not translate UDP"),
        ({"source_ranges": ("192.0.2.0/24", "2001:db8::/32")}, False, "IPv6 ranges admit nobody"),
    ],
)
def test_both_families_unless_something_would_go_wrong(more, dual_stack, warning):
    found = want(spec(**more))
    assert found.dual_stack is dual_stack
    assert bool(found.warnings) is bool(warning) and all(warning in each for each in found.warnings[:1])


def test_subnets_without_ipv6():
    def subnet(id, state=""):
        blocks = [{"Ipv6CidrBlock": "2001:db8::/64", "Ipv6CidrBlockState": {"State": state}}] if state else []
        return {"SubnetId": id, "Ipv6CidrBlockAssociationSet": blocks}

    rows = [subnet("a", "associated"), subnet("b"), subnet("c", "disassociated"), {"SubnetId": "d"}]
    assert rules.without_ipv6(["c", "a", "b"], rows) == ["b", "c"]
    assert rules.without_ipv6(["a"], rows) == [] and rules.without_ipv6(["d"], rows) == ["d"]
    assert rules.no_ipv6_in([]) == ()

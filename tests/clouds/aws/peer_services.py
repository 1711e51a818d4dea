# SPDX-License-Identifier: Apache-2.0
"""The Services that cloud-provider-aws and this provider serve one after the other, and how the results may differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.providers.aws.annotations import PREFIX
from tests.comparison.differences import Difference

SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
CERTIFICATE = "arn:aws:iam::123456789012:server-certificate/web"
POLICY = "ELBSecurityPolicy-TLS13-1-2-2021-06"
LOCAL = {"externalTrafficPolicy": "Local"}

HTTP: tuple[int, str] = (80, "TCP")
HTTPS: tuple[int, str] = (443, "TCP")
DNS: tuple[int, str] = (53, "UDP")


@dataclass(frozen=True)
class Case:
    """A Service. `ports`: number and protocol. `annotations`: a key without "/" gets the prefix; {NAME} in a value is
    replaced by the account's ID of that name. `is_left`: neither controller serves the Service."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    ports: Sequence[tuple[int, str]] = (HTTP,)
    spec: Mapping[str, Any] = field(default_factory=dict)
    is_left: bool = False


@dataclass(frozen=True)
class Table:
    """A table of Services. `conf`: lines of Global, with {names} of the account. `cluster`: the key in [Global] for the
    cluster's name. `type_`: the type annotation of Services without their own, "" for no annotation."""

    cases: Mapping[str, Case]
    conf: str = ""
    cluster: str = "KubernetesClusterID"
    type_: str = "nlb"


CHECK = {
    "healthcheck-protocol": "HTTP",
    "healthcheck-port": "8080",
    "healthcheck-path": "/ready",
    "healthcheck-interval": "10",
    "healthcheck-timeout": "6",
    "healthcheck-healthy-threshold": "4",
    "healthcheck-unhealthy-threshold": "5",
}
LOGS = {
    "access-log-enabled": "true",
    "access-log-s3-bucket-name": "logs",
    "access-log-s3-bucket-prefix": "web",
}

SHARED = """ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 10257
ClusterServiceSharedLoadBalancerHealthProbePath = /livez
"""

ROUND_TRIP = {"backend-protocol": "https", "ssl-cert": CERTIFICATE}
OLDER_POLICY = "ELBSecurityPolicy-TLS-1-2-2017-01"
#: There are several tables, because a security group has at most 60 rules, and some Services need another cloud.conf.
TABLES = {
    "ports and ranges": Table(
        {
            "plain": Case(),
            "a-name-of-many-letters": Case(),
            "internal": Case({"internal": "true"}),
            "internal-by-any-text": Case({"internal": "0.0.0.0/0"}),
            "not-internal": Case({"internal": "false"}),
            "ports": Case(ports=[HTTP, HTTPS, (8443, "TCP")]),
            "udp": Case(ports=[DNS, (123, "UDP")]),
            "ranges": Case(spec={"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}),
            "ranges-annotated": Case({SOURCE_RANGES: "203.0.113.0/24"}, [HTTP, HTTPS]),
            "ranges-udp": Case(ports=[DNS], spec={"loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            "ranges-open": Case(spec={"loadBalancerSourceRanges": ["0.0.0.0/0", "192.0.2.0/24"]}),
            "local": Case(spec={**LOCAL, "healthCheckNodePort": 32000}),
            "local-udp": Case(ports=[DNS], spec={**LOCAL, "healthCheckNodePort": 32001}),
            "local-checked": Case(
                {"healthcheck-protocol": "tcp", "healthcheck-port": "traffic-port"},
                spec={**LOCAL, "healthCheckNodePort": 32002},
            ),
        }
    ),
    "annotations": Table(
        {
            "cross-zone": Case({"cross-zone-load-balancing-enabled": "true"}),
            "logs": Case(LOGS),
            "logs-off": Case({**LOGS, "access-log-enabled": "false"}),
            "proxy-protocol": Case({"target-group-attributes": "proxy_protocol_v2.enabled=true"}, [HTTP, HTTPS]),
            "without-client-addresses": Case({"target-group-attributes": "preserve_client_ip.enabled=false"}),
            "checked": Case(CHECK, [HTTP, HTTPS]),
            "checked-by-https": Case({"healthcheck-protocol": "https", "healthcheck-port": "8443"}),
            "tls": Case({"ssl-cert": CERTIFICATE}),
            "tls-of-one": Case(
                {
                    "ssl-cert": CERTIFICATE,
                    "ssl-ports": "443",
                    "ssl-negotiation-policy": POLICY,
                    "backend-protocol": "ssl",
                },
                [HTTP, HTTPS],
            ),
            "tls-by-name": Case({"ssl-cert": CERTIFICATE, "ssl-ports": "tcp-443"}, [HTTP, HTTPS]),
            "tagged": Case({"additional-resource-tags": "team=a,stage=,owner"}),
            "labelled": Case({"target-node-labels": "side=left"}),
            "subnets": Case({"subnets": "{public-b}"}),
            "subnets-by-name": Case({"subnets": "inside-a,inside-b", "internal": "true"}),
            "addresses": Case({"subnets": "{public-a}", "private-ipv4-addresses": "10.0.0.99"}),
            "elastic-addresses": Case({"eip-allocations": "{address-a},{address-b}"}),
            "of-classic-ones": Case(
                {"proxy-protocol": "*", "connection-idle-timeout": "60", "connection-draining-enabled": "true"}
            ),
            "external": Case({"type": "external"}, is_left=True),
            "by-addresses": Case({"type": "nlb-ip"}, is_left=True),
            "another-class": Case(spec={"loadBalancerClass": "example.com/another"}, is_left=True),
        }
    ),
    "checks of kube-proxy": Table(
        {"shared": Case(ports=[HTTP, HTTPS]), "shared-local": Case(spec={**LOCAL, "healthCheckNodePort": 32003})},
        SHARED,
    ),
    # In a table of its own, because a rule that several load balancers need is described with the name of only one.
    "checks of kube-proxy for UDP": Table({"shared-udp": Case(ports=[DNS])}, SHARED),
    "checks of kube-proxy, annotated": Table({"shared-annotated": Case(CHECK)}, SHARED),
    "rules of others": Table(
        {"unopened": Case(), "unopened-udp": Case(ports=[DNS])}, "DisableSecurityGroupIngress = true"
    ),
    "the older tag": Table({"legacy": Case({"additional-resource-tags": "team=a"})}, cluster="KubernetesClusterTag"),
    "classic": Table(
        {
            "classic-plain": Case(),
            "classic-a-name-of-many-letters": Case(),
            "classic-internal": Case({"internal": "true"}),
            "classic-ports": Case(ports=[HTTP, HTTPS, (8443, "TCP")]),
            "classic-ranges": Case(spec={"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]}),
            "classic-ranges-annotated": Case({SOURCE_RANGES: "203.0.113.0/24"}, [HTTP, HTTPS]),
            "classic-ranges-open": Case(spec={"loadBalancerSourceRanges": ["0.0.0.0/0", "192.0.2.0/24"]}),
            "classic-local": Case(spec={**LOCAL, "healthCheckNodePort": 32000}),
            "classic-local-checked": Case(
                {"healthcheck-protocol": "TCP", "healthcheck-port": "traffic-port"},
                spec={**LOCAL, "healthCheckNodePort": 32001},
            ),
            "classic-checked": Case(CHECK, [HTTP, HTTPS]),
            "classic-checked-by-path": Case({"healthcheck-protocol": "HTTP", "healthcheck-port": "8080"}),
            "classic-tls": Case({"ssl-cert": CERTIFICATE}),
            "classic-tls-of-one": Case(
                {"ssl-cert": CERTIFICATE, "ssl-ports": "443", "ssl-negotiation-policy": OLDER_POLICY}, [HTTP, HTTPS]
            ),
            "classic-tls-by-name": Case({"ssl-cert": CERTIFICATE, "ssl-ports": "tcp-443"}, [HTTP, HTTPS]),
            "classic-tls-everywhere": Case(ROUND_TRIP, [HTTPS]),
            "classic-tls-to-http": Case({**ROUND_TRIP, "backend-protocol": "http", "ssl-ports": "443"}, [HTTP, HTTPS]),
            "classic-http": Case({"backend-protocol": "http"}),
            "classic-proxy-protocol": Case({"proxy-protocol": "*"}, [HTTP, HTTPS]),
        },
        type_="",
    ),
    "classic, annotations": Table(
        {
            "classic-cross-zone": Case({"cross-zone-load-balancing-enabled": "true"}),
            "classic-draining": Case({"connection-draining-enabled": "true", "connection-draining-timeout": "20"}),
            "classic-draining-as-usual": Case({"connection-draining-enabled": "true"}),
            "classic-idle": Case({"connection-idle-timeout": "90"}),
            "classic-logs": Case({**LOGS, "access-log-emit-interval": "5"}),
            "classic-logs-off": Case({"access-log-enabled": "false"}),
            "classic-tagged": Case({"additional-resource-tags": "team=a,stage=,owner"}),
            "classic-labelled": Case({"target-node-labels": "side=left"}),
            "classic-subnets": Case({"subnets": "{public-b}"}),
            "classic-subnets-by-name": Case({"subnets": "inside-a,inside-b", "internal": "true"}),
            "classic-groups": Case({"security-groups": "{borrowed}"}),
            "classic-more-groups": Case({"extra-security-groups": "{extra}"}),
            "classic-of-network-ones": Case({"eip-allocations": "{address-a}"}),
            "classic-by-another-text": Case({"type": "clb"}),
        },
        type_="",
    ),
    "classic, checks of kube-proxy": Table(
        {
            "classic-shared": Case(ports=[HTTP, HTTPS]),
            "classic-shared-local": Case(spec={**LOCAL, "healthCheckNodePort": 32003}),
            "classic-shared-annotated": Case(CHECK),
        },
        SHARED,
        type_="",
    ),
    "classic, rules of others": Table({"classic-unopened": Case()}, "DisableSecurityGroupIngress = true", type_=""),
    "classic, a group of the configuration": Table(
        {"classic-borrowing": Case()}, "ElbSecurityGroup = {borrowed}", type_=""
    ),
    "classic, the older tag": Table({"classic-legacy": Case()}, cluster="KubernetesClusterTag", type_=""),
}
CLASSIC = {"type": "classic"}
#: Services that both controllers refuse.
REFUSED = {
    "mixed": Case(ports=[HTTP, DNS]),
    "sticky": Case(spec={"sessionAffinity": "ClientIP"}),
    "at-an-address": Case(spec={"loadBalancerIP": "203.0.113.7"}),
    "more-groups": Case({"extra-security-groups": "sg-0a1"}),
    "attributes": Case({"target-group-attributes": "stickiness.enabled=true"}),
    "udp-without-client-addresses": Case({"target-group-attributes": "preserve_client_ip.enabled=false"}, [DNS]),
    "no-such-subnet": Case({"subnets": "subnet-0a1b2c3d"}),
    "too-few-addresses": Case({"private-ipv4-addresses": "10.0.0.99"}),
    "check": Case({"healthcheck-protocol": "ftp"}),
    "classic-udp": Case(CLASSIC, ports=[DNS]),
    "classic-mixed": Case(CLASSIC, ports=[HTTP, DNS]),
    "classic-sticky": Case(CLASSIC, spec={"sessionAffinity": "ClientIP"}),
    "classic-at-an-address": Case(CLASSIC, spec={"loadBalancerIP": "203.0.113.7"}),
    "classic-one-proxy-protocol": Case({**CLASSIC, "proxy-protocol": "80"}),
    "classic-attributes": Case({**CLASSIC, "target-group-attributes": "proxy_protocol_v2.enabled=true"}),
    "classic-no-such-subnet": Case({**CLASSIC, "subnets": "subnet-0a1b2c3d"}),
    "classic-draining": Case({**CLASSIC, "connection-draining-timeout": "soon"}),
    "classic-cross-zone": Case({**CLASSIC, "cross-zone-load-balancing-enabled": "perhaps"}),
}

DIFFERENCES = (
    Difference(
        "Tags",
        (
            "load balancer: tags ccm-outoftree/...",
            "target group *: tags ccm-outoftree/...",
            "Classic Load Balancer: tags ccm-outoftree/...",
        ),
        by_ours=True,
    ),
    Difference("Tags of listeners", ("listener *: tags ccm-outoftree/...",)),
    Difference(
        "Source ranges beside `0.0.0.0/0`", ("rules of *: rules",), ("ranges-open",), by_ours=True, by_theirs=True
    ),
    Difference(
        "The same, of a Classic Load Balancer",
        ("Classic Load Balancer: ranges",),
        ("classic-ranges-open",),
        by_ours=True,
        by_theirs=True,
    ),
)


def bodies(cases: Mapping[str, Case], names: Mapping[str, str], type_: str = "nlb") -> dict[str, dict[str, Any]]:
    """Return the Services by name, with the same node ports each time. `type_`: the type annotation of Services without
    their own, "" for no annotation."""
    return {
        name: body(name, case, 30000 + 10 * number, names, type_) for number, (name, case) in enumerate(cases.items())
    }


def body(name: str, case: Case, node_port: int, names: Mapping[str, str], type_: str = "nlb") -> dict[str, Any]:
    ports = [
        {"name": f"{protocol.lower()}-{number}", "port": number, "protocol": protocol, "nodePort": node_port + each}
        for each, (number, protocol) in enumerate(case.ports)
    ]
    given = {**({"type": type_} if type_ else {}), **case.annotations}
    annotations = {key if "/" in key else PREFIX + key: value.format(**names) for key, value in given.items()}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports, **case.spec},
    }

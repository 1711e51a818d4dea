# SPDX-License-Identifier: Apache-2.0
"""Clouds store fingerprints: if one differs after an upgrade, its load balancer is written once.

A new field needs a default, so that nothing here changes. A renamed field keeps its key:
`metadata=counted("former_name")`. If a release is meant to write something else for a Service, change its digest here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud import Address, AddressType, Backend, Backends, LoadBalancerSpec, Port
from ccm.cloud.toolkit import digests
from ccm.cloud.toolkit.digests import NOT_COUNTED, counted, desired_digest, subjects
from ccm.cloud.toolkit.ownership_marks import Mark
from ccm.providers import sim
from ccm.providers.aws.annotations import PREFIX as AWS
from ccm.providers.aws.load_balancers.classic import load_balancer_rules as classic_rules
from ccm.providers.aws.load_balancers.network import load_balancer_rules as network_rules
from ccm.providers.aws.load_balancers.shared import target_rules
from ccm.providers.aws.settings_sections import Global
from ccm.providers.cloudstack import load_balancer_rules as cloudstack_rules
from ccm.providers.cloudstack.annotations import PREFIX as CLOUDSTACK
from ccm.providers.hetzner import label_selectors
from ccm.providers.hetzner import load_balancer_rules as hetzner_rules
from ccm.providers.hetzner.annotations import PREFIX as HETZNER
from ccm.providers.hetzner.settings import Variables
from ccm.providers.openstack.annotations import PREFIX as OPENSTACK
from ccm.providers.openstack.load_balancers import floating_ips
from ccm.providers.openstack.load_balancers import load_balancer_rules as openstack_rules
from ccm.providers.openstack.settings_sections import EVERY, LoadBalancerSection

UUID = "0000000{}-0000-4000-8000-000000000000"
ARN = "arn:aws:acm:eu-central-1:123456789012:certificate/0a1"


def service(prefix: str = "", annotations: dict[str, str] | None = None, **more: Any) -> LoadBalancerSpec:
    given = {key if "/" in key else prefix + key: text for key, text in (annotations or {}).items()}
    more = {"ports": (Port("http", "TCP", 80, 30080),), **more}
    return LoadBalancerSpec("prod", "7f8a2b1c-0000-4000-8000-000000000001", "shop", "web", annotations=given, **more)


def always(names: str) -> dict[str, Any]:
    """Return the names as fields without a default, which are always part of the fingerprint."""
    return dict.fromkeys(names.split(), dataclasses.MISSING)


def on_hetzner(**more: Any) -> str:
    return hetzner_rules.desired_state(service(HETZNER, **more), Variables(hcloud_network="kube")).digest


def with_nlb(**more: Any) -> str:
    annotations = {"type": "nlb", **more.pop("annotations", {})}
    return network_rules.desired_state(service(AWS, annotations, **more), Global(), "prod").digest


def with_classic(**more: Any) -> str:
    return classic_rules.desired_state(service(AWS, **more), Global(), "prod").digest


def on_cloudstack(**more: Any) -> str:
    return cloudstack_rules.desired_state(service(CLOUDSTACK, **more)).digest


def on_openstack(**more: Any) -> str:
    section = LoadBalancerSection(allowed_annotations=(EVERY,), floating_network_id=UUID.format(1))
    return openstack_rules.fingerprint(service(OPENSTACK, **more), section, {})


def on_sim(**more: Any) -> str:
    api: Any = SimpleNamespace(passes_through=False)
    return sim.SimLoadBalancers(api).fingerprint(service(**more), NODES)[:24]


NODES = Backends([Backend("worker-1", "sim://north/i-1", (Address(AddressType.INTERNAL_IP, "10.0.0.1"),), {})])
HTTPS = (Port("http", "TCP", 80, 30080), Port("https", "TCP", 443, 30443, "https"))
LOCAL = {"external_traffic_policy": "Local", "health_check_node_port": 32000}
EVERYTHING_ON_HETZNER = {
    "name": "web",
    "hostname": "web.example.org",
    "type": "lb21",
    "location": "fsn1",
    "node-selector": "role=web,zone in (a,b),!drain",
    "algorithm-type": "least_connections",
    "protocol": "https",
    "uses-proxyprotocol": "true",
    "disable-public-network": "true",
    "disable-private-ingress": "true",
    "use-private-ip": "true",
    "private-ipv4": "10.0.1.9",
    "private-subnet-ip-range": "10.0.1.0/24",
    "ipv4-rdns": "web.example.org",
    "ipv6-rdns": "web.example.org",
    "ipv6-disabled": "true",
    "certificate-type": "managed",
    "http-managed-certificate-domains": "example.org,*.example.org",
    "http-managed-certificate-acme-staging": "true",
    "http-sticky-sessions": "true",
    "health-check-interval": "7s",
}
LOGS = {
    "access-log-enabled": "true",
    "access-log-s3-bucket-name": "logs",
    "access-log-s3-bucket-prefix": "kube",
    "additional-resource-tags": "team=web",
    "cross-zone-load-balancing-enabled": "true",
    "healthcheck-healthy-threshold": "5",
    "healthcheck-interval": "20",
    "internal": "true",
    "ssl-cert": ARN,
    "ssl-ports": "443",
    "ssl-negotiation-policy": "ELBSecurityPolicy-TLS13-1-2-2021-06",
    "subnets": "subnet-0a1",
    "target-node-labels": "role=web",
}


@pytest.mark.parametrize(
    ("fingerprint", "more", "digest"),
    [
        (on_hetzner, {}, "ed13a79b7a4c08fe33f8904b"),
        (on_hetzner, {"annotations": EVERYTHING_ON_HETZNER, "ports": HTTPS, **LOCAL}, "bcd2f1e7f0b9fec32c959206"),
        (on_hetzner, {"session_affinity": "ClientIP"}, "f4f174b7c9081906e21e4cf1"),
        (with_nlb, {}, "3029fe025b01510c1316c802"),
        (
            with_nlb,
            {
                "annotations": LOGS
                | {
                    "eip-allocations": "eipalloc-0a1",
                    "private-ipv4-addresses": "10.0.0.9",
                    "target-group-attributes": "preserve_client_ip.enabled=true",
                },
                "ports": HTTPS,
                **LOCAL,
            },
            "b25a4845a59d7812543a9f2d",
        ),
        (with_nlb, {"source_ranges": ("192.0.2.0/24",), "ip_families": ("IPv4", "IPv6")}, "315339d36c8751b9b4e321e3"),
        (with_classic, {}, "29eab0f0f7ce18abdd97ec62"),
        (
            with_classic,
            {
                "annotations": LOGS
                | {
                    "access-log-emit-interval": "5",
                    "backend-protocol": "http",
                    "connection-draining-enabled": "true",
                    "connection-draining-timeout": "30",
                    "connection-idle-timeout": "90",
                    "extra-security-groups": "sg-0b2",
                    "healthcheck-timeout": "6",
                    "healthcheck-unhealthy-threshold": "4",
                    "proxy-protocol": "*",
                    "security-groups": "sg-0a1",
                },
                "ports": HTTPS,
                **LOCAL,
            },
            "2a51e72b8bcb714e32869505",
        ),
        (
            with_classic,
            {"source_ranges": ("192.0.2.0/24",), "ip_families": ("IPv4", "IPv6")},
            "c1fd663179435485e754fa24",
        ),
        (on_cloudstack, {}, "e089ea32f611d972449c3aa9"),
        (
            on_cloudstack,
            {
                "annotations": {
                    "hostname": "web.example.org",
                    "ip-associated-by-controller": "true",
                    "proxy-protocol": "true",
                    "source-cidrs": "10.0.0.0/8",
                },
                "ports": HTTPS,
                "load_balancer_ip": "203.0.113.7",
                "session_affinity": "ClientIP",
                "source_ranges": ("192.0.2.0/24",),
                **LOCAL,
            },
            "47930ceb4e6541ebee936ca5",
        ),
        (on_openstack, {}, "039b70f3e65f"),
        (
            on_openstack,
            {
                "annotations": {
                    "availability-zone": "az1",
                    "connection-limit": "9",
                    "default-tls-container-ref": f"https://barbican.example.org/v1/secrets/{UUID.format(2)}",
                    "enable-health-monitor": "true",
                    "flavor-id": UUID.format(3),
                    "floating-subnet-id": UUID.format(4),
                    "health-monitor-delay": "7",
                    "hostname": "web.example.org",
                    "keep-floatingip": "true",
                    "lb-method": "LEAST_CONNECTIONS",
                    "load-balancer-id": UUID.format(5),
                    "member-subnet-id": UUID.format(6),
                    "network-id": UUID.format(7),
                    "node-selector": "role=web",
                    "port-id": UUID.format(8),
                    "subnet-id": UUID.format(9),
                    "timeout-client-data": "9",
                    "x-forwarded-for": "true",
                },
                "ip_families": ("IPv4", "IPv6"),
                "load_balancer_ip": "203.0.113.7",
                "ports": HTTPS,
                "session_affinity": "ClientIP",
                "source_ranges": ("192.0.2.0/24",),
                **LOCAL,
            },
            "f500a203ed2b",
        ),
        (on_sim, {}, "5a26772681b4e31bd4562db1"),
        (
            on_sim,
            {"ports": HTTPS, "session_affinity": "ClientIP", "source_ranges": ("192.0.2.0/24",), **LOCAL},
            "5f8edc5a3457efd85e3c8fc0",
        ),
    ],
)
def test_the_fingerprint_of_a_service_stays(fingerprint: Any, more: dict[str, Any], digest: str) -> None:
    assert fingerprint(**more) == digest


@pytest.mark.parametrize(
    ("digest", "pinned"),
    [
        (hetzner_rules.digest_of_targets([2, 1], True, ""), "99974fea6f2b857812e7bf3a"),
        (hetzner_rules.digest_of_targets([], False, "role=web"), "3524770df90f37de04b4a567"),
        (target_rules.desired_digest(("i-0a1", "i-0b2")), "78f84bd3c4d37e543571f101"),
        (openstack_rules.members_fingerprint([("worker-1", "10.0.0.1")]), "115059961fc9"),
    ],
)
def test_the_fingerprint_of_targets_stays(digest: str, pinned: str) -> None:
    assert digest == pinned


#: Dataclass in a desired state -> the keys of its fields in fingerprints, and their defaults. A default must not
#: change, because fingerprints leave out default values: nobody would notice that existing load balancers need a write.
#: Pass another value instead.
KEYS: dict[type, dict[str, Any]] = {
    Port: {
        **always("name protocol port node_port"),
        "app_protocol": None,
    },
    hetzner_rules.DesiredState: {
        **always("name named network"),
        "type": "",
        "location": "",
        "zone": "",
        "algorithm": "",
        "public": None,
        "private_ip": False,
        "private_ipv4": "",
        "subnet": "",
        "reverse": (None, None),
        "services": (),
        "certificates": None,
        "managed": None,
        "node_selector": label_selectors.Selector(),
        "label_selector": "",
        "hostname": "",
        "proxy": False,
        "ipv6": True,
        "private_ingress": True,
        "address": "",
        "warnings": (),
    },
    hetzner_rules.Certificate: {
        **always("name domains"),
        "staging": False,
    },
    label_selectors.Selector: {
        "conditions": (),
    },
    label_selectors.Condition: {
        **always("key values"),
        "negated": False,
    },
    network_rules.DesiredState: {
        **always("name internal listeners tags attributes clients"),
        "group_attributes": {},
        "nodes": {},
        "subnets": (),
        "allocations": (),
        "addresses": (),
        "warnings": (),
    },
    network_rules.Listener: {
        **always("port protocol node_port group_protocol group check"),
        "certificate": "",
        "policy": "",
    },
    network_rules.Check: {
        "protocol": "TCP",
        "port": "traffic-port",
        "path": "",
        "interval": 30,
        "healthy": 3,
        "unhealthy": 3,
    },
    classic_rules.DesiredState: {
        **always("name internal listeners tags attributes check"),
        "clients": ("0.0.0.0/0",),
        "proxy_protocol": False,
        "policy": "",
        "groups": (),
        "extra": (),
        "nodes": {},
        "subnets": (),
        "warnings": (),
    },
    classic_rules.Listener: {
        **always("port protocol node_port node_protocol"),
        "certificate": "",
    },
    classic_rules.Check: {
        **always("target"),
        "interval": 10,
        "timeout": 5,
        "healthy": 2,
        "unhealthy": 6,
    },
    cloudstack_rules.DesiredState: {
        **always("name algorithm rules"),
        "cidrs": (),
        "ranges": (),
        "address": "",
        "hostname": "",
        "proxy": False,
        "released": False,
        "warnings": (),
    },
    cloudstack_rules.Rule: {
        **always("name protocol port node_port"),
    },
    openstack_rules.DesiredLoadBalancer: {
        **always(
            "name description family internal load_balancer_id provider flavor_id availability_zone "
            "network_id subnet_id port_id vip_address member_subnet_id floating floating_description "
            "keep_floating_ip hostname suffix proxy x_forwarded_for tls method connection_limit timeouts "
            "monitor health_check_node_port affinity source_ranges selector ports security_groups"
        ),
    },
    floating_ips.DesiredFloatingIP: {
        **always("network_id subnet_id pattern tags address description"),
    },
}


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}")
def test_a_field_keeps_its_key_and_its_default(kind: type) -> None:
    present = {how.key: default for how, default in digests.keys(kind).values()}
    assert {key: present.get(key, f"renamed: give the field metadata=counted({key!r})") for key in KEYS[kind]} == KEYS[
        kind
    ]
    added = present.keys() - KEYS[kind].keys()
    assert [key for key in added if present[key] is dataclasses.MISSING] == [], "a new field needs a default"


def test_every_dataclass_in_a_desired_state_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, original = set(), digests.keys

    def watched(kind: type) -> Any:
        seen.add(kind)
        return original(kind)

    monkeypatch.setattr(digests, "keys", watched)
    for mark in test_the_fingerprint_of_a_service_stays.pytestmark:
        for fingerprint, more, _ in mark.args[1]:
            fingerprint(**more)
    assert seen == set(KEYS)


def test_a_mark_in_the_cloud_keeps_its_form() -> None:
    made = Mark.made_for(service(), "lb-of-web", "abc-def", "fk")
    uid, named = "7f8a2b1c-0000-4000-8000-000000000001", "5db682fad7d3ba10"
    assert str(made) == f"ccm:v1:prod:{uid}:{named}:abc-def:fk:shop"
    assert made.labels("ccm-") == {
        "ccm-cluster": "prod",
        "ccm-uid": uid,
        "ccm-name": named,
        "ccm-fingerprint": "abc-def",
        "ccm-flags": "fk",
        "ccm-namespace": "shop",
    }
    plain = Mark.made_for(service(), "lb-of-web", "")
    assert plain.labels("") == {"cluster": "prod", "uid": uid, "name": named, "namespace": "shop"}


# Guarantees of the digest itself.


@dataclass(frozen=True)
class Before:
    name: str
    size: int = 1
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))
    found: str = field(default="", metadata=NOT_COUNTED)


@dataclass(frozen=True)
class After:
    """A later version of the dataclass: new fields, and renamed ones."""

    title: str = field(metadata=counted("name"))
    extra: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=(), metadata=counted("warnings", subjects))
    width: int = field(default=1, metadata=counted("size"))


@pytest.mark.parametrize("size", [1, 2])
def test_a_renamed_and_an_added_field_change_nothing(size: int) -> None:
    assert desired_digest([Before("a", size)]) == desired_digest([After("a", width=size)])
    assert desired_digest(After("a", extra=("b",))) != desired_digest(After("a"))


def test_a_rewritten_warning_changes_nothing_and_a_new_one_does() -> None:
    one, same = Before("a", warnings=("spec.x: no.",)), Before("a", warnings=("spec.x: it has no effect.",))
    assert desired_digest(one) == desired_digest(same) != desired_digest(Before("a"))
    assert desired_digest(one) != desired_digest(Before("a", warnings=("spec.y: no.",)))


def test_what_does_not_count_does_not() -> None:
    assert desired_digest(Before("a", found="b")) == desired_digest(Before("a"))


def test_sets_count_in_one_order_and_a_value_without_a_stable_text_is_refused() -> None:
    assert desired_digest([frozenset("abc")]) == desired_digest([["a", "b", "c"]])
    with pytest.raises(TypeError, match="a desired state contains a object"):
        desired_digest({"a": object()})


def test_two_fields_with_one_key_are_refused() -> None:
    twice = dataclasses.make_dataclass("Twice", [("a", str, ""), ("b", str, field(default="", metadata=counted("a")))])
    with pytest.raises(TypeError, match="Twice: two fields have one key"):
        desired_digest(twice())


def test_the_length_is_that_of_the_caller() -> None:
    assert len(desired_digest("a")) == 24 and desired_digest("a", 12) == desired_digest("a")[:12]

# SPDX-License-Identifier: Apache-2.0
"""The Services that cloud-provider-openstack and this provider serve one after the other, and how the results may
differ."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.providers.openstack.annotations import INTERNAL, PREFIX
from tests.comparison.differences import Difference

from .customer import Site

#: Settings that the page about replacing cloud-provider-openstack recommends, so that both controllers allow the same.
ALL_ALLOWED = {"allowed-annotations": "*", "sharing": "project", "allowed-load-balancer-ips": "any"}
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
UDP, SCTP = "UDP", "SCTP"

TCP_80: tuple[int, str] = (80, "TCP")
DNS: tuple[int, str] = (53, UDP)


@dataclass(frozen=True)
class Case:
    """A Service. `ports`: number and protocol. `annotations`: a key without "/" gets our prefix. {NAME} in a value,
    also of `spec`, is replaced by what `things` yields for NAME. `shares`: the Service whose load balancer this Service
    shares."""

    ports: Sequence[tuple[int, str]] = (TCP_80,)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    shares: str = ""


@dataclass(frozen=True)
class Table:
    """A table of Services. `conf`: sections of cloud.conf in addition to the site's own. `kept`: how many floating IPs
    stay when all Services are deleted.

    `syncs`: how many Services cloud-provider-openstack handles at once. With more than one, it sometimes loses security
    groups of the nodes' ports.
    """

    cases: Mapping[str, Case]
    conf: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kept: int = 0
    syncs: int = 1


MONITOR = {
    "enable-health-monitor": "true",
    "health-monitor-delay": "10",
    "health-monitor-timeout": "6",
    "health-monitor-max-retries": "4",
    "health-monitor-max-retries-down": "5",
}
LIMITS = {
    "connection-limit": "100",
    "timeout-client-data": "60000",
    "timeout-member-connect": "7000",
    "timeout-member-data": "80000",
    "timeout-tcp-inspect": "500",
}
LOCAL = {"externalTrafficPolicy": "Local"}

TABLES = {
    "annotations": Table(
        {
            "plain": Case(),
            "ports": Case([TCP_80, (443, "TCP"), (8443, "TCP")], LIMITS),
            "one-number": Case(
                [DNS, (53, "TCP"), (53, SCTP)], {"lb-method": "LEAST_CONNECTIONS"}, {"sessionAffinity": "ClientIP"}
            ),
            "ranges": Case(
                annotations={"proxy-protocol": "v2"},
                spec={"loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"]},
            ),
            "ranges-annotated": Case(annotations={SOURCE_RANGES: "203.0.113.0/24", "x-forwarded-for": "true"}),
            "ranges-open": Case(spec={"loadBalancerSourceRanges": ["0.0.0.0/0", "192.0.2.0/24"]}),
            "internal": Case(annotations={INTERNAL: "true"}, spec={"loadBalancerIP": "10.30.99.9"}),
            "address": Case(spec={"loadBalancerIP": "{address}"}),
            "monitored": Case([TCP_80, DNS, (132, SCTP)], MONITOR),
            "local": Case([TCP_80, DNS], {"enable-health-monitor": "true"}, {**LOCAL, "healthCheckNodePort": 32000}),
            "local-unprobed": Case(
                annotations={"node-selector": "side=left"}, spec={**LOCAL, "healthCheckNodePort": 32001}
            ),
            "proxy": Case(annotations={"proxy-protocol": "true"}),
            "forwarded-udp": Case([TCP_80, DNS], {"x-forwarded-for": "true"}),
            "named": Case(annotations={"hostname": "app.example.com", "keep-floatingip": "true"}),
            "portless": Case(spec={"allocateLoadBalancerNodePorts": False}),
            "networks": Case(
                annotations={
                    "network-id": "{network}",
                    "subnet-id": "{subnet}",
                    "member-subnet-id": "{subnet}",
                    "floating-network-id": "{public_network}",
                    "floating-subnet-id": "{public_subnet}",
                    "flavor-id": "{flavor}",
                    "availability-zone": "{zone}",
                }
            ),
            "class": Case(annotations={"class": "edge"}),
            "on-a-port": Case(annotations={"port-id": "{port}", "floating-subnet": "~^pub.*"}),
            "another-class": Case(spec={"loadBalancerClass": "example.com/another"}),
            "guest": Case([(8080, "TCP")], shares="plain"),
        },
        {'LoadBalancerClass "edge"': {"subnet-id": "{subnet}", "floating-subnet": "pub*"}},
        kept=1,
        syncs=5,
    ),
    "cloud.conf": Table(
        {
            "guarded": Case([TCP_80, DNS]),
            "guarded-local": Case(annotations={"proxy-protocol": "v1"}, spec={**LOCAL, "healthCheckNodePort": 32002}),
            "guarded-otherwise": Case(
                annotations={"enable-health-monitor": "false", "lb-method": "ROUND_ROBIN", "node-selector": "side"}
            ),
        },
        {
            "LoadBalancer": {
                "manage-security-groups": "true",
                "create-monitor": "true",
                "monitor-delay": "7s",
                "monitor-timeout": "4s",
                "monitor-max-retries": "2",
                "monitor-max-retries-down": "4",
                "lb-method": "SOURCE_IP",
                "enable-ingress-hostname": "true",
                "ingress-hostname-suffix": "lb.example.com",
                "node-selector": "side=left",
                "flavor-id": "{flavor}",
                "availability-zone": "{zone}",
                "floating-subnet": "pub*",
            }
        },
    ),
    "one call a part": Table(
        {"serial": Case([TCP_80, DNS], {"enable-health-monitor": "true", INTERNAL: "true"})},
        {"LoadBalancer": {"provider-requires-serial-api-calls": "true", "cascade-delete": "false"}},
    ),
}


#: Services for which the two controllers create listeners of different protocols, so that a take-over replaces these.
REPLACED = ("forwarded-udp",)
DIFFERENCES = (
    Difference("Tags", ("load balancer: tags ccm:*", "security group: tags ccm:*"), by_ours=True),
    Difference("Description of a floating IP", ("floating IP: UID in the description",)),
    Difference(
        "Annotations of the Service",
        ("Service: annotations load-balancer-id, load-balancer-address",),
        by_theirs=True,
    ),
    Difference(
        "UDP and SCTP ports beside `x-forwarded-for`",
        tuple(f"{part}: exists" for part in ("listener * 53", "pool * 53", "member * 53")),
        REPLACED,
        by_ours=True,
        by_theirs=True,
    ),
    Difference("Source ranges beside `0.0.0.0/0`", ("listener *: allowed_cidrs",), ("ranges-open",), by_theirs=True),
    Difference(
        "Members with `provider-requires-serial-api-calls`",
        ("member *: name", "member *: subnet_id"),
        ("serial",),
    ),
)


@contextlib.contextmanager
def things(site: Site) -> Iterator[dict[str, str]]:
    """Create the objects that Services name; yield what annotations need: IDs, the zone's name and the floating IP.
    Flavour and zone stay in Octavia for the next run.
    """
    octavia, network = site.admin.load_balancer, site.cloud.network
    found = {key: str(site.world[key]) for key in ("public_network", "public_subnet")}
    flavor = octavia.find_flavor("tests") or octavia.create_flavor(
        name="tests",
        flavor_profile_id=octavia.create_flavor_profile(name="tests", provider_name="rig", flavor_data="{}").id,
    )
    zone = octavia.find_availability_zone("tests") or octavia.create_availability_zone(
        name="tests",
        availability_zone_profile_id=octavia.create_availability_zone_profile(
            name="tests", provider_name="rig", availability_zone_data="{}"
        ).id,
    )
    port = network.create_port(network_id=site.network, name="chosen")
    floating = network.create_ip(floating_network_id=site.world["public_network"])
    try:
        yield found | {
            "network": site.network,
            "subnet": site.subnet,
            "flavor": flavor.id,
            "zone": zone.name,
            "port": port.id,
            "address": floating.floating_ip_address,
        }
    finally:
        site.clean_balancers()
        network.delete_port(port)


def conf(site: Site, table: Table, names: Mapping[str, str]) -> str:
    """Return the cloud.conf of both controllers."""
    sections = {section: _filled(options, names) for section, options in table.conf.items()}
    sections["LoadBalancer"] = ALL_ALLOWED | sections.get("LoadBalancer", {})
    return site.conf(**sections)


def bodies(table: Table, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the Services by name, with the same node ports each time."""
    found: dict[str, dict[str, Any]] = {}
    node_port = 30000
    for name, case in table.cases.items():
        ports = []
        for number, protocol in case.ports:
            node_port += 1
            ports.append({"name": f"{protocol.lower()}-{number}", "port": number, "protocol": protocol})
            if case.spec.get("allocateLoadBalancerNodePorts", True):
                ports[-1]["nodePort"] = node_port
        annotations = {key if "/" in key else PREFIX + key: value for key, value in case.annotations.items()}
        found[name] = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": _filled(annotations, names)},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports, **_filled(case.spec, names)},
        }
    return found


def _filled(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {key: value.format(**names) if isinstance(value, str) else value for key, value in values.items()}

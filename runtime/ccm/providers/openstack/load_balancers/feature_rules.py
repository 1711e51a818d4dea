# SPDX-License-Identifier: Apache-2.0
"""Decides which parts of a desired state are possible, with this Octavia and for an existing load balancer. No I/O.

The rest is refused or reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ccm.cloud import LoadBalancerSpec
from ccm.cloud.toolkit.kept_settings import Setting, differences
from ccm.cloud.toolkit.service_checks import node_port_problem

from ..annotations import PREFIX, Annotations
from ..settings_sections import LoadBalancerClass, LoadBalancerSection
from . import permissions
from .load_balancer_rules import DesiredLoadBalancer, Row, floating_ip

#: Three names of the same Octavia provider.
AMPHORA = ("amphora", "amphorav2", "octavia")


@dataclass(frozen=True)
class Features:
    """What Octavia's API version and the load balancer's provider support."""

    acl: bool = True
    timeouts: bool = True
    flavors: bool = True
    zones: bool = True
    http_monitor: bool = True
    udp_http_monitor: bool = True
    additional_vips: bool = True
    weights: bool = True

    @classmethod
    @cache
    def of(cls, version: tuple[int, int], provider: str) -> Features:
        full = provider != "ovn"
        return cls(
            acl=full and version >= (2, 12),
            timeouts=full and version >= (2, 1),
            flavors=full and version >= (2, 6),
            zones=full and version >= (2, 14),
            http_monitor=full,
            udp_http_monitor=full and version >= (2, 16),
            additional_vips=full and version >= (2, 26),
            weights=full,
        )


def drains(desired: DesiredLoadBalancer) -> bool:
    """Return whether members of the load balancer can drain: only with amphorae, Octavia's default provider."""
    return desired.provider in ("", *AMPHORA)


def refused(desired: DesiredLoadBalancer, features: Features) -> list[str]:
    """Return what the Service requests but this Octavia does not support. See `left_out` for cloud.conf."""
    problems = []
    if problem := node_port_problem(desired.ports):
        problems.append(problem)
    if desired.runs_on == "ovn" and desired.method != "SOURCE_IP_PORT":
        problems.append(
            f"annotation {PREFIX}lb-method: the provider ovn supports only SOURCE_IP_PORT, not {desired.method!r}"
        )
    if desired.source_ranges and not features.acl and not (desired.runs_on == "ovn" and desired.security_groups):
        way = ": set manage-security-groups in cloud.conf" if desired.runs_on == "ovn" else ""
        problems.append(
            f"loadBalancerSourceRanges: the load balancer would be open to everybody, {_cannot(desired)}{way}"
        )
    for able, keys in (
        (features.flavors, ("flavor-id",)),
        (features.zones, ("availability-zone",)),
        (features.timeouts, tuple(key.replace("_", "-") for key in desired.timeouts)),
    ):
        problems += [
            f"annotation {PREFIX}{key}: {_cannot(desired)}" for key in keys if not able and key in desired.given
        ]
    return problems


def left_out(
    spec: LoadBalancerSpec,
    desired: DesiredLoadBalancer,
    features: Features,
    section: LoadBalancerSection,
    classes: Mapping[str, LoadBalancerClass],
) -> list[str]:
    """Return a sentence for each setting of the Service or of cloud.conf that has no effect for this Service."""
    unsupported = {
        "flavor-id": desired.flavor_id if not features.flavors else "",
        "availability-zone": desired.availability_zone if not features.zones else "",
    }
    texts = [f"{key} of cloud.conf is ignored: {_cannot(desired)}" for key, value in unsupported.items() if value]
    if desired.also and not desired.second and not features.additional_vips:
        texts.append(only_one_family(desired, f"an additional VIP is needed, and {_cannot(desired)}"))
    if spec.external_traffic_policy == "Local" and desired.monitor is None:
        texts.append(
            "externalTrafficPolicy is Local, but members are not probed: the load balancer also sends traffic to nodes "
            f"without a Pod of the Service, which drop it; set the annotation {PREFIX}enable-health-monitor to "
            '"true", or create-monitor in [LoadBalancer] of cloud.conf'
        )
    if desired.family == "IPv6" and not desired.internal:
        annotations = Annotations(permissions.effective(spec.annotations, section))
        chosen = classes.get(annotations.get("class", ""), LoadBalancerClass())
        floating = floating_ip(spec, "", annotations, chosen, section)
        if keys := floating.keys():
            texts.append(
                f"{', '.join(keys)}: floating IPs do not exist for IPv6, so the load balancer is reached at its own "
                "address"
            )
    return texts


def only_one_family(desired: DesiredLoadBalancer, why: str) -> str:
    """Return the warning about a Service with two families whose load balancer can have only one."""
    return f"the Service requests {desired.family} and {desired.also}, but gets only {desired.family}: {why}"


def kept(desired: DesiredLoadBalancer, row: Row, features: Features) -> dict[str, str]:
    """Return the settings that count only for a new load balancer and differ from those of the existing one: key ->
    desired and present value."""
    names = ("provider", "flavor_id", "availability_zone", "vip_port_id", "vip_network_id", "vip_subnet_id")
    present = {attribute: str(row.get(attribute) or "") for attribute in names}
    zone = desired.availability_zone if features.zones else ""
    if {desired.provider, present["provider"]} <= set(AMPHORA):  # two names of one provider
        present["provider"] = desired.provider
    return differences(
        {
            "lb-provider": Setting(desired.provider, present["provider"]),
            "flavor-id": Setting(desired.flavor_id if features.flavors else "", present["flavor_id"]),
            "availability-zone": Setting(zone, present["availability_zone"]),
            "port-id": Setting(desired.port_id, present["vip_port_id"]),
            "network-id": Setting("" if desired.port_id else desired.network_id, present["vip_network_id"]),
            "subnet-id": Setting("" if desired.port_id else desired.subnet_id, present["vip_subnet_id"]),
        }
    )


def slow_monitor(desired: DesiredLoadBalancer) -> str:
    """Return the warning about annotations that set the timeout of a probe longer than the delay between two probes; ""
    if there are none. Octavia and cloud-provider-openstack accept such values."""
    if desired.monitor is None or not desired.given & {"health-monitor-timeout", "health-monitor-delay"}:
        return ""
    timeout, delay = desired.monitor["timeout"], desired.monitor["delay"]
    if timeout <= delay:
        return ""
    return (
        f"annotation {PREFIX}health-monitor-timeout: {timeout} s is more than the delay between two probes, {delay} s"
    )


def _cannot(desired: DesiredLoadBalancer) -> str:
    return f"Octavia's provider {desired.runs_on or 'in use'}, or its API version, does not support it"

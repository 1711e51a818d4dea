# SPDX-License-Identifier: Apache-2.0
"""What cloud.conf says about load balancers: `[LoadBalancer]` and `[LoadBalancerClass "NAME"]`, as plain data.

Fields are the keys of cloud-provider-openstack with `_` for `-`, and have its defaults. Times are whole seconds.
`ccm.providers.openstack.config` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoadBalancerClass:
    """What a Service chooses with the annotation `loadbalancer.openstack.org/class`."""

    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: str = ""
    floating_subnet_tags: str = ""
    network_id: str = ""
    subnet_id: str = ""
    member_subnet_id: str = ""


@dataclass(frozen=True)
class LoadBalancerOptions:
    """`node_selector`: `key=value` or `key`, comma-separated. `classes`: by name."""

    enabled: bool = True
    lb_provider: str = "amphora"
    lb_method: str = "ROUND_ROBIN"
    subnet_id: str = ""
    member_subnet_id: str = ""
    network_id: str = ""
    floating_network_id: str = ""
    floating_subnet_id: str = ""
    floating_subnet: str = ""
    floating_subnet_tags: str = ""
    create_monitor: bool = False
    monitor_delay: int = 5
    monitor_timeout: int = 3
    monitor_max_retries: int = 1
    monitor_max_retries_down: int = 3
    manage_security_groups: bool = False
    internal_lb: bool = False
    node_selector: str = ""
    cascade_delete: bool = True
    flavor_id: str = ""
    availability_zone: str = ""
    enable_ingress_hostname: bool = False
    ingress_hostname_suffix: str = "nip.io"
    max_shared_lb: int = 2
    container_store: str = "barbican"
    default_tls_container_ref: str = ""
    provider_requires_serial_api_calls: bool = False
    classes: Mapping[str, LoadBalancerClass] = field(default_factory=dict)

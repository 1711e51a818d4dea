# SPDX-License-Identifier: Apache-2.0
"""The sections and keys of cloud.conf, as cloud-provider-openstack has them. Pure.

Each key is one field below: its name, default, kind and meaning in one place, from which the documentation is made,
too. `config` reads them, and `config_checks` finds what contradicts.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ccm.cloud import Invalid
from ccm.cloud.toolkit.annotation_reader import selector
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import (
    IPNetwork,
    boolean,
    count,
    duration,
    key,
    names,
    networks,
    number,
    one_of,
)

from . import name_patterns
from .annotations import BY_NAME

METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
INTERFACES = {
    **dict.fromkeys(("public", "publicURL"), "public"),
    **dict.fromkeys(("internal", "internalURL"), "internal"),
    **dict.fromkeys(("admin", "adminURL"), "admin"),
}

#: In `allowed-annotations`: each annotation there is, and those that are allowed where the key is left out.
EVERY, DEFAULT = "*", "default"
#: In `allowed-load-balancer-ips`.
ANY, NONE = "any", "none"
EVERYWHERE: tuple[IPNetwork, ...] = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))
#: Whose load balancers `load-balancer-id` may name.
SHARING = ("never", "namespace", "cluster", "project")


# Kinds of values that only OpenStack has.


def attempts(raw: str) -> int:
    """What Octavia takes for the times that a check is made."""
    if not re.fullmatch(r"[1-9]|10", raw):
        raise ValueError("expected a whole number from 1 to 10")
    return int(raw)


def node_labels(raw: str) -> str:
    try:
        selector(raw)
    except ValueError as error:
        raise ValueError(f"expected {error}") from None
    return raw


def subnet_names(raw: str) -> str:
    try:
        name_patterns.check(raw)
    except Invalid:  # what RE2 says of a pattern quotes it
        raise ValueError("expected a glob, or a regular expression of RE2 after ~") from None
    return raw


def annotation_names(raw: str) -> tuple[str, ...]:
    """Names of annotations without their prefix, `*` or `default`; none of an empty text."""
    found = tuple(each.strip() for each in raw.split(",") if each.strip())
    if not all(each in (EVERY, DEFAULT) or each in BY_NAME for each in found):
        raise ValueError(f"expected names of annotations, {DEFAULT} or {EVERY}; known are {', '.join(BY_NAME)}")
    return found


def addresses(raw: str) -> tuple[IPNetwork, ...]:
    """`any`, `none`, or CIDRs."""
    if raw in (ANY, NONE):
        return EVERYWHERE if raw == ANY else ()
    try:
        return networks(raw)
    except ValueError:
        raise ValueError(f"expected {ANY}, {NONE}, or CIDRs separated by commas") from None


def interface(raw: str) -> str:
    if raw not in INTERFACES:
        raise ValueError("expected public, internal or admin")
    return INTERFACES[raw]


KINDS = {
    **COMMON_KINDS,
    attempts: "whole number from 1 to 10",
    node_labels: "labels, separated by commas",
    subnet_names: "pattern",
    annotation_names: "names of annotations, separated by commas; may be repeated",
    addresses: "`any` | `none` | CIDRs, separated by commas",
    interface: "`public` | `internal` | `admin`",
}


@dataclass(frozen=True)
class Global:
    """Who we are, and where keystone is."""

    auth_url: str = key("", "keystone's address, such as `https://keystone.example.com:5000/v3`")
    username: str = key("", "the user's name; needs a domain")
    user_id: str = key("", "the user, instead of `username` and its domain")
    password: str = key("", "the user's password", secret=True)
    tenant_id: str = key("", "the project's ID")
    tenant_name: str = key("", "the project's name, instead of `tenant-id`; needs a domain")
    domain_id: str = key("", "the domain of user and project, where the keys below do not say otherwise")
    domain_name: str = key("", "the same by name")
    user_domain_id: str = key("", "the user's domain")
    user_domain_name: str = key("", "the same by name")
    tenant_domain_id: str = key("", "the project's domain")
    tenant_domain_name: str = key("", "the same by name")
    application_credential_id: str = key("", "an application credential, instead of user and project")
    application_credential_name: str = key("", "the same by name; needs `user-id`, or `username` and its domain")
    application_credential_secret: str = key("", "its secret", secret=True)
    trust_id: str = key("", "a trust, which says user and project; needs `trustee-id` and `trustee-password`")
    trustee_id: str = key("", "the user whom the trust trusts")
    trustee_password: str = key("", "that user's password", secret=True)
    token: str = key("", "a token; it cannot be renewed, so it is of use for a try only", secret=True)
    region: str = key("", "the region; the first one of the catalogue if left out")
    os_endpoint_type: str = key(
        "", "which of the catalogue's endpoints are used; `public` where clouds.yaml does not say either", interface
    )
    ca_file: str = key("", "certificates that the cloud's are checked with, instead of the system's")
    cert_file: str = key("", "our own certificate, for clouds that ask for one")
    key_file: str = key("", "its key")
    tls_insecure: bool | None = key(
        None, "do not check the cloud's certificates; `false` where clouds.yaml does not say either", boolean
    )
    use_clouds: bool = key(False, "take what is not said here from a clouds.yaml", boolean)
    clouds_file: str = key("", "which; if left out, `~/.config/openstack` and `/etc/openstack` are searched")
    cloud: str = key("", "the cloud's name in it")


@dataclass(frozen=True)
class Networking:
    ipv6_support_disabled: bool = key(False, "leave IPv6 addresses out", boolean)
    public_network_name: tuple[str, ...] = key((), "networks whose addresses are ExternalIP", names)
    internal_network_name: tuple[str, ...] = key((), "networks whose addresses are InternalIP, and no others", names)
    address_sort_order: tuple[IPNetwork, ...] = key(
        (), "addresses in the first of these CIDRs come first, and so on; the others stay as they are", networks
    )


@dataclass(frozen=True)
class RouteSection:
    router_id: str = key("", "the router that gets the routes to Pods; without it there is no route controller")


@dataclass(frozen=True)
class Metadata:
    request_timeout: float = key(60.0, "how long one request to any of the services may take", duration)


@dataclass(frozen=True)
class LoadBalancerClass:
    """`[LoadBalancerClass "name"]`, chosen by the annotation `loadbalancer.openstack.org/class`."""

    floating_network_id: str = key("", "as in [LoadBalancer], for this class")
    floating_subnet_id: str = key("", "as in [LoadBalancer], for this class")
    floating_subnet: str = key("", "as in [LoadBalancer], for this class", subnet_names)
    floating_subnet_tags: str = key("", "as in [LoadBalancer], for this class")
    network_id: str = key("", "as in [LoadBalancer], for this class")
    subnet_id: str = key("", "as in [LoadBalancer], for this class")
    member_subnet_id: str = key("", "as in [LoadBalancer], for this class")


@dataclass(frozen=True)
class LoadBalancerSection:
    enabled: bool = key(True, "serve Services of type LoadBalancer", boolean)
    lb_version: str = key("v2", "there is but one", one_of("v2"))
    use_octavia: bool = key(True, "of former releases; there is nothing but Octavia", boolean)
    lb_provider: str = key("amphora", "Octavia's provider: `amphora`, `ovn`, or another that the cloud has")
    lb_method: str = key("ROUND_ROBIN", "how connections are spread; `ovn` takes SOURCE_IP_PORT only", one_of(*METHODS))
    subnet_id: str = key("", "the subnet of the load balancers' addresses; that of the nodes if left out")
    member_subnet_id: str = key("", "the subnet of the nodes' addresses, if another")
    network_id: str = key("", "the network of the load balancers' addresses, instead of `subnet-id`")
    floating_network_id: str = key(
        "", "the network of floating IPs; if left out, the first external one by ID, and of several an Event tells"
    )
    floating_subnet_id: str = key("", "the subnet that floating IPs are taken from")
    floating_subnet: str = key("", "the same by name: a glob, `~` a regular expression, `!` all others", subnet_names)
    floating_subnet_tags: str = key("", "the same by tags: any of them, `&` all of them, `!` none of them")
    create_monitor: bool = key(False, "health monitors", boolean)
    monitor_delay: float = key(5.0, "the time between two checks, in whole seconds", duration)
    monitor_timeout: float = key(3.0, "how long a check may take, in whole seconds", duration)
    monitor_max_retries: int = key(1, "successes until a member is up", attempts)
    monitor_max_retries_down: int = key(3, "failures until a member is down", attempts)
    manage_security_groups: bool = key(False, "a security group for each Service, on the nodes' ports", boolean)
    internal_lb: bool = key(False, "no load balancer gets a floating IP", boolean)
    node_selector: str = key("", "labels of the nodes that become members: `key=value` or `key`", node_labels)
    cascade_delete: bool = key(True, "delete a load balancer with all its parts in one call", boolean)
    flavor_id: str = key("", "Octavia's flavour")
    availability_zone: str = key("", "the load balancers' zone")
    enable_ingress_hostname: bool = key(False, "with the proxy protocol a host name instead of the address", boolean)
    ingress_hostname_suffix: str = key("nip.io", "what is put behind the address to make a name of it")
    max_shared_lb: int = key(2, "how many Services may share a load balancer", count)
    allowed_annotations: tuple[str, ...] = key(
        (DEFAULT,),
        "annotations that Services may have, by their names without the prefix; `default`: those that the table below "
        "marks with a yes; `*`: all of them; an empty value: none",
        annotation_names,
        ours=True,
    )
    allowed_load_balancer_ips: tuple[IPNetwork, ...] = key(
        (),
        "addresses that `loadBalancerIP` may ask for; `none` if left out. A Service always keeps the address that it "
        "has, and may ask for the floating IP that was made for a Service of its name",
        addresses,
        ours=True,
    )
    sharing: str = key(
        "namespace",
        "whose load balancers the annotation `load-balancer-id` may name, beside the Service's own: nobody's, those of "
        "Services in its namespace, those of Services in this cluster, or any one in the project",
        one_of(*SHARING),
        ours=True,
    )
    default_tls_container_ref: str = key("", "the certificate of Services that name none")
    provider_requires_serial_api_calls: bool = key(False, "make the parts of a load balancer one by one", boolean)


@dataclass(frozen=True)
class BlockStorage:
    ignore_volume_az: bool = key(False, "PersistentVolumes get no label of a zone", boolean)


@dataclass(frozen=True)
class Runtime:
    """Ours. cloud-provider-openstack logs a warning about the section, and goes on."""

    regional: bool = key(
        False, "providerIDs name the region; the environment's `OS_CCM_REGIONAL=true` says the same", boolean, ours=True
    )
    calls_per_second: float = key(
        20.0,
        "operations begun in a second, on average: to read a page of Nodes, to write a load balancer. Each makes as "
        "many requests as it has things to read and write, with managed security groups one for each node's port",
        number,
        ours=True,
    )
    burst: int = key(40, "operations begun at once after a pause", count, ours=True)
    concurrency: int = key(
        10, "operations under way; at most twice as many requests are waited for at a time", count, ours=True
    )
    page_size: int = key(1000, "entries of a page; nova gives 1,000 at most, unless it is configured", count, ours=True)


#: The section that there is one of for each class.
CLASS = "LoadBalancerClass"
#: Section, as it is spelt in documents -> its keys.
SECTIONS: dict[str, type] = {
    "Global": Global,
    "Networking": Networking,
    "Route": RouteSection,
    "Metadata": Metadata,
    "LoadBalancer": LoadBalancerSection,
    "LoadBalancerClass": LoadBalancerClass,
    "BlockStorage": BlockStorage,
    "Runtime": Runtime,
}

#: Keys that are taken and have no effect: section, key -> why.
IGNORED: dict[tuple[str, str], str] = {
    ("Metadata", "search-order"): "the node's own metadata is not read: all nodes are known from the cloud's API",
    (
        "LoadBalancer",
        "container-store",
    ): "Octavia gets a certificate's reference as it stands; no store is asked before",
    ("BlockStorage", "bs-version"): "read by the CSI driver",
    ("BlockStorage", "trust-device-path"): "read by the CSI driver",
    ("BlockStorage", "node-volume-attach-limit"): "read by the CSI driver",
    ("BlockStorage", "rescan-on-resize"): "read by the CSI driver",
}
#: Keys that are known and refused: section, key -> why, and what to do.
REFUSED: dict[tuple[str, str], str] = {
    ("Global", "secret-name"): "credentials are not read from a Secret by name: put them into this file",
    ("Global", "secret-namespace"): "credentials are not read from a Secret by name: put them into this file",
    ("Global", "kubeconfig-path"): "of no use without secret-name: remove it",
    ("LoadBalancer", "monitor"): "is not a key; did you mean create-monitor?",
}

# SPDX-License-Identifier: Apache-2.0
"""The sections and keys of cloud.conf, as in cloud-provider-openstack. No I/O.

Each field below is one key, with name, default, kind and meaning; the documentation is generated from them. `settings`
reads the keys, and `settings_rules` finds contradictions.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ccm.cloud import Invalid
from ccm.cloud.toolkit import limit_settings as limits
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
    one_of,
    whole_number,
)

from . import name_patterns
from .annotations import BY_NAME

METHODS = ("ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT")
INTERFACES = {
    **dict.fromkeys(("public", "publicURL"), "public"),
    **dict.fromkeys(("internal", "internalURL"), "internal"),
    **dict.fromkeys(("admin", "adminURL"), "admin"),
}

#: Values of `allowed-annotations`. `EVERY`: all annotations. `DEFAULT`: those that are allowed if the key is not set.
EVERY, DEFAULT = "*", "default"
#: Values of `allowed-load-balancer-ips`. `ANY`: all addresses. `NONE`: no address.
ANY, NONE = "any", "none"
EVERYWHERE: tuple[IPNetwork, ...] = (ipaddress.IPv4Network("0.0.0.0/0"), ipaddress.IPv6Network("::/0"))
#: Whose load balancers `load-balancer-id` may name.
SHARING = ("never", "namespace", "cluster", "project")


# Kinds of values that are specific to OpenStack.


def attempts(raw: str) -> int:
    """Parse a number of checks, in the range that Octavia accepts. Raises ValueError."""
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
    except Invalid:  # RE2's error quotes the pattern
        raise ValueError("expected a glob, or ~ and an RE2 regular expression") from None
    return raw


def annotation_names(raw: str) -> tuple[str, ...]:
    """Parse `*`, `default`, or names of annotations (without their prefix), separated by commas. Return () for an empty
    text. Raises ValueError for an unknown name."""
    names = tuple(part.strip() for part in raw.split(",") if part.strip())
    if not all(each in (EVERY, DEFAULT) or each in BY_NAME for each in names):
        raise ValueError(f"expected names of annotations, {DEFAULT} or {EVERY}; known are {', '.join(BY_NAME)}")
    return names


def addresses(raw: str) -> tuple[IPNetwork, ...]:
    """Parse `any` (all addresses), `none` (no address), or CIDRs separated by commas. Raises ValueError."""
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
    """Credentials, and the address of keystone."""

    auth_url: str = key("", "keystone's address, such as `https://keystone.example.com:5000/v3`")
    username: str = key("", "the user's name; needs a domain")
    user_id: str = key("", "the user's ID, instead of `username` and its domain")
    password: str = key("", "the user's password", secret=True)
    tenant_id: str = key("", "the project's ID")
    tenant_name: str = key("", "the project's name, if there is no `tenant-id`; needs a domain")
    domain_id: str = key("", "the ID of the domain of user and project, unless the keys below are set")
    domain_name: str = key("", "the name of the domain of user and project, if there is no `domain-id`")
    user_domain_id: str = key("", "the ID of the user's domain")
    user_domain_name: str = key("", "the name of the user's domain, if there is no `user-domain-id`")
    tenant_domain_id: str = key("", "the ID of the project's domain")
    tenant_domain_name: str = key("", "the name of the project's domain, if there is no `tenant-domain-id`")
    application_credential_id: str = key("", "the ID of an application credential, instead of user and project")
    application_credential_name: str = key(
        "", "the name of an application credential, if there is no ID; needs `user-id` or `username`"
    )
    application_credential_secret: str = key("", "the secret of the application credential", secret=True)
    trust_id: str = key(
        "", "a trust, which determines the project; its trustee is the user, or `trustee-id` with `trustee-password`"
    )
    trustee_id: str = key("", "the ID of the trustee, instead of `user-id` or `username`")
    trustee_password: str = key("", "the trustee's password, instead of `password`", secret=True)
    token: str = key("", "a token; it cannot be renewed, so use it for tests only", secret=True)
    region: str = key("", "the region; the first one of the catalogue if not set")
    os_endpoint_type: str = key(
        "", "the kind of endpoints to use from the catalogue; `public` if clouds.yaml does not set it either", interface
    )
    ca_file: str = key("", "CA certificates that verify the cloud's certificates, instead of the system's")
    cert_file: str = key("", "the client certificate, for clouds that require one")
    key_file: str = key("", "the key of the client certificate")
    tls_insecure: bool | None = key(
        None, "do not verify the cloud's certificates; `false` if clouds.yaml does not set it either", boolean
    )
    use_clouds: bool = key(False, "read the settings that are missing here from a clouds.yaml", boolean)
    clouds_file: str = key(
        "", "the path of the clouds.yaml; if not set, `~/.config/openstack` and `/etc/openstack` are searched"
    )
    cloud: str = key("", "the cloud's name in clouds.yaml")


@dataclass(frozen=True)
class Networking:
    ipv6_support_disabled: bool = key(False, "ignore IPv6 addresses", boolean)
    public_network_name: tuple[str, ...] = key((), "networks whose addresses are ExternalIP", names)
    internal_network_name: tuple[str, ...] = key((), "the only networks whose addresses are InternalIP", names)
    address_sort_order: tuple[IPNetwork, ...] = key(
        (), "CIDRs in the order in which their addresses are sorted; other addresses keep their order", networks
    )


@dataclass(frozen=True)
class RouteSection:
    router_id: str = key("", "the router that gets the routes to Pods; if not set, there is no route controller")


@dataclass(frozen=True)
class Metadata:
    request_timeout: float = key(60.0, "timeout of one request to any OpenStack service", duration)


@dataclass(frozen=True)
class LoadBalancerClass:
    """A section `[LoadBalancerClass "name"]`, chosen by the annotation `loadbalancer.openstack.org/class`."""

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
    lb_version: str = key("v2", "the only supported version", one_of("v2"))
    use_octavia: bool = key(True, "must be true, because only Octavia is supported", boolean)
    lb_provider: str = key("amphora", "Octavia's provider: `amphora`, `ovn`, or another that the cloud has")
    lb_method: str = key("ROUND_ROBIN", "how connections are spread; `ovn` needs SOURCE_IP_PORT", one_of(*METHODS))
    subnet_id: str = key("", "the subnet of the load balancers' addresses; the nodes' subnet if not set")
    member_subnet_id: str = key("", "the subnet of the nodes' addresses, if it differs from `subnet-id`")
    network_id: str = key("", "the network of the load balancers' addresses, instead of `subnet-id`")
    floating_network_id: str = key(
        "",
        "the network of floating IPs; if not set, the external network with the lowest ID, and an Event lists the "
        "external networks if there are several",
    )
    floating_subnet_id: str = key("", "the ID of the subnet that floating IPs are taken from")
    floating_subnet: str = key(
        "",
        "the name of that subnet, if there is no ID: a glob, or `~` and a regular expression; a leading `!` negates",
        subnet_names,
    )
    floating_subnet_tags: str = key(
        "", "tags of that subnet, if there is no ID: any of them; after `&`, all of them; after `!`, none of them"
    )
    create_monitor: bool = key(False, "create health monitors", boolean)
    monitor_delay: float = key(5.0, "the time between two checks, in whole seconds", duration)
    monitor_timeout: float = key(3.0, "the timeout of a check, in whole seconds", duration)
    monitor_max_retries: int = key(1, "successful checks until a member is up", attempts)
    monitor_max_retries_down: int = key(3, "failed checks until a member is down", attempts)
    manage_security_groups: bool = key(False, "create a security group for each Service, on the nodes' ports", boolean)
    internal_lb: bool = key(False, "create all load balancers without a floating IP", boolean)
    node_selector: str = key("", "labels of the nodes that become members: `key=value` or `key`", node_labels)
    cascade_delete: bool = key(True, "delete a load balancer with all its parts in one call", boolean)
    flavor_id: str = key("", "the ID of Octavia's flavor")
    availability_zone: str = key("", "the load balancers' zone")
    enable_ingress_hostname: bool = key(False, "with the PROXY protocol, publish a host name, not the address", boolean)
    ingress_hostname_suffix: str = key("nip.io", "the suffix that follows the address in that host name")
    max_shared_lb: int = key(2, "how many Services may share a load balancer", count)
    max_members: int = key(
        0,
        "the maximum number of members of a Service's load balancer, in all pools together; 0 for no limit. If there "
        "are too many nodes, only some are members, and a node that joins or leaves replaces at most one of these",
        whole_number(0, 100_000),
        ours=True,
    )
    allowed_annotations: tuple[str, ...] = key(
        (DEFAULT,),
        "annotations that Services may use, by name without the prefix; `default`: those marked with a yes in the "
        "table below; `*`: all of them; an empty value: none",
        annotation_names,
        ours=True,
    )
    allowed_load_balancer_ips: tuple[IPNetwork, ...] = key(
        (),
        "addresses that `loadBalancerIP` may request; `none` if not set. A Service always keeps its current address, "
        "and may request the floating IP that was created for a Service of its name",
        addresses,
        ours=True,
    )
    sharing: str = key(
        "namespace",
        "whose load balancers the annotation `load-balancer-id` may name, besides the Service's own: nobody's, those "
        "of Services in its namespace, those of Services in this cluster, or any in the project",
        one_of(*SHARING),
        ours=True,
    )
    default_tls_container_ref: str = key("", "the certificate of Services that set none")
    provider_requires_serial_api_calls: bool = key(False, "create the parts of a load balancer one by one", boolean)


@dataclass(frozen=True)
class BlockStorage:
    ignore_volume_az: bool = key(False, "do not label PersistentVolumes with a zone", boolean)


@dataclass(frozen=True)
class Runtime:
    """The section [Runtime], which cloud-provider-openstack does not have: it logs a warning about it and continues."""

    regional: bool = key(
        False, "include the region in providerIDs, as the variable `OS_CCM_REGIONAL=true` does", boolean, ours=True
    )
    calls_per_second: float = limits.calls_per_second(
        20.0,
        "how many calls start in a second, on average. A call reads a page of Nodes or writes a load balancer, for "
        "example, and sends as many requests as it needs; with managed security groups, one for each node's port",
    )
    burst: int = limits.burst(40)
    concurrency: int = limits.concurrency(
        10, "how many calls run at a time; at most twice as many requests are open at a time"
    )
    page_size: int = key(1000, "entries per page; nova returns at most 1,000 by default", count, ours=True)


#: The section that exists once for each class.
CLASS = "LoadBalancerClass"
#: Section, as spelled in documents -> its keys.
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

#: Keys that are accepted and have no effect: section, key -> reason.
IGNORED: dict[tuple[str, str], str] = {
    ("Metadata", "search-order"): "node metadata is not read: the cloud's API lists all nodes",
    (
        "LoadBalancer",
        "container-store",
    ): "certificate references are passed to Octavia unchanged; no container store is queried",
    ("Metadata", "dhcp-domain"): "node metadata is not read: the cloud's API lists all nodes",
    ("BlockStorage", "ignore-volume-microversion"): "read by the CSI driver",
    ("BlockStorage", "bs-version"): "read by the CSI driver",
    ("BlockStorage", "trust-device-path"): "read by the CSI driver",
    ("BlockStorage", "node-volume-attach-limit"): "read by the CSI driver",
    ("BlockStorage", "rescan-on-resize"): "read by the CSI driver",
}
#: Sections that other programs read from the same file: name -> reason.
FOREIGN: dict[str, str] = {"KeyManager": "read by Barbican's KMS plugin"}
#: Section -> groups of keys. Of each group, only the first key that is set has an effect, because deployment tools set
#: several keys of a group.
FIRST_OF: dict[str, tuple[tuple[str, ...], ...]] = {
    "Global": (
        ("tenant-id", "tenant-name"),
        ("domain-id", "domain-name"),
        ("user-domain-id", "user-domain-name"),
        ("tenant-domain-id", "tenant-domain-name"),
        ("application-credential-id", "application-credential-name"),
    ),
    "LoadBalancer": (("floating-subnet-id", "floating-subnet"), ("floating-subnet-id", "floating-subnet-tags")),
    "LoadBalancerClass": (("floating-subnet-id", "floating-subnet"), ("floating-subnet-id", "floating-subnet-tags")),
}
#: Keys that are known and refused: section, key -> reason, and what to do.
REFUSED: dict[tuple[str, str], str] = {
    ("Global", "secret-name"): "credentials cannot be read from a Secret by name: put them into this file",
    ("Global", "secret-namespace"): "credentials cannot be read from a Secret by name: put them into this file",
    ("Global", "kubeconfig-path"): "has no effect without secret-name: remove it",
    ("LoadBalancer", "monitor"): "is not a key; did you mean create-monitor?",
}

# SPDX-License-Identifier: Apache-2.0
"""The sections and keys of vsphere.conf, as in cloud-provider-vsphere. No I/O.

Each field is one key: `insecure_flag` is `insecure-flag` in INI and `insecureFlag` in YAML. The documentation is
generated from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ccm.cloud.toolkit import limit_settings as limits
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import IPNetwork, boolean, key, networks, port

FAMILIES = ("ipv4", "ipv6")


def families(raw: str) -> tuple[str, ...]:
    """Parse IP families in the order of their priority. Raises ValueError."""
    names = tuple(part.strip().lower() for part in raw.split(",") if part.strip())
    if not set(names) <= set(FAMILIES) or len(set(names)) < len(names):
        raise ValueError("expected ipv4, ipv6, or both separated by a comma")
    return names


def listed(raw: str) -> tuple[str, ...]:
    """Parse names separated by commas."""
    return tuple(dict.fromkeys(each.strip() for each in raw.split(",") if each.strip()))


def fingerprint(raw: str) -> str:
    """Parse a digest of a certificate, with or without colons, to lower-case hexadecimal digits. Raises ValueError."""
    digits = raw.replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", digits):
        raise ValueError("expected the SHA-1 or SHA-256 of the certificate in hexadecimal digits")
    return digits


KINDS = {
    **COMMON_KINDS,
    families: "`ipv4`, `ipv6`, or both in the order of their priority",
    listed: "names, separated by commas; a list in YAML",
    fingerprint: "SHA-1 or SHA-256 in hexadecimal digits",
}


@dataclass(frozen=True)
class VirtualCenter:
    """One vCenter. What is not set here is taken from `Global`."""

    user: str = key("", "the user's name, such as `ccm@vsphere.local`")
    password: str = key("", "the user's password", secret=True)
    server: str = key("", "the address or DNS name of the vCenter; in INI, if not set, the section's name")
    port: int = key(0, "the port; 443 if not set", port)
    insecure_flag: bool = key(False, "do not verify the vCenter's certificate", boolean)
    datacenters: tuple[str, ...] = key((), "read only these datacenters, by name or path; if not set, all", listed)
    ca_file: str = key("", "a file with the certificates of the authority; if not set, the system's are used")
    thumbprint: str = key("", "accept only the certificate with this digest", fingerprint)
    secret_name: str = key("", "the Secret with user and password; see below")
    secret_namespace: str = key("", "the namespace of that Secret")
    ip_family: tuple[str, ...] = key((), "the families of the Nodes' addresses; `ipv4` if not set", families)


@dataclass(frozen=True)
class Global(VirtualCenter):
    """Defaults for all vCenters. With `server`, this section also describes one vCenter."""

    secrets_directory: str = key("", "a folder with the files of a mounted Secret; see below")


@dataclass(frozen=True)
class Labels:
    """The categories of the tags that name zones and regions."""

    zone: str = key("", "the category whose tags name zones")
    region: str = key("", "the category whose tags name regions")


@dataclass(frozen=True)
class Nodes:
    """Which addresses of a machine its Node gets."""

    internal_network_subnet_cidr: tuple[IPNetwork, ...] = key((), "prefer these networks for the InternalIP", networks)
    external_network_subnet_cidr: tuple[IPNetwork, ...] = key((), "prefer these networks for the ExternalIP", networks)
    internal_vm_network_name: str = key("", "the port group of the InternalIP, if no preferred network has an address")
    external_vm_network_name: str = key("", "the port group of the ExternalIP, if no preferred network has an address")
    exclude_internal_network_subnet_cidr: tuple[IPNetwork, ...] = key(
        (), "never use addresses of these networks as InternalIP", networks
    )
    exclude_external_network_subnet_cidr: tuple[IPNetwork, ...] = key(
        (), "never use addresses of these networks as ExternalIP", networks
    )


@dataclass(frozen=True)
class Runtime:
    """The limits of this provider's calls. cloud-provider-vsphere does not have this section."""

    request_timeout: float = limits.request_timeout(20.0)
    page_size: int = limits.page_size(500, 1, 1000, "machines in a page of a listing")
    calls_per_second: float = limits.calls_per_second(10.0, "how many listings and reads start in a second, on average")
    burst: int = limits.burst(20, "how many listings and reads may start at once after a pause")


#: Section as documented -> its dataclass. Names in INI are case-insensitive; YAML has `SECTION_OF_YAML`.
SECTIONS: dict[str, type] = {
    "Global": Global,
    "VirtualCenter": VirtualCenter,
    "Labels": Labels,
    "Nodes": Nodes,
    "Runtime": Runtime,
}
SECTION_OF_YAML = {
    "global": "Global",
    "vcenter": "VirtualCenter",
    "labels": "Labels",
    "nodes": "Nodes",
    "runtime": "Runtime",
}
_IN_TREE = "it belongs to the volumes of Kubernetes' former in-tree provider; the CSI driver has its own configuration"
_CSI = "it belongs to the CSI driver"
_LOOPS = "the framework itself retries failed calls"
#: Section and key without effect here -> the reason.
IGNORED = {
    **{(section, "soap-roundtrip-count"): _LOOPS for section in ("Global", "VirtualCenter")},
    **{("Global", key): _IN_TREE for key in ("datastore", "working-dir", "vm-uuid", "vm-name")},
    ("Global", "datacenter"): "it belongs to Kubernetes' former in-tree provider; use datacenters to read only some",
    **{("Global", key): _CSI for key in ("cluster-id", "cluster-distribution")},
    ("Global", "api-disable"): "this provider has no such API",
    ("Global", "api-binding"): "this provider has no such API",
}
#: Sections of other programs that people have in this file -> the reason why they have no effect, as in
#: cloud-provider-vsphere. In YAML, their names are in lower case.
FOREIGN = {
    **dict.fromkeys(("workspace", "disk", "network"), _IN_TREE),
    **dict.fromkeys(("snapshot", "netpermissions", "topologycategory"), _CSI),
}
#: Sections of cloud-provider-vsphere that this provider refuses.
REFUSED = {
    name: "NSX-T is not supported: remove the section, and let cloud-provider-vsphere serve Services and routes"
    for name in ("nsxt", "loadbalancer", "loadbalancerclass", "route")
}
#: Environment variable that overrides a key -> the key's section and field, as in cloud-provider-vsphere.
VARIABLES = {
    "VSPHERE_LABEL_ZONE": ("Labels", "zone"),
    "VSPHERE_LABEL_REGION": ("Labels", "region"),
    "VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR": ("Nodes", "internal_network_subnet_cidr"),
    "VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR": ("Nodes", "external_network_subnet_cidr"),
    "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME": ("Nodes", "internal_vm_network_name"),
    "VSPHERE_NODES_EXTERNAL_VM_NETWORK_NAME": ("Nodes", "external_vm_network_name"),
    "VSPHERE_SECRETS_DIRECTORY": ("Global", "secrets_directory"),
}

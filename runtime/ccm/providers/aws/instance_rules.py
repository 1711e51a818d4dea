# SPDX-License-Identifier: Apache-2.0
"""Converts EC2 instances to the contract's instances: providerID, names, addresses in order, zone and labels. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ccm.cloud import Address, AddressType, Instance, InstanceState, Transient
from ccm.cloud.toolkit.pod_ranges import pod_ranges

#: A providerID. Older spellings have no zone. ProviderIDs of Fargate (`aws:///ZONE/fargate-IP`) are left to others.
PROVIDER_ID = re.compile(r"aws:///(?P<zone>[a-z0-9-]*)/(?P<id>i-[0-9a-f]{1,32})")
#: An instance ID in the name of a Node. Text of another length is an ordinary name.
INSTANCE_ID = re.compile(r"i-([0-9a-f]{8}|[0-9a-f]{17})")
ZONE_ID = "topology.k8s.aws/zone-id"
#: The state of an instance that is gone, although EC2 shows it for an hour.
GONE = "terminated"

Row = Mapping[str, Any]


def instance_id(provider_id: str) -> str | None:
    """Return the instance's ID, None for anything that is not an instance of EC2."""
    match = PROVIDER_ID.fullmatch(provider_id)
    return match["id"] if match else None


def canonical(provider_id: str) -> str | None:
    """Return the providerID itself. None for the older spelling without a zone, because only EC2 knows the instance's
    zone, and for anything that is not an instance of EC2."""
    match = PROVIDER_ID.fullmatch(provider_id)
    return provider_id if match and match["zone"] else None


def provider_id(zone: str, id: str) -> str:
    return f"aws:///{zone}/{id}"


def named_id(node_name: str) -> str | None:
    """Return the instance's ID if EC2's resource-based naming made this name, with or without a domain; None for other
    names."""
    label = node_name.partition(".")[0]
    return label if INSTANCE_ID.fullmatch(label) else None


def exists(row: Row) -> bool:
    return bool((row.get("State") or {}).get("Name", GONE) != GONE)


def instance(row: Row, region: str, families: Sequence[str], zone_ids: Mapping[str, str]) -> Instance:
    """Return the instance of a row of DescribeInstances. `zone_ids`: zone -> its ID. Raises Transient if the row has
    another shape."""
    try:
        id, zone = str(row["InstanceId"]), str(row["Placement"]["AvailabilityZone"])
        name, *aliases = names(row)
        return Instance(
            provider_id=provider_id(zone, id),
            name=name,
            aliases=tuple(aliases),
            type=str(row["InstanceType"]),
            zone=zone,
            region=region,
            addresses=tuple(addresses(row, families)),
            state=InstanceState.SHUTDOWN if row["State"]["Name"] == "stopped" else InstanceState.RUNNING,
            labels={ZONE_ID: zone_ids[zone]} if zone in zone_ids else {},
            pod_cidrs=pod_ranges(prefixes(row)),
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("an instance in the answer does not have the form that EC2's API describes") from None


def names(row: Row) -> list[str]:
    """Return the instance's names: the private DNS name first, then the ID and the names of resource-based naming and
    of IP-based naming."""
    id, dns = str(row["InstanceId"]), str(row.get("PrivateDnsName") or "")
    domain = dns.partition(".")[2]
    candidates = [dns, id, f"{id}.{domain}" if domain else ""]
    if domain and named_id(dns) and (address := row.get("PrivateIpAddress")):
        candidates.append(f"ip-{str(address).replace('.', '-')}.{domain}")
    return list(dict.fromkeys(each for each in candidates if each))


def addresses(row: Row, families: Sequence[str]) -> Iterator[Address]:
    """Yield the instance's addresses, by IP family in the configured order, so that Nodes keep the order that
    cloud-provider-aws gave them. Raises ValueError for text that is no address."""
    interfaces = sorted(row.get("NetworkInterfaces") or (), key=device_index)
    in_use = [interface for interface in interfaces if interface.get("Status") == "in-use"]
    for family in families:
        yield from _ipv4(row, in_use) if family == "ipv4" else _ipv6(in_use)


def device_index(interface: Row) -> int:
    """Return the position of a network interface; those that are not attached come last."""
    attachment = interface.get("Attachment")
    return int(attachment.get("DeviceIndex") or 0) if attachment else 1 << 16


def _ipv4(row: Row, interfaces: Sequence[Row]) -> Iterator[Address]:
    for interface in interfaces:
        for address in interface.get("PrivateIpAddresses") or ():
            if text := address.get("PrivateIpAddress"):
                yield Address(AddressType.INTERNAL_IP, str(ipaddress.IPv4Address(text)))
    if text := row.get("PublicIpAddress"):
        yield Address(AddressType.EXTERNAL_IP, str(ipaddress.IPv4Address(text)))
    if text := row.get("PrivateDnsName"):
        yield Address(AddressType.INTERNAL_DNS, str(text))
        yield Address(AddressType.HOSTNAME, str(text))
    if text := row.get("PublicDnsName"):
        yield Address(AddressType.EXTERNAL_DNS, str(text))


def _ipv6(interfaces: Sequence[Row]) -> Iterator[Address]:
    """Yield the first IPv6 address of each interface."""
    for interface in interfaces:
        for address in (interface.get("Ipv6Addresses") or ())[:1]:
            yield Address(AddressType.INTERNAL_IP, str(ipaddress.IPv6Address(address["Ipv6Address"])))


def prefixes(row: Row) -> Iterator[object]:
    """Yield the first IPv6 prefix that is delegated to the primary interface, if there is one; cloud-provider-aws
    refuses several. Prefixes of other interfaces, and IPv4 prefixes, belong to network plugins."""
    interfaces = row.get("NetworkInterfaces") or ()
    for interface in [each for each in interfaces if each.get("Attachment") and device_index(each) == 0][:1]:
        for ipv6_prefix in (interface.get("Ipv6Prefixes") or ())[:1]:
            yield ipv6_prefix.get("Ipv6Prefix")


def named_address(node_name: str) -> str:
    """Return the IPv4 address if EC2's IP-based naming made this name, such as ip-10-0-0-1.ec2.internal; "" for other
    names."""
    match = re.fullmatch(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(\..*)?", node_name)
    return ".".join(match.groups()[:4]) if match else ""

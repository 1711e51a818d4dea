# SPDX-License-Identifier: Apache-2.0
"""Floating IPs of load balancers: which one a Service gets, and which one is deleted with it.

Only floating IPs that were created for a Service are ever deleted. Their description says so, in the format of
cloud-provider-openstack. A floating IP that the user chose is detached and not deleted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ccm.cloud import CloudError, Conflict, Invalid, KeptLoadBalancer, NotFound, QuotaExceeded
from ccm.cloud.toolkit.digests import NOT_COUNTED

from ..api import of_project, unless_changed
from ..name_patterns import name_matches
from . import permissions
from .load_balancer_owners import default_name, load_balancer_name

if TYPE_CHECKING:
    from ..api import Api

Row = Mapping[str, Any]

NETWORK = "network"
#: Number of subnets that a message names.
NAMED = 20
#: The beginning of the description by which cloud-provider-openstack recognises floating IPs that a controller created.
MADE = "Floating IP for Kubernetes external service"
#: The namespace and the cluster in that description.
_WHOSE = re.compile(rf"{MADE} (?P<namespace>[^/ ]+)/[^/ ]+ from cluster (?P<cluster>.*)")
#: What this provider appends to that description: the UID of the Service.
UID = re.compile(r" \([^() ]{1,64}\)$")


@dataclass(frozen=True)
class DesiredFloatingIP:
    """The desired floating IP.

    `network_id`: "" to look for an external network. `pattern`, `tags`: those of subnets, if there is no `subnet_id`.
    `address`: the requested address, "" for any. `may_ask`: the administrator allows this address; `may_take_others`:
    the administrator allows it even if it was created for a Service of another name.
    """

    network_id: str
    subnet_id: str
    pattern: str
    tags: str
    address: str
    description: str
    may_ask: bool = field(default=True, metadata=NOT_COUNTED)
    may_take_others: bool = field(default=False, metadata=NOT_COUNTED)

    def keys(self) -> dict[str, str]:
        """Return the settings that choose network and subnet, by their names in annotations and cloud.conf."""
        texts = {
            "floating-network-id": self.network_id,
            "floating-subnet-id": self.subnet_id,
            "floating-subnet": self.pattern,
            "floating-subnet-tags": self.tags,
        }
        return {key: value for key, value in texts.items() if value}


def was_made(row: Row) -> bool:
    """Return whether a controller created the floating IP, for any Service."""
    return MADE in (row.get("description") or "")


def made_for(row: Row, description: str) -> bool:
    """Return whether the floating IP was created for the Service whose floating IPs have this description.

    Descriptions by cloud-provider-openstack have no UID; then name, namespace and cluster must be equal.
    """
    present = str(row.get("description") or "")
    return was_made(row) and (present == description or present == _without_uid(description))


def made_for_balancer(row: Row, uid: str, balancer: str, *, owner: bool, address: str) -> bool:
    """Like `made_for`, for a floating IP on the VIP of the load balancer named `balancer`, which is being deleted.

    Return whether the floating IP was created for the Service with this UID, or for the Service that the load balancer
    was created for. The latter is recognised by the name `balancer`. `owner`: both are the same Service. Then a
    floating IP at the `address` that this Service requests, but without its UID, may be kept from a former Service of
    the same name, so the result is False.
    """
    description = str(row.get("description") or "")
    if not was_made(row) or description.endswith(f" ({uid})"):
        return was_made(row)
    if owner and address == row.get("floating_ip_address"):
        return False
    service, _, cluster = _without_uid(description).removeprefix(MADE).strip().partition(" from cluster ")
    return (
        balancer in (load_balancer_name(cluster, *service.split("/", 1)), default_name(uid))
        if "/" in service
        else False
    )


def is_used_again(row: Row | None, desired: DesiredFloatingIP) -> bool:
    """Return whether the floating IP was requested and not created for this Service. Such a floating IP outlives the
    Service."""
    if row is None or not desired.address or row.get("floating_ip_address") != desired.address:
        return False
    return bool(row.get("description") != desired.description)


def made_for_namesake(row: Row, description: str) -> bool:
    """Return whether the floating IP was created for this Service, or for one of the same name, namespace and cluster.

    Return False if a description is truncated, because it cannot be compared.
    """
    present = str(row.get("description") or "")
    whole = len(present) < 255 and len(description) < 255
    return was_made(row) and whole and _without_uid(present) == _without_uid(description)


def kept_addresses(rows: Iterable[Row], cluster: str) -> list[KeptLoadBalancer]:
    """Return the floating IPs that were created for Services of a cluster and are on no port."""
    unused = (row for row in rows if not row.get("port_id") and was_made(row))
    owned = ((row, _WHOSE.fullmatch(_without_uid(str(row["description"])))) for row in unused)
    return [
        KeptLoadBalancer("", whose["namespace"], str(row.get("floating_ip_address") or ""))
        for row, whose in owned
        if whose is not None and whose["cluster"] == cluster
    ]


def _without_uid(description: str) -> str:
    return UID.sub("", description)


def refusal(desired: DesiredFloatingIP, row: Row | None) -> Invalid | None:
    """Return why a Service cannot have the address that it requests; None if it can.

    `row`: the floating IP, if the project has one at that address.
    """
    if row is not None and made_for_namesake(row, desired.description):
        return None
    if not desired.may_ask:
        return permissions.refused_address(desired.address)
    if row is not None and was_made(row) and not desired.may_take_others:
        return Invalid(
            f"loadBalancerIP: the floating IP {desired.address} was created for another Service; set "
            f"{permissions.ADDRESSES} to any to allow this Service to take it"
        )
    return None


def tags_match(spec: str, tags: Iterable[str]) -> bool:
    """Return whether a subnet's tags match `spec`. `a,b`: the subnet has any of them; `&a,b`: all; `!a,b`: none;
    `!&a,b`: not all."""
    negated = spec.startswith("!")
    spec = spec.removeprefix("!")
    every = spec.startswith("&")
    required = {tag.strip() for tag in spec.removeprefix("&").split(",")} - {""}
    matching = required & set(tags)
    return (matching == required if every else bool(matching)) is not negated


def candidates(desired: DesiredFloatingIP, subnets: Sequence[Row]) -> list[str]:
    """Return IDs of the subnets that a floating IP may be taken from, in their order. Raises Invalid if none match."""
    subnet_ids = [
        row["id"]
        for row in subnets
        if (not desired.pattern or name_matches(desired.pattern, row.get("name") or ""))
        and (not desired.tags or tags_match(desired.tags, row.get("tags") or ()))
    ]
    if not subnet_ids:
        criteria = " and ".join(
            f"{key} {value!r}"
            for key, value in (("floating-subnet", desired.pattern), ("floating-subnet-tags", desired.tags))
            if value
        )
        every = sorted(str(row.get("name") or row["id"]) for row in subnets)
        names = ", ".join(every[:NAMED]) + (", ..." if len(every) > NAMED else "") or "none"
        raise Invalid(f"no subnet of network {desired.network_id} matches {criteria}: its subnets are {names}")
    return subnet_ids


def subnet_of(address: str, subnets: Sequence[Row]) -> Row | None:
    """Return the subnet that contains the address, None if none of them does."""
    ip = ipaddress.ip_address(address)
    return next((row for row in subnets if row.get("cidr") and ip in ipaddress.ip_network(row["cidr"])), None)


def unlike(desired: DesiredFloatingIP, subnet: Row) -> list[str]:
    """Return the keys of the request that a subnet does not match."""
    fulfilled = {
        "floating-subnet-id": desired.subnet_id in ("", subnet["id"]),
        "floating-subnet": not desired.pattern or name_matches(desired.pattern, subnet.get("name") or ""),
        "floating-subnet-tags": not desired.tags or tags_match(desired.tags, subnet.get("tags") or ()),
    }
    return [key for key, is_so in fulfilled.items() if not is_so]


def external_networks(networks: Sequence[Row], subnets: Sequence[Row]) -> list[Row]:
    """Return the external networks that may have IPv4 subnets, sorted by ID. If no network is configured, floating IPs
    come from the first one.

    A subnet that the project cannot see counts as IPv4.
    """
    versions = {row["id"]: row.get("ip_version") for row in subnets}
    return [
        row
        for row in sorted(networks, key=lambda row: str(row["id"]))
        if row.get("router:external") and any(versions.get(subnet, 4) == 4 for subnet in row.get("subnets") or ())
    ]


def network_warning(networks: Sequence[Row]) -> str:
    """Return the warning for Services whose floating IPs have no configured network: that there is no external network,
    or that there are several; "" if there is exactly one."""
    how = "choose it with floating-network-id in [LoadBalancer] of cloud.conf, or with the annotation of that name"
    if not networks:
        return (
            "there is no external network to take a floating IP from, so the load balancer is reachable only at its "
            f"own address, from inside the cloud; if there is one that the project cannot see, {how}"
        )
    if len(networks) == 1:
        return ""
    names = ", ".join(f"{row.get('name') or ''} ({row['id']})".strip() for row in networks)
    return (
        f"there are {len(networks)} external networks to take a floating IP from, and the one with the lowest ID is "
        f"used: {names}; {how}"
    )


class FloatingIps:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._external_networks: list[Row] | None = None

    async def all(self) -> list[dict[str, Any]]:
        """Return all floating IPs of the project."""
        return await self._rows()

    async def _rows(self, *filters: tuple[str, str]) -> list[dict[str, Any]]:
        return await self._api.pages(NETWORK, "/floatingips", "floatingips", [*filters, *of_project(self._api)])

    async def on(self, port_id: str) -> dict[str, Any] | None:
        """Return the floating IP on a port, None if it has none."""
        rows = await self._api.pages(NETWORK, "/floatingips", "floatingips", {"port_id": port_id})
        return next((row for row in rows if row.get("port_id") == port_id), None)

    async def can_be_had(self, desired: DesiredFloatingIP) -> bool:
        """Return whether a floating IP is possible: its network is configured, its address is requested, or there is an
        external network."""
        return bool(desired.network_id or desired.address or await self._network())

    def warning(self, desired: DesiredFloatingIP) -> str:
        """Return the warning about external networks; "" if settings choose one, or if networks were not looked for
        yet. No I/O."""
        chosen = desired.network_id or desired.address or self._external_networks is None
        return "" if chosen else network_warning(self._external_networks or [])

    async def ensure(self, desired: DesiredFloatingIP, port_id: str, *, fresh: bool) -> Row | None:
        """Return the floating IP by which a port is reached, None if there is no external network for it.

        `fresh`: the port was just created and replaces no other, so no floating IP can exist for it. Raises Conflict if
        the port has another floating IP than the requested one.
        """
        row = None if fresh else await self.on(port_id) or await self._left(desired, port_id)
        if row is None:
            row = await self._chosen(desired, port_id)
        if row is None:
            if not (network := desired.network_id or await self._network()):
                return None
            row = await self._create(desired, network, port_id)
        elif desired.address not in ("", row["floating_ip_address"]):
            raise Conflict(
                f"the load balancer has the floating IP {row['floating_ip_address']}, but loadBalancerIP requests "
                f"{desired.address}: delete the Service and create it again"
            )
        return row

    async def kept(self, desired: DesiredFloatingIP, row: Row) -> dict[str, str]:
        """Return the settings for new floating IPs that this existing one (`row`) does not match: key -> requested and
        actual value.

        If the Service requests an address, these settings do not matter, and the result is {}. Subnets that the project
        cannot see are skipped.
        """
        keys = desired.keys() if not desired.address else {}
        network, differences = str(row.get("floating_network_id") or ""), {}
        if network and desired.network_id != network and "floating-network-id" in keys:
            differences["floating-network-id"] = f"{desired.network_id} ({row['floating_ip_address']} is in {network})"
        if network and keys.keys() - {"floating-network-id"}:
            subnets = await self._api.pages(NETWORK, "/subnets", "subnets", {"network_id": network})
            if (subnet := subnet_of(str(row["floating_ip_address"]), subnets)) is not None:
                where = f"({row['floating_ip_address']} is in {subnet.get('name') or subnet['id']})"
                differences |= {key: f"{keys[key]} {where}" for key in unlike(desired, subnet)}
        return differences

    async def check(self, desired: DesiredFloatingIP) -> Row | None:
        """Return the floating IP at the address that a Service requests; None if it requests no address, or no floating
        IP has it.

        Raises Invalid if the Service may not have the address.
        """
        row = await self._at(desired.address) if desired.address else None
        if desired.address and (problem := refusal(desired, row)):
            raise problem
        return row

    async def release(self, port_id: str, description: str, address: str, *, keep: bool) -> None:
        """Remove the floating IP of a port that becomes internal.

        Delete it if it was created for this Service, unless `keep` is set. Otherwise detach it, if it was created for
        this Service or a namesake, or is at the `address` that the Service requested. Raises Conflict for any other.
        """
        row = await self.on(port_id)
        if row is None:
            return
        if made_for(row, description) and not keep:
            await self.delete(row)
        elif made_for(row, description) or made_for_namesake(row, description) or address == row["floating_ip_address"]:
            await self._attach(row, None)
        else:
            raise Conflict(
                f"the load balancer must become internal, but its port {port_id} has the floating IP "
                f"{row['floating_ip_address']}, which was not created for this Service: detach it from the port"
            )

    async def made(self, balancer: Row, uid: str, *, owner: bool, address: str) -> Row | None:
        """Return the floating IP that was created for a load balancer, None without one. Neutron detaches any other
        floating IP when the load balancer is deleted."""
        row = await self.on(str(balancer["vip_port_id"])) if balancer.get("vip_port_id") else None
        name = str(balancer.get("name") or "")
        return row if row is not None and made_for_balancer(row, uid, name, owner=owner, address=address) else None

    async def hand_over(self, port_id: str, description: str) -> None:
        """Give the floating IP on a port the description of the Service that takes back its load balancer. One that no
        controller created keeps its description."""
        row = await self.on(port_id)
        if row is not None and was_made(row) and row["description"] != description:
            path, body = f"/floatingips/{row['id']}", {"floatingip": {"description": description}}
            await self._api.call("PUT", NETWORK, path, body=body, missing=str(row["id"]))

    async def delete_left(self, uid: str) -> None:
        """Delete floating IPs that were created for a Service and lost their load balancer."""
        for row in await self.all():
            if was_made(row) and row["description"].endswith(f"({uid})") and not row.get("port_id"):
                await self.delete(row)

    async def delete(self, row: Row) -> None:
        try:
            await self._api.call("DELETE", NETWORK, f"/floatingips/{row['id']}", missing=str(row["id"]))
        except NotFound:
            return

    async def _left(self, desired: DesiredFloatingIP, port_id: str) -> dict[str, Any] | None:
        """Attach and return the floating IP that a former load balancer of this Service left. Return None if there is
        none, or if the Service requests an address."""
        if desired.address:
            return None
        rows = await self._rows(("description", desired.description), ("status", "DOWN"))
        for row in rows:
            if row.get("description") == desired.description and not row.get("port_id"):
                return await self._attach(row, port_id)
        return None

    async def _chosen(self, desired: DesiredFloatingIP, port_id: str) -> dict[str, Any] | None:
        """Attach and return the floating IP that the user requests. Return None if no address is requested, or no
        floating IP has it. Raises Conflict if another port uses the floating IP, or the error of `refusal`."""
        if not desired.address:
            return None
        floating_ip = await self._at(desired.address)
        if problem := refusal(desired, floating_ip):
            raise problem
        if floating_ip is None:
            return None
        if floating_ip.get("port_id") and floating_ip["port_id"] != port_id:
            raise Conflict(
                f"loadBalancerIP: the floating IP {desired.address} is in use by port {floating_ip['port_id']}"
            )
        return await self._attach(floating_ip, port_id)

    async def _at(self, address: str) -> dict[str, Any] | None:
        rows = await self._rows(("floating_ip_address", address))
        return next((row for row in rows if row.get("floating_ip_address") == address), None)

    async def _attach(self, row: Row, port_id: str | None) -> dict[str, Any]:
        """Attach the floating IP to a port, or detach it if `port_id` is None. Where neutron can compare revisions, the
        change names the revision that was read. So if two Services find the same floating IP free, only one gets it."""
        answer = await self._api.call(
            "PUT",
            NETWORK,
            f"/floatingips/{row['id']}",
            body={"floatingip": {"port_id": port_id}},
            headers=await unless_changed(self._api, row),
            missing=str(row["id"]),
        )
        return dict(answer["floatingip"])

    async def _create(self, desired: DesiredFloatingIP, network: str, port_id: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "floating_network_id": network,
            "port_id": port_id,
            "description": desired.description,
        }
        if desired.address:
            body["floating_ip_address"] = desired.address
        if desired.subnet_id or desired.address or not (desired.pattern or desired.tags):
            return await self._post(body | ({"subnet_id": desired.subnet_id} if desired.subnet_id else {}))
        rows = await self._api.pages(NETWORK, "/subnets", "subnets", {"network_id": network})
        failed: CloudError | None = None
        for subnet in candidates(desired, rows):
            try:
                return await self._post(body | {"subnet_id": subnet})
            except (QuotaExceeded, Conflict, Invalid) as error:  # this subnet is full; the next may not be
                failed = error
        assert failed is not None
        raise failed

    async def _post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._api.call("POST", NETWORK, "/floatingips", body={"floatingip": body})
        return dict(answer["floatingip"])

    async def _network(self) -> str:
        """Return the ID of an external network, "" if there is none."""
        networks = await self._networks()
        return str(networks[0]["id"]) if networks else ""

    async def _networks(self) -> Sequence[Row]:
        """Return the external networks. They are remembered once there is one."""
        if not self._external_networks:
            networks = await self._api.pages(NETWORK, "/networks", "networks", {"router:external": "true"})
            subnets = await self._api.pages(NETWORK, "/subnets", "subnets") if networks else []
            self._external_networks = external_networks(networks, subnets)
        return self._external_networks

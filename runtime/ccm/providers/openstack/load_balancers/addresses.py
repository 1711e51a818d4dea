# SPDX-License-Identifier: Apache-2.0
"""The address of a Service's load balancer, and the warnings about requests that cannot be fulfilled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm.cloud import Conflict
from ccm.cloud.toolkit.kept_settings import only_for_new

from ..annotations import unknown
from . import feature_rules, permissions
from . import load_balancer_rules as rules
from .floating_ips import FloatingIps, is_used_again
from .job import Job
from .listing import Balancers
from .load_balancer_rules import DesiredLoadBalancer, Row
from .vip_ports import check_port, second_subnet

if TYPE_CHECKING:
    from ..api import Api


class Addresses:
    def __init__(self, api: Api, balancers: Balancers, floating: FloatingIps) -> None:
        self._api, self._balancers, self._floating = api, balancers, floating
        self._section, self._classes = api.settings.load_balancer, api.settings.load_balancer_classes

    async def check(self, desired: DesiredLoadBalancer) -> bool:
        """Check that the Service may have the address and the port that it requests. Raises Invalid otherwise.

        Return whether the Service requests an existing floating IP that was not created for it.
        """
        used_again = False
        if desired.floating is not None:
            used_again = is_used_again(await self._floating.check(desired.floating), desired.floating)
        elif not permissions.may_have(desired.vip_address, self._section):
            raise permissions.refused_address(desired.vip_address)
        if desired.port_id:
            rows = await self._balancers.look()
            await check_port(self._api, self._floating, desired.port_id, desired.floating_description, rows.values())
        return used_again

    async def warnings(self, job: Job, address: str, floating: Row | None) -> tuple[str, ...]:
        """Return the warnings about a load balancer that serves the Service: settings that are ignored, or that count
        only for a new one.

        `floating`: the floating IP, None if there is none or if it was just created from these settings.
        """
        spec, desired, row, owner = job.spec, job.desired, job.row, job.owner
        texts = [self._floating.warning(desired.floating)] if desired.floating is not None and owner else []
        texts += feature_rules.left_out(spec, desired, job.features, self._section, self._classes)
        kept = feature_rules.kept(desired, row, job.features)
        if desired.also and not desired.second and job.features.additional_vips:
            network = str(row.get("vip_network_id") or "")
            if desired.port_id:
                texts.append(feature_rules.only_one_family(desired, "port-id names the port of its only VIP"))
            elif await second_subnet(self._api, str(row.get("vip_subnet_id") or ""), network, desired.also):
                kept["ipFamilies"] = f"{desired.family} and {desired.also} (it has {desired.family})"
            else:
                why = f"the network of its VIP has no {desired.also} subnet"
                texts.append(feature_rules.only_one_family(desired, why))
        if desired.floating is not None and floating is not None:
            kept |= await self._floating.kept(desired.floating, floating)
        # Settings in cloud.conf do not apply to a load balancer that was created for another Service.
        texts += only_for_new({key: what for key, what in kept.items() if owner or key in desired.given})
        if spec.load_balancer_ip and not owner and not rules.same_address(spec.load_balancer_ip, address):
            texts.append(
                f"loadBalancerIP requests {spec.load_balancer_ip}, but the load balancer was not created for this "
                f"Service and is reached at {address}"
            )
        texts.append(feature_rules.slow_monitor(desired))
        texts.append(permissions.warning(spec.annotations, self._section, row["id"]))
        if misspelt := unknown(spec.annotations):
            texts.append(f"unknown annotations, probably misspelled: {', '.join(misspelt)}")
        return tuple(filter(None, texts))

    async def flags(self, desired: DesiredLoadBalancer) -> str:
        """Return the flags of the Mark. Without an external network, the flag for a floating IP is not set."""
        flags = {
            "f": desired.floating is not None and await self._floating.can_be_had(desired.floating),
            "k": desired.keep_floating_ip,
            "p": bool(desired.proxy),
            "h": bool(desired.hostname or desired.suffix),
            "g": desired.security_groups,
            "n": desired.protected,
            "l": desired.keep_balancer,
            "d": bool(desired.second and desired.also),
        }
        return "".join(flag for flag, is_set in flags.items() if is_set)

    async def reach(
        self, desired: DesiredLoadBalancer, row: Row, owner: bool, fresh: bool = False
    ) -> tuple[str, Row | None]:
        """Return the address for clients, and the floating IP, None if clients use the VIP.

        For the owner, create or remove the floating IP as desired. Raises Conflict if another address is requested,
        because the address of a load balancer never changes. Also raises Conflict if a Service that only shares the
        load balancer needs a floating IP, and the load balancer has none.
        """
        port, vip = row.get("vip_port_id") or "", str(row.get("vip_address") or "")
        can_float = port and ":" not in vip
        if desired.floating is None or not can_float:
            if can_float and owner and not fresh:
                await self._floating.release(
                    port, desired.floating_description, desired.vip_address, keep=desired.keep_floating_ip
                )
            if owner and vip and desired.vip_address and not rules.same_address(desired.vip_address, vip):
                raise Conflict(
                    f"load balancer {row['id']} has the address {vip}, but loadBalancerIP requests "
                    f"{desired.vip_address}: delete the Service and create it again"
                )
            return vip, None
        if owner:
            made = await self._floating.ensure(desired.floating, port, fresh=fresh)
            return (str(made["floating_ip_address"]), made) if made is not None else (vip, None)
        on_port = await self._floating.on(port)
        if on_port is None:
            raise Conflict(
                f"load balancer {row['id']} has no floating IP, and this Service only shares it: only the Service that "
                "it was created for can give it one"
            )
        return str(on_port["floating_ip_address"]), on_port

# SPDX-License-Identifier: Apache-2.0
"""Chooses the public address of a load balancer, and associates and releases it.

An answer to `associateIpAddress` may be lost, and an address has no field that can name its owner. So a tag of the
network names the address before it is associated, and after a failure the tag shows which address to look at.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ccm.cloud import Conflict, Invalid, LoadBalancerSpec, QuotaExceeded, RetryAfter, Transient

from . import load_balancer_owners as owners
from . import load_balancer_steps as steps
from .api import Api
from .jobs import Jobs
from .load_balancer_rules import DesiredState, Row

COMMAND, NAME = "listPublicIpAddresses", "publicipaddress"


@dataclass(frozen=True)
class Intent:
    """The tag of a network that names the address of a Service."""

    network_id: str
    address: str


class Addresses:
    def __init__(self, api: Api, jobs: Jobs) -> None:
        self._api, self._jobs = api, jobs

    async def intent(self, spec: LoadBalancerSpec) -> Intent | None:
        rows = await self._api.every_row("listTags", "tag", resourcetype="Network", key=owners.intent_key(spec))
        try:
            intents = [Intent(str(row["resourceid"]), str(ipaddress.IPv4Address(row["value"]))) for row in rows]
        except (LookupError, TypeError, ValueError):
            raise Transient("listTags: a tag does not have the form that the provider wrote") from None
        return intents[0] if intents else None

    async def remove_intent(self, spec: LoadBalancerSpec, intent: Intent) -> None:
        step = steps.no_intent(intent.network_id, owners.intent_key(spec))
        await self._jobs.start(spec.uid, step.command, dict(step.fields), step.command)

    async def choose(
        self, spec: LoadBalancerSpec, desired: DesiredState, network_id: str, intent: Intent | None, rules: owners.Rules
    ) -> tuple[Row, bool]:
        """Return the address for a Service that has no rules yet, and whether it was associated for this Service.
        Raises RetryAfter until the network has the address. Raises Conflict for an address that serves something
        else."""
        text = desired.address or (intent.address if intent is not None else "")
        if intent is not None and (intent.address != text or intent.network_id != network_id):
            await self._give_up(spec, intent, rules)
        if not text:
            text = await self._free(spec)
            intent = None
        row = await self.named(text)
        if row is None or row["state"] == "Free":
            await self._associate(
                spec, text, network_id, intent, is_asked=bool(desired.address), exists=row is not None
            )
        assert row is not None
        if row["state"] != "Allocated":
            raise RetryAfter(f"the address {text} is {row['state']}", self._api.soon)
        if row.get("associatednetworkid") != network_id:
            raise Conflict(f"the address {text} belongs to another network than the Nodes")
        if row.get("issourcenat") or row.get("isstaticnat"):
            raise Conflict(f"the address {text} is in use for NAT: choose another one")
        if others := rules.others_on(str(row["id"]), ()):
            raise Conflict(f"the address {text} has the rule {others[0]['name']} of somebody else: choose another one")
        return row, intent is not None

    async def named(self, text: str) -> Row | None:
        """Return the row of an address, allocated or free; None if the user sees no such address. Raises Transient for
        an answer of another shape."""
        rows = await self._api.every_row(COMMAND, NAME, ipaddress=text, allocatedonly="false")
        matching = [row for row in rows if row.get("ipaddress") == text]
        if any(not isinstance(row.get("id"), str) or not isinstance(row.get("state"), str) for row in matching):
            raise Transient(f"{COMMAND}: an address in the answer does not have the form that the API describes")
        return matching[0] if matching else None

    async def release_left(self, spec: LoadBalancerSpec, intent: Intent, rules: owners.Rules) -> bool:
        """Start to release the address that a tag names. Return whether a release was started. None is started for an
        address that is free, is in another network, or is used by NAT or by rules."""
        row = await self.named(intent.address)
        if row is None or row["state"] == "Free":
            return False
        elsewhere = row.get("associatednetworkid", intent.network_id) != intent.network_id
        if elsewhere or row.get("issourcenat") or row.get("isstaticnat") or rules.others_on(str(row["id"]), ()):
            return False
        what = f"the release of {intent.address}"
        await self._jobs.start(spec.uid, "disassociateIpAddress", {"id": str(row["id"])}, what)
        return True

    async def _free(self, spec: LoadBalancerSpec) -> str:
        """Return a free address from the first page, chosen by the Service's UID, so that Services that are created
        together rarely choose the same address. Raises QuotaExceeded if there is none."""
        page = await self._api.rows_page(COMMAND, NAME, None, allocatedonly="false", state="Free")
        addresses = sorted(
            str(row["ipaddress"]) for row in page.rows if row.get("state") == "Free" and "ipaddress" in row
        )
        if not addresses:
            raise QuotaExceeded("the cloud has no free public address: ask its administrator for more")
        return addresses[int(owners.intent_key(spec).rpartition("/")[2].replace("-", "0")[:8], 36) % len(addresses)]

    async def _associate(
        self, spec: LoadBalancerSpec, text: str, network_id: str, intent: Intent | None, *, is_asked: bool, exists: bool
    ) -> None:
        """Take the next step to get the address: write the tag, then associate the address. Always raises: RetryAfter
        after a step, or the error that prevents the step."""
        if not exists:
            if intent is not None:
                await self.remove_intent(spec, intent)
            if is_asked:
                raise Invalid(f"spec.loadBalancerIP: the cloud has no public address {text}, or not for this user")
            raise RetryAfter(f"the address {text} is gone, so another one is chosen", self._api.soon)
        if intent is None:
            step = steps.intent(network_id, owners.intent_key(spec), text)
            await self._jobs.start(spec.uid, step.command, dict(step.fields), step.command)
            raise RetryAfter(f"the address {text} is associated next", self._api.soon)
        fields = {"ipaddress": text, "networkid": network_id, **self._api.project}
        try:
            await self._jobs.start(spec.uid, "associateIpAddress", fields, f"the association of {text}")
        except (Invalid, Conflict, QuotaExceeded):
            # Nothing was associated; the next attempt chooses again.
            await self.remove_intent(spec, intent)
            raise
        raise RetryAfter(f"the address {text} is being associated", self._api.soon)

    async def _give_up(self, spec: LoadBalancerSpec, intent: Intent, rules: owners.Rules) -> None:
        """Release the address that a tag names, because another address or network is desired now. If it cannot be
        released, remove the tag. Always raises RetryAfter."""
        if not await self.release_left(spec, intent, rules):
            await self.remove_intent(spec, intent)
        raise RetryAfter(f"the address {intent.address} is being released", self._api.soon)

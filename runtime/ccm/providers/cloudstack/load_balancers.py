# SPDX-License-Identifier: Apache-2.0
"""Load balancers. All Services share one listing of rules, and each change is a job.

Every write compares the Service with the rules as they are now, so it also repairs what somebody else changed. Jobs
that do not depend on one another run at the same time. Until they are done, each write raises RetryAfter, and the next
write reads the rules again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ccm import cloud
from ccm.cloud import Backend, Conflict, Invalid, LoadBalancerSpec, NotFound, RetryAfter, Transient
from ccm.cloud.toolkit.backend_addresses import Selector
from ccm.cloud.toolkit.ownership_marks import Mark
from ccm.cloud.toolkit.service_checks import nobody_serves
from ccm.cloud.toolkit.shared_reads import Shared

from . import instance_rules as machines
from . import instances
from . import load_balancer_owners as owners
from . import load_balancer_rules as rules
from . import load_balancer_steps as steps
from .addresses import Addresses
from .annotations import PREFIX
from .api import Api
from .jobs import Jobs
from .load_balancer_rules import DesiredState, Row
from .load_balancer_steps import Present, Stage, Step, Texts

log = logging.getLogger(__name__)


class CloudStackLoadBalancers:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._jobs = Jobs(api)
        self._addresses = Addresses(api, self._jobs)
        self._rules: Shared[owners.Rules] = Shared(self._read_rules)
        self._machines: Shared[Mapping[str, Sequence[str]]] = Shared(self._read_machines)
        #: Services whose last rule or address is being deleted.
        self._deleting: set[str] = set()

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        balancers = []
        for uid, own in (await self._rules.get()).balancers(cluster).items():
            flags = "".join(mark.flags for mark in map(owners.mark_of, own) if mark is not None)
            named = owners.NAMED in flags
            shown = () if named else rules.ingress(str(own[0]["publicip"]), "", owners.PROXY in flags)
            balancers.append(cloud.LoadBalancer(uid, owners.base(own[0]), shown, owners.fingerprint(own)))
        return balancers

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        try:
            desired = rules.desired_state(spec)
        except Invalid as error:
            return f"invalid: {error}"
        return f"{desired.digest}-{rules.targets_digest(backends, desired.nodes)}"

    def drains(self, spec: LoadBalancerSpec) -> bool:
        """Return True, because after a change of a rule, a virtual router reloads its HAProxy, and the former process
        serves its open connections until they end."""
        return True

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        own = (await self._rules.get()).of(spec)
        if not own:
            raise NotFound(f"the cloud has no rules for Service {spec.uid} of cluster {spec.cluster}")
        try:
            done = await self._jobs.are_done(spec.uid)
        except (Invalid, RetryAfter) as error:
            raise Conflict(str(error)) from None
        if done and (row := next((row for row in own if row["state"] != "Active" and not _is_busy(row)), None)):
            raise Conflict(f"rule {row['name']} is in the state {row['state']}, and no job changes that")
        return self._answer(own, spec, ready=done and not any(map(_is_busy, own)))

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired = rules.desired_state(spec)
        await self._jobs.require_done(spec.uid)
        every = await self._rules.get()
        own = every.of(spec)
        if any(map(_is_busy, own)):
            raise RetryAfter("a job is changing the load balancer", self._api.soon)
        if own and desired.address and desired.address != own[0]["publicip"]:
            raise Invalid(
                f"spec.loadBalancerIP: the load balancer has the address {own[0]['publicip']}, which cannot be changed"
            )
        network = await self._network(own, backends)
        present = await self._present(spec, desired, own, every, network)
        targets, warnings = await self._targets(backends, desired.nodes, present.network_id)
        todo = self._steps(spec, desired, present, network, targets, backends)
        await self._do(spec, todo)
        ready = not todo
        return self._answer(own, spec, ready=ready, warnings=(*desired.warnings, *warnings, *_acl_warning(network)))

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        nodes = rules.selector(spec)
        await self._jobs.require_done(spec.uid)
        own = (await self._rules.get()).of(spec)
        if not own:
            raise NotFound(f"the cloud has no rules for Service {spec.uid} of cluster {spec.cluster}")
        assigned = await self._assigned(own)
        present = Present(str(own[0]["publicipid"]), "", str(own[0]["networkid"]), False, own, assigned)
        targets, warnings = await self._targets(backends, nodes, present.network_id)
        todo = [*steps.target_steps(present, own, targets)] or [*_renewed(own, rules.targets_digest(backends, nodes))]
        await self._do(spec, todo)
        return self._answer(own, spec, ready=not todo, warnings=warnings)

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        desired = rules.desired_state(spec)
        every = await self._rules.get()
        own = every.of(spec)
        if not own:
            raise NotFound(f"the cloud has no rules for Service {spec.uid} of cluster {spec.cluster}")
        if any(map(_is_busy, own)) or not await self._jobs.are_done(spec.uid):
            return ()
        network = await self._network(own, backends)
        present = await self._present(spec, desired, own, every, network)
        targets, _ = await self._targets(backends, desired.nodes, present.network_id)
        todo = self._steps(spec, desired, present, network, targets, backends)
        return [each.what for each in todo if each.stage not in (Stage.INTENT, Stage.MARK)]

    async def delete(self, spec: LoadBalancerSpec) -> None:
        await self._jobs.require_done(spec.uid, "the load balancer is being deleted")
        every = await self._rules.get()
        own = every.of(spec)
        intent = await self._addresses.intent(spec)
        if not own and intent is None:
            if spec.uid in self._deleting:
                self._deleting.discard(spec.uid)
                return
            raise NotFound(f"the cloud has no rules for Service {spec.uid} of cluster {spec.cluster}")
        self._deleting.add(spec.uid)
        if intent is not None and (own or not await self._addresses.release_left(spec, intent, every)):
            await self._addresses.remove_intent(spec, intent)
        elif own:
            await self._delete_rules(spec, own, every)
        raise RetryAfter("the load balancer is being deleted", self._api.soon)

    # Calls

    async def _delete_rules(self, spec: LoadBalancerSpec, own: Sequence[Row], every: owners.Rules) -> None:
        """Release the address, which deletes all its rules, too. Delete only the rules if the address was not
        associated for the Service, or if other rules use it."""
        address_id = str(own[0]["publicipid"])
        if owners.is_associated(own, _as_far_as_known(spec)):
            if not (others := every.others_on(address_id, own)):
                fields = {"id": address_id}
                await self._jobs.start(
                    spec.uid, "disassociateIpAddress", fields, f"the release of {own[0]['publicip']}"
                )
                return
            log.warning("the address %s stays: it has the rule %s of others", own[0]["publicip"], others[0]["name"])
        firewall = await self._firewall(address_id)
        for step in steps.deletions(own, firewall):
            await self._jobs.start(spec.uid, step.command, dict(step.fields), step.what)

    async def _do(self, spec: LoadBalancerSpec, todo: Sequence[Step]) -> None:
        """Start the jobs of the first stage in `todo`. Raises RetryAfter, because the next stage must wait for them,
        unless that stage is MARK, the last one."""
        now = [each for each in todo if each.stage == todo[0].stage]
        for step in now:
            await self._jobs.start(spec.uid, step.command, dict(step.fields), f"{step.command} ({step.what})")
        if now and now[0].stage is not Stage.MARK:
            raise RetryAfter(
                f"the load balancer is being changed: {len(todo) - len(now)} steps are left", self._api.soon
            )

    async def _present(
        self, spec: LoadBalancerSpec, desired: DesiredState, own: Sequence[Row], every: owners.Rules, network: Row
    ) -> Present:
        intent = await self._addresses.intent(spec)
        if own:
            address_id, text = str(own[0]["publicipid"]), str(own[0]["publicip"])
            associated = owners.is_associated(own, desired)
        else:
            row, associated = await self._addresses.choose(spec, desired, str(network["id"]), intent, every)
            address_id, text = str(row["id"]), str(row["ipaddress"])
        return Present(
            address_id,
            text,
            str(network["id"]),
            associated,
            own,
            await self._assigned(own),
            await self._firewall(address_id) if _has(network, "Firewall") else None,
            intent is not None,
        )

    def _steps(
        self,
        spec: LoadBalancerSpec,
        desired: DesiredState,
        present: Present,
        network: Row,
        targets: Sequence[str],
        backends: Sequence[Backend],
    ) -> Sequence[Step]:
        texts = Texts(
            owners.description(spec, desired, present.associated, self.fingerprint(spec, backends)),
            owners.description(spec, desired, present.associated),
            owners.intent_key(spec),
        )
        return steps.steps(present, desired, rules.admitted(desired, _has(network, "Firewall")), targets, texts)

    async def _network(self, own: Sequence[Row], backends: Sequence[Backend]) -> Row:
        """Return the network of the rules. Without rules, return the configured network, or else the network of most
        Nodes. Raises Conflict if there is neither."""
        id_ = str(own[0]["networkid"]) if own else self._api.settings.balancers.network_id
        if not id_:
            id_ = rules.network(backends, await self._machines.get())
        if not id_:
            raise Conflict(
                "it is not known in which network to create the load balancer: there is no Node yet; set network-id in "
                "[LoadBalancer] of the configuration, or add Nodes"
            )
        return await self._api.one("listNetworks", "network", id_)

    async def _targets(
        self, backends: Sequence[Backend], selector: Selector, network_id: str
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return the machines that can be targets, and a warning about Nodes without traffic."""
        every = rules.targets(backends, selector)
        nics = await self._machines.get() if every else {}
        reachable = [each for each in every if network_id in nics.get(each, ())]
        left = len(every) - len(reachable)
        warning = f"no traffic reaches {left} of {len(every)} nodes: they have no interface in the network {network_id}"
        chosen_by = f"annotation {PREFIX}node-selector" if selector else ""
        return reachable, (warning,) if left else nobody_serves(backends, every, chosen_by)

    async def _assigned(self, own: Sequence[Row]) -> dict[str, frozenset[str]]:
        assigned = {}
        for row in own:
            rows = await self._api.every_row("listLoadBalancerRuleInstances", "loadbalancerruleinstance", id=row["id"])
            assigned[str(row["id"])] = frozenset(str(each.get("id")) for each in rows)
        return assigned

    async def _firewall(self, address_id: str) -> Sequence[Row]:
        rows = await self._api.every_row("listFirewallRules", "firewallrule", ipaddressid=address_id)
        try:
            [(str(row["id"]), steps.firewall_port(row)) for row in rows]
        except (LookupError, TypeError, ValueError):
            raise Transient("listFirewallRules: a rule does not have the form that the API describes") from None
        return rows

    async def _read_rules(self) -> owners.Rules:
        rows = await self._api.every_row("listLoadBalancerRules", "loadbalancerrule")
        return owners.Rules(map(checked, rows))

    async def _read_machines(self) -> Mapping[str, Sequence[str]]:
        """Return ID of a machine -> the IDs of its networks."""
        rows = await self._api.every_row(instances.COMMAND, instances.NAME, details="min,nics")
        return {str(row.get("id")): machines.networks(row) for row in rows}

    # No I/O

    def _answer(
        self, own: Sequence[Row], spec: LoadBalancerSpec, *, ready: bool = True, warnings: Sequence[str] = ()
    ) -> cloud.LoadBalancer:
        try:
            desired = rules.desired_state(spec)
            shown = rules.ingress(str(own[0]["publicip"]), desired.hostname, desired.proxy) if own else ()
        except Invalid:
            shown = rules.ingress(str(own[0]["publicip"]), "", False)
        print_ = owners.fingerprint(own)
        name = owners.base(own[0]) if own else spec.default_name
        return cloud.LoadBalancer(spec.uid, name, shown if ready else (), print_, ready, tuple(warnings))


def checked(row: Row) -> Row:
    """Return a rule with its protocol in lower case. Raises Transient if it does not have the fields that decisions
    need."""
    try:
        int(row["publicport"]), int(row["privateport"])
        texts = ("id", "name", "publicip", "publicipid", "networkid", "algorithm", "state")
        if not all(isinstance(row[key], str) for key in texts):
            raise TypeError("a text is missing")
        return {**row, "protocol": str(row.get("protocol") or "tcp").lower()}
    except (LookupError, TypeError, ValueError):
        raise Transient("a load balancer rule in the answer does not have the form that the API describes") from None


def _as_far_as_known(spec: LoadBalancerSpec) -> DesiredState | None:
    """Return the desired state; None if the Service is gone or invalid."""
    try:
        return rules.desired_state(spec) if spec.ports else None
    except Invalid:
        return None


def _is_busy(row: Row) -> bool:
    return row.get("jobstatus") == 0


def _has(network: Row, service: str) -> bool:
    return any(each.get("name") == service for each in network.get("service") or () if isinstance(each, dict))


def _acl_warning(network: Row) -> Sequence[str]:
    if not _has(network, "NetworkACL"):
        return ()
    return (
        f"the network {network.get('name')} belongs to a VPC: its access control list must admit clients to the ports, "
        "and this provider does not change it",
    )


def _renewed(own: Sequence[Row], targets: str) -> Sequence[Step]:
    """Return the step that writes the digest of the present targets into the mark; () if the digest is there already,
    or if the last write was interrupted."""
    for row in own:
        mark = owners.mark_of(row)
        if mark is not None and mark.fingerprint:
            settings = mark.fingerprint.partition("-")[0]
            text = str(Mark(mark.cluster, mark.uid, mark.name, f"{settings}-{targets}", mark.flags, mark.namespace))
            return () if text == row.get("description") else (steps.described(row, text),)
    return ()

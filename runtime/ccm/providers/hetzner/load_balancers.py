# SPDX-License-Identifier: Apache-2.0
"""Load balancers. All Services share one listing, one call creates a load balancer, and each change is one call.

Every write compares the Service with the load balancer as it is now, so it also repairs what somebody else changed.
While an action runs, the cloud refuses further changes. Then a write raises RetryAfter, and the next write reads the
load balancer again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ccm import cloud
from ccm.cloud import (
    Backend,
    Conflict,
    Invalid,
    Kept,
    KeptLoadBalancer,
    LoadBalancerSpec,
    NotFound,
    RetryAfter,
    Transient,
)
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.service_checks import nobody_serves
from ccm.cloud.toolkit.shared_reads import Shared

from . import load_balancer_owners as owners
from . import load_balancer_rules as rules
from . import load_balancer_steps as steps
from .annotations import PREFIX
from .api import MISSING, SOON, Api, action_of
from .certificates import Certificates
from .label_selectors import Selector
from .load_balancer_rules import DesiredState, Row

log = logging.getLogger(__name__)

#: How many times in a row the cloud may accept the same change without a visible effect.
IN_VAIN = 3


class HetznerLoadBalancers:
    keeps = frozenset({Kept.LOAD_BALANCER})

    def __init__(self, api: Api) -> None:
        self._api = api
        self._variables = api.settings.variables
        self._certificates = Certificates(api)
        self._rows: Shared[owners.Rows] = Shared(self._read)
        #: Load balancer -> the failed action that `get` reported (`_failed`), and the failed action that a later
        #: `ensure` repaired (`_settled`).
        self._failed: dict[int, int] = {}
        self._settled: dict[int, int] = {}
        #: Load balancer -> the change that was done last, and how many times in a row.
        self._done: dict[int, tuple[steps.Change, int]] = {}
        self._taking_back = asyncio.Lock()

    async def list(self, cluster: str) -> Sequence[cloud.LoadBalancer]:
        balancers = []
        for row in map(checked, await self._rows.get()):
            mark = owners.mark_of(row)
            if mark is not None and mark.is_of(cluster, mark.uid):
                # Flag "h": the status has a host name, which only the Service's annotation contains. So this listing
                # has no address and no fingerprint of the load balancer.
                print_ = "" if "h" in mark.flags else owners.fingerprint(row)
                shown = () if "h" in mark.flags else rules.ingress(row, "", mark.flags)
                keep, protected = kept_load_balancers.keep_of(mark.flags), kept_load_balancers.PROTECTED in mark.flags
                name = str(row["name"])
                balancers.append(cloud.LoadBalancer(mark.uid, name, shown, print_, keep=keep, protected=protected))
        return balancers

    async def kept(self, cluster: str) -> Sequence[KeptLoadBalancer]:
        return owners.kept(map(checked, await self._rows.get()), cluster)

    def fingerprint(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> str:
        """Return a hash of the settings, which a write stores in the load balancer's labels, and a hash of the targets,
        which the listing of load balancers contains. If the Service is invalid, return the reason."""
        try:
            desired = rules.desired_state(spec, self._variables)
        except Invalid as error:
            return f"invalid: {error}"
        return f"{desired.digest}-{rules.targets_digest(desired, backends)}"

    async def get(self, spec: LoadBalancerSpec) -> cloud.LoadBalancer:
        row = await self._own(spec)
        action = await self._last_action(int(row["id"]))
        if action.get("status") == "error" and self._settled.get(int(row["id"])) != action["id"]:
            self._failed[int(row["id"])] = int(action["id"])
            error = action.get("error") or {}
            what = f"load balancer {row['id']}: {action.get('command')} failed"
            raise Conflict(f"{what}: {error.get('code')} {error.get('message')}")
        return self._answer(row, spec, ready=action.get("status") != "running")

    async def ensure(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired = rules.desired_state(spec, self._variables)
        if (ids := await self._certificates.ids(spec, desired)) is not None:
            desired = dataclasses.replace(desired, certificate_ids=tuple(ids))
        rows = await self._rows.get()
        row = next(iter(_rows_of(rows, spec)), None)
        if row is None and spec.take_back:
            row = await self._take_back(spec)
        elif row is not None:
            kept_load_balancers.check_same(spec, row["name"])
        if row is None:
            by_name = self._variables.hcloud_load_balancers_adopt_by_name
            row = owners.adoptable(map(checked, rows), spec, desired, by_name)
            if row is not None:
                row = await self._put(row, {"labels": row["labels"] | {owners.UID: spec.uid}})
        if spec.load_balancer_ip and (row is None or spec.load_balancer_ip not in owners.addresses(row)):
            raise Invalid(
                f"spec.loadBalancerIP: the cloud chooses the address, so {spec.load_balancer_ip} is not possible"
            )
        if row is None:
            return await self._create(spec, desired, backends)
        return await self._change(row, spec, desired, backends)

    async def update_backends(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> cloud.LoadBalancer:
        desired = rules.desired_state(spec, self._variables, nodes_only=True)
        row = await self._own(spec)
        every, servers = (
            rules.targets(desired, backends),
            rules.fitting(desired, backends, steps.capacity(row), spec.uid),
        )
        todo = [change for change in steps.changes(row, desired, servers, self._api.network) if change.settles]
        await self._do(row, todo, last=owners.TARGETS not in row["labels"])
        too_many = self._too_many(row, desired, backends)
        if row["labels"].get(owners.TARGETS, "") != too_many:
            kept = {key: value for key, value in row["labels"].items() if key != owners.TARGETS}
            row = await self._put(row, {"labels": kept | ({owners.TARGETS: too_many} if too_many else {})})
        answer = self._answer(row, spec)
        return dataclasses.replace(answer, warnings=_left_out(row, desired, backends, every, servers))

    async def deviations(self, spec: LoadBalancerSpec, backends: Sequence[Backend]) -> Sequence[str]:
        desired = rules.desired_state(spec, self._variables)
        row = await self._own(spec)
        if (await self._last_action(int(row["id"]))).get("status") == "running":
            return ()
        servers = rules.fitting(desired, backends, steps.capacity(row), spec.uid)
        differences = [change.what for change in steps.changes(row, desired, servers, self._api.network)]
        return [f"load balancer {row['id']}: {what}" for what in differences]

    async def delete(self, spec: LoadBalancerSpec) -> None:
        own = _rows_of(await self._rows.get(), spec)
        for number, row in enumerate(own):
            flags = owners.flags(row)
            if not number and kept_load_balancers.is_to_be_kept(spec, flags):
                await self._do(row, steps.to_leave(row), last=False)
                await self._put(row, {"labels": owners.kept_labels(row, spec)})
                continue
            if row["protection"]["delete"] and kept_load_balancers.PROTECTED in flags:
                await self._do(row, list(steps.protection(row, False)), last=False)
            elif row["protection"]["delete"]:
                log.warning("load balancer %s is protected against deletion: it stays, without our labels", row["id"])
                await self._put(row, {"labels": owners.without_marks(row)})
                continue
            for known in (self._failed, self._settled, self._done):
                known.pop(int(row["id"]), None)
            try:
                await self._api.call("DELETE", f"/load_balancers/{int(row['id'])}", missing=MISSING)
            except NotFound:
                continue
        marks = [owners.mark_of(row) for row in own]
        # Look for a certificate even without a load balancer: the previous call may have been interrupted between the
        # two deletions.
        looks = not own or any(mark is not None and "m" in mark.flags for mark in marks)
        if not (looks and await self._certificates.delete(spec)) and not own:
            raise NotFound(f"the project has no load balancer for Service {spec.uid} of cluster {spec.cluster}")

    # Calls

    async def _take_back(self, spec: LoadBalancerSpec) -> Row:
        """Give the Service a load balancer that is kept for its namespace. Raises Conflict if there is none."""
        async with self._taking_back:  # two Services may name the same one
            row = owners.to_take_back(map(checked, await self._read()), spec)
            return await self._put(row, {"labels": owners.without_marks(row) | {owners.UID: spec.uid}})

    async def _create(
        self, spec: LoadBalancerSpec, desired: DesiredState, backends: Sequence[Backend]
    ) -> cloud.LoadBalancer:
        if not desired.location and not desired.zone:
            raise Invalid(
                "it is not known where to create the load balancer: set the annotation "
                f"{PREFIX}location or ...network-zone, or HCLOUD_LOAD_BALANCERS_LOCATION or "
                "..._NETWORK_ZONE"
            )
        every = rules.targets(desired, backends)
        servers = rules.fitting(desired, backends, await self._room(desired, len(every)), spec.uid)
        too_many = rules.targets_digest(desired, backends) if len(servers) < len(every) else ""
        labels = owners.labels(None, spec, desired, too_many, whole=steps.in_one_call(desired))
        body = steps.create_body(desired, servers, self._api.network, labels)
        answer = await self._api.call("POST", "/load_balancers", body=body)
        action = action_of(answer, "POST /load_balancers")
        row = checked(answer.get("load_balancer"))
        if not steps.in_one_call(desired):
            raise RetryAfter(f"load balancer {row['id']} was created, and the rest is written next", SOON)
        warnings = (*desired.warnings, *_left_out(row, desired, backends, every, servers))
        return self._answer(row, spec, ready=action["status"] == "success", warnings=warnings)

    async def _room(self, desired: DesiredState, servers: int) -> int:
        """Return how many servers may be targets of a new load balancer: the maximum of its type, or `servers` if the
        cloud has no such type. If the smallest type has room for `servers`, return `servers` without a call."""
        if servers <= steps.SMALLEST:
            return servers
        kind = desired.type or rules.DEFAULT_TYPE
        rows = await self._api.rows("/load_balancer_types", "load_balancer_types", query=[("name", kind)])
        return next((int(row["max_targets"]) for row in rows if row.get("name") == kind), servers)

    async def _change(
        self, row: Row, spec: LoadBalancerSpec, desired: DesiredState, backends: Sequence[Backend]
    ) -> cloud.LoadBalancer:
        servers = rules.fitting(desired, backends, steps.capacity(row), spec.uid)
        todo = steps.changes(row, desired, servers, self._api.network)
        labels = owners.labels(row, spec, desired, self._too_many(row, desired, backends))
        name = {"name": desired.name} if desired.named and row["name"] != desired.name else {}
        write = bool(name) or labels != dict(row["labels"])
        await self._do(row, todo, last=not write)
        if write:
            row = await self._put(row, {"labels": labels} | name)
        elif todo:
            row = checked(
                (await self._api.call("GET", f"/load_balancers/{row['id']}", missing=MISSING))["load_balancer"]
            )
        if (failed := self._failed.pop(int(row["id"]), None)) is not None:
            self._settled[int(row["id"])] = failed
        left_out = _left_out(row, desired, backends, rules.targets(desired, backends), servers)
        return self._answer(row, spec, warnings=(*desired.warnings, *rules.kept(row, desired), *left_out))

    async def _do(self, row: Row, todo: Sequence[steps.Change], *, last: bool) -> None:
        """Make changes until the cloud is busy. `last`: no other write follows them. Raises RetryAfter if an action is
        running that other changes or writes wait for."""
        for number, change in enumerate(todo):
            path = f"/load_balancers/{int(row['id'])}/actions/{change.action}"
            self._not_in_vain(int(row["id"]), change)
            action = await self._api.action("POST", path, change.body)
            self._count(int(row["id"]), change)
            left = len(todo) - number - 1
            if action["status"] == "running" and (left or not (last and change.settles)):
                raise RetryAfter(
                    f"load balancer {row['id']}: {change.action} is running, {left} changes are left", SOON
                )
        if not todo:
            self._done.pop(int(row["id"]), None)

    def _count(self, balancer: int, change: steps.Change) -> None:
        """Count an accepted change. A refused one, for example while the load balancer is locked, does not count."""
        before, times = self._done.get(balancer, (change, 0))
        self._done[balancer] = (change, times + 1 if before == change else 1)

    def _not_in_vain(self, balancer: int, change: steps.Change) -> None:
        if self._done.get(balancer) == (change, IN_VAIN):
            self._done.pop(balancer)
            raise Conflict(
                f"load balancer {balancer}: {change.action} succeeded {IN_VAIN} times, and still {change.what}"
            )

    async def _put(self, row: Row, body: Mapping[str, Any]) -> Row:
        answer = await self._api.call("PUT", f"/load_balancers/{int(row['id'])}", body=body, missing=MISSING)
        return checked(answer.get("load_balancer") if isinstance(answer, dict) else None)

    async def _own(self, spec: LoadBalancerSpec) -> Row:
        if rows := _rows_of(await self._rows.get(), spec):
            return rows[0]
        raise NotFound(f"the project has no load balancer for Service {spec.uid} of cluster {spec.cluster}")

    async def _last_action(self, balancer: int) -> Mapping[str, Any]:
        path = f"/load_balancers/{balancer}/actions"
        answer = await self._api.call("GET", path, query=[("sort", "id:desc"), ("per_page", "1")], missing=MISSING)
        actions = answer.get("actions") if isinstance(answer, dict) else None
        if not isinstance(actions, list) or not all(isinstance(each, dict) for each in actions):
            raise Transient(f"GET {path}: the answer has no list of actions")
        return actions[0] if actions else {}

    async def _read(self) -> owners.Rows:
        try:
            return owners.Rows(await self._api.rows("/load_balancers", "load_balancers"))
        except ValueError as error:
            raise Transient(f"GET /load_balancers: the answer is not as the API describes it: {error}") from None

    # No I/O

    def _too_many(self, row: Row, desired: DesiredState, backends: Sequence[Backend]) -> str:
        """Return the digest of the desired targets if they do not all fit, otherwise ""."""
        every = rules.targets(desired, backends)
        return rules.targets_digest(desired, backends) if len(every) > steps.capacity(row) else ""

    def _answer(
        self, row: Row, spec: LoadBalancerSpec, *, ready: bool = True, warnings: tuple[str, ...] = ()
    ) -> cloud.LoadBalancer:
        try:
            desired = rules.desired_state(spec, self._variables, nodes_only=True)
            shown = rules.ingress(row, desired.hostname, desired.flags)
        except Invalid:
            mark = owners.mark_of(row)
            shown = rules.ingress(row, "", mark.flags if mark is not None else "")
        return cloud.LoadBalancer(
            spec.uid, str(row["name"]), shown if ready else (), owners.fingerprint(row), ready, warnings
        )


def _rows_of(rows: owners.Rows, spec: LoadBalancerSpec) -> list[Row]:
    """Return the Service's load balancers, the oldest first. Only their rows are checked, because many Services share
    one read, and a malformed row must affect only its own Service."""
    return owners.own([checked(row) for row in rows.labelled(spec.uid)], spec)


def checked(row: Any) -> Row:
    """Return a load balancer. Raises Transient if it does not have the fields that decisions need."""
    try:
        int(row["id"]), dict(row["labels"]), bool(row["protection"]["delete"]), str(row["algorithm"]["type"])
        owners.addresses(row), rules.present_targets(row), steps.capacity(row), bool(row["public_net"]["enabled"])
        (
            [int(service["listen_port"]) for service in row["services"]],
            [int(each["network"]) for each in row["private_net"]],
        )
        return dict(row) | {"name": str(row["name"])}
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Transient("a load balancer in the answer does not have the form that the API describes") from None


def _left_out(
    row: Row, desired: DesiredState, backends: Sequence[Backend], every: Sequence[int], servers: Sequence[int]
) -> tuple[str, ...]:
    """Return the warning about nodes for which the type has no room, or the warning that no node gets traffic; ()
    otherwise."""
    if desired.label_selector:
        return ()
    if left := len(every) - len(servers):
        kind = row["load_balancer_type"]["name"]
        warning = (
            f"no traffic reaches {left} of {len(every)} nodes: type {kind} has no room for them: choose a bigger one"
        )
        return (warning,)
    selector = f"annotation {PREFIX}node-selector" if desired.node_selector != Selector() else ""
    return nobody_serves(backends, every, selector)

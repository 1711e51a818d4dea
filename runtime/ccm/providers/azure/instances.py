# SPDX-License-Identifier: Apache-2.0
"""Lists the virtual machines of the resource group, and those of its uniform scale sets, with one page for each set.

A page needs one request each for machines, for network interfaces and for public addresses, whatever the number of
Nodes, as long as Azure returns each list on one page. The first page needs one more for the uniform scale sets, and one
for power states, because the list of machines accepts `$expand=instanceView` only with a filter.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ccm.cloud import CloudError, Conflict, Instance, InstanceRef, Invalid, NotFound, Page, Transient, Unauthorized
from ccm.cloud.toolkit.json_api import Query

from . import instance_rules as rules
from . import resource_ids
from .api import COMPUTE, MISSING, MISSING_IN_SET, NETWORK, SCALE_SET_NETWORK, Api, version
from .instance_rules import Row
from .resource_ids import MachineId
from .settings import VMSS

#: Separates the names of scale sets in the token of a page. No name contains it.
SEPARATOR = ","
#: The maximum number of spellings that are remembered.
SPELLINGS = 100_000
#: How many resources are read at the same time, each with a request of its own.
TURNS = 10
T = TypeVar("T")


class ArmMachines:
    def __init__(self, api: Api) -> None:
        self._api = api
        #: ID in lower case -> the spelling that was listed first, because Azure may spell an ID in several ways.
        self._spellings: dict[str, str] = {}
        self._turns = asyncio.Semaphore(TURNS)

    async def list_page(self, token: str | None) -> Page:
        """Return a page. The first page has the machines outside uniform sets, and each later page has those of one
        set. `token` names the sets that are left."""
        if token is None:
            left = await self._scale_sets()
            machines = await self._own_machines()
        else:
            first, *left = token.split(SEPARATOR)
            machines = await self._set_machines(first)
        return Page(machines, SEPARATOR.join(left) or None)

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            return await self._by_id(ref.provider_id)
        name, group = ref.node_name, self._api.settings.common.resource_group
        instances: list[Instance] = []
        token: str | None = None
        while True:  # Azure cannot filter by a machine's computer name
            page = await self.list_page(token)
            instances += [instance for instance in page.instances if instance.is_named(name)]
            if (token := page.next) is None:
                break
        if len(instances) > 1:
            ids = ", ".join(sorted(each.provider_id for each in instances))
            raise Conflict(f"{len(instances)} virtual machines are named {name!r} ({ids}): rename all but one")
        if not instances:
            raise NotFound(f"resource group {group} has no virtual machine with the computer name {name!r}")
        return instances[0]

    def owns(self, provider_id: str) -> bool:
        return self._own(provider_id) is not None

    def canonical(self, provider_id: str) -> str | None:
        own = self._own(provider_id)
        return None if own is None else self._spellings.get(own.key, own.provider_id)

    def _own(self, provider_id: str) -> MachineId | None:
        """Return the parts of a providerID of this resource group, None for any other."""
        machine, common = resource_ids.of_provider_id(provider_id), self._api.settings.common
        if machine is None or (machine.subscription, machine.group) != (
            common.subscription_id,
            common.resource_group.lower(),
        ):
            return None
        return machine

    # Listings

    async def _own_machines(self) -> list[Instance]:
        """Return machines that are in no set, and those of flexible sets."""
        compute, network = f"{self._api.group}/Microsoft.Compute", f"{self._api.group}/Microsoft.Network"
        machines, interfaces, public = await together(
            self._api.rows_of(f"{compute}/virtualMachines", version(COMPUTE)),
            self._api.rows_of(f"{network}/networkInterfaces", version(NETWORK)),
            self._api.rows_of(f"{network}/publicIPAddresses", version(NETWORK)),
        )
        machines = await self._with_views(machines)
        return await self._described(machines, rules.by_id(interfaces), rules.by_id(public))

    async def _with_views(self, machines: Sequence[Row]) -> list[Row]:
        """Return the machines with their run-time views. One list for the whole subscription has the views. A machine
        is read by itself if that list does not have its view, or if the credentials do not allow reading the list."""
        if not machines:
            return []
        path = f"/subscriptions/{self._api.settings.common.subscription_id}/providers/Microsoft.Compute/virtualMachines"
        try:
            statuses = rules.by_id(await self._api.rows_of(path, [*version(COMPUTE), ("statusOnly", "true")]))
        except Unauthorized:  # a role on the resource group is enough for everything else
            statuses = {}
        views = {id: rules.view_of(row, statuses.get(id)) for id, row in rules.by_id(machines).items()}
        unknown = [str(row["id"]) for row in machines if views[str(row["id"]).lower()] is None]
        query = version(COMPUTE, expand="instanceView")
        single = await together(*(self._resource(id, query) for id in unknown))
        rows_by_id = {id.lower(): row for id, row in zip(unknown, single, strict=True)}
        rows: list[Row] = []
        for row in machines:
            if (view := views[id := str(row["id"]).lower()]) is not None:
                rows.append(rules.with_view(row, view))
            elif (read := rows_by_id[id]) is not None:  # otherwise the machine was deleted in the meantime
                rows.append(read)
        return rows

    async def _scale_sets(self) -> list[str]:
        if self._api.settings.common.vm_type != VMSS:
            return []
        path = f"{self._api.group}/Microsoft.Compute/virtualMachineScaleSets"
        return rules.uniform_sets(await self._api.rows_of(path, version(COMPUTE)))

    async def _set_machines(self, name: str) -> list[Instance]:
        path = f"{self._api.group}/Microsoft.Compute/virtualMachineScaleSets/{name}"
        machines = await self._api.rows_of(f"{path}/virtualMachines", version(COMPUTE, expand="instanceView"))
        if not machines:
            return []
        interfaces, public = await together(
            self._parts(f"{path}/networkInterfaces"), self._parts(f"{path}/publicipaddresses")
        )
        return await self._described(machines, interfaces, public, in_set=True)

    async def _parts(self, path: str) -> dict[str, Row]:
        """Return parts of a set's machines by ID, such as network interfaces. Return {} if Azure answers 404, as it
        does if there are none."""
        try:
            return rules.by_id(await self._api.rows_of(path, version(SCALE_SET_NETWORK), missing=MISSING_IN_SET))
        except NotFound:
            return {}

    async def _described(
        self, machines: Sequence[Row], interfaces: Mapping[str, Row], public: Mapping[str, Row], *, in_set: bool = False
    ) -> list[Instance]:
        """Return the instances of machines. `in_set`: use only what the set's listings contain, and read nothing
        else."""
        primary = [rules.primary_interface(row) for row in machines]
        if not in_set:
            interfaces = {**interfaces, **await self._elsewhere(primary, interfaces)}
            used = [interfaces[each.lower()] for each in primary if each.lower() in interfaces]
            address_ids = [public_address for interface in used for public_address in rules.public_addresses(interface)]
            public = {**public, **await self._elsewhere(address_ids, public)}
        instances = [
            rules.instance(row, interfaces.get(each.lower()), public)
            for row, each in zip(machines, primary, strict=True)
        ]
        return [self._spelt(each) for each in instances]

    async def _elsewhere(self, ids: Sequence[str], known: Mapping[str, Row]) -> dict[str, Row]:
        """Read the resources that a listing does not have: those of other resource groups, and those created later."""
        missing_ids = list(dict.fromkeys(each for each in ids if each and each.lower() not in known))
        rows = await together(*(self._resource(each, version(NETWORK)) for each in missing_ids))
        return {id.lower(): row for id, row in zip(missing_ids, rows, strict=True) if row is not None}

    async def _resource(self, id: str, query: Query) -> Row | None:
        if not id.startswith("/subscriptions/"):  # the ID becomes the path of a URL
            raise Transient("an ID in the answer is not that of an Azure resource")
        try:
            async with self._turns:
                resource = await self._api.call("GET", id, query=query, missing=MISSING)
        except NotFound:
            return None
        if not isinstance(resource, dict):
            raise Transient(f"GET {id}: the answer is not a resource")
        return resource

    # One machine

    async def _by_id(self, provider_id: str) -> Instance:
        if (id := self._own(provider_id)) is None:
            raise Conflict(f"providerID {provider_id!r} is not of the form azure://{self._api.group}/...")
        query = version(COMPUTE, expand="instanceView")
        if not id.scale_set:
            row = await self._api.call("GET", id.path, query=query, missing=MISSING)
            (instance,) = await self._described([_row(row)], {}, {})
        else:
            try:
                row = await self._api.call("GET", id.path, query=query, missing=MISSING_IN_SET)
            except (NotFound, Invalid) as error:
                # What Azure answers about a number that is not used any more is not documented.
                return await self._in_set(id, error)
            machine = _row(row)
            interfaces, public = await together(
                self._parts(f"{id.path}/networkInterfaces"), self._public_of(id, machine)
            )
            (instance,) = await self._described([machine], interfaces, public, in_set=True)
        if instance.provider_id.lower() != id.key:
            raise Transient(f"GET {id.path}: the answer is about {instance.provider_id}")
        return instance

    async def _public_of(self, id: MachineId, row: Row) -> dict[str, Row]:
        """Return the public addresses of a machine in a scale set by their IDs, {} if it has no primary interface."""
        interface = rules.primary_interface(row)
        if not interface:
            return {}
        path = id.path.rpartition("/virtualMachines/")[0]
        within = f"/virtualmachines/{id.name}/".lower()
        addresses = await self._parts(f"{path}/publicipaddresses")
        return {each: row for each, row in addresses.items() if within in each}

    async def _in_set(self, id: MachineId, error: CloudError) -> Instance:
        """Decide from a listing of the set whether a machine exists. `error`: why the machine could not be read.

        Never returns: raises NotFound if there is no set, or the complete listing does not have the machine; Transient
        if the listing has it.
        """
        path = id.path.rpartition("/virtualMachines/")[0]
        query = version(COMPUTE, expand="instanceView")
        rows = await self._api.rows_of(f"{path}/virtualMachines", query, missing=MISSING_IN_SET)
        if id.key.removeprefix(resource_ids.PREFIX) in rules.by_id(rows):
            raise Transient(f"scale set {id.scale_set} lists machine {id.name}, but: {error}")
        raise NotFound(f"scale set {id.scale_set} has no machine {id.name}")

    def _spelt(self, instance: Instance) -> Instance:
        """Return the instance with the first spelling of its ID."""
        if len(self._spellings) >= SPELLINGS:
            self._spellings.clear()
        spelling = self._spellings.setdefault(instance.provider_id.lower(), instance.provider_id)
        if spelling == instance.provider_id:
            return instance
        return dataclasses.replace(instance, provider_id=spelling)


async def together(*steps: Coroutine[Any, Any, T]) -> list[T]:
    """Return the results of concurrent steps. If one fails, cancel the others."""
    tasks = [asyncio.create_task(step) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _row(answer: object) -> Row:
    if not isinstance(answer, dict):
        raise Transient("the answer is not a virtual machine")
    return answer

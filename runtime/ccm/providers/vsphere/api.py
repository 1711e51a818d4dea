# SPDX-License-Identifier: Apache-2.0
"""Reads machines, what contains them, and tags from one vCenter. Blocking.

A listing is one query of the PropertyCollector for each view, in pages. The query also reads the view's own list of
machines, so that an answer that omits some of them is detected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ccm.cloud import Transient
from ccm.cloud.toolkit.untrusted_text import printable, shorten

from .address_rules import Nic
from .instance_rules import Machine
from .session import Live, Session
from .settings_sections import Labels
from .zone_rules import Place, Tag, ancestors, place_labels

#: How many objects one request for tags names; vCenter's limit is 2,000.
OBJECTS = 1000
_METADATA = 'config.extraConfig["guestinfo.metadata"]'
_ENCODING = 'config.extraConfig["guestinfo.metadata.encoding"]'
PROPERTIES = (
    *("name", "parent", "parentVApp", "resourcePool", "runtime.host", "runtime.powerState"),
    *("summary.config.uuid", "summary.config.template", "summary.config.guestId"),
    *("summary.config.numCpu", "summary.config.memorySizeMB", "guest.hostName", "guest.net", _METADATA, _ENCODING),
)


@dataclass(frozen=True)
class Reading:
    """What one vCenter reported. `places`: zone and region of each machine. `unknown`: machines whose UUID the vCenter
    has never reported, for messages. Each of them may be the machine of any Node."""

    machines: tuple[Machine, ...]
    places: dict[Machine, tuple[str, str] | None]
    unknown: tuple[str, ...] = ()


class Inventory:
    """The machines of one vCenter."""

    def __init__(self, session: Session, labels: Labels | None, page_size: int) -> None:
        self.session, self._labels, self._page_size = session, labels, page_size
        #: Reference of a machine -> its UUID. The last known UUID is kept, because vCenter does not report the UUID of
        #: a machine whose files it cannot reach.
        self._uuids: dict[str, str] = {}

    def start(self) -> None:
        """Log in."""
        self.session.run(lambda live: None)

    def all(self) -> Reading:
        reading = self.session.run(lambda live: self._reading(live, self._listed(live)))
        self._uuids = {machine.id: machine.uuid for machine in reading.machines}  # without machines that are gone
        return reading

    def with_uuid(self, uuid: str) -> Reading:
        """Read the machines with this UUID."""
        return self.session.run(
            lambda live: self._reading(live, self._found(live, functools.partial(_with_uuid, live, uuid)))
        )

    def with_name(self, name: str, system_uuids: Sequence[str]) -> Reading:
        """Read the machines whose guests have this name, and those with one of these UUIDs."""

        def find(live: Live) -> Reading:
            rows = self._found(live, lambda dc: _index(live).FindAllByDnsName(dc, name, True))
            for uuid in system_uuids:
                more = self._found(live, functools.partial(_with_uuid, live, uuid))
                rows += [row for row in more if row.obj._moId not in {each.obj._moId for each in rows}]
            return self._reading(live, rows)

        return self.session.run(find)

    def with_reference(self, reference: str) -> Reading:
        """Read the machine with this reference, such as `vm-12`, if there is one."""

        def find(live: Live) -> Reading:
            return self._reading(live, [row for row in self._listed(live) if row.obj._moId == reference])

        return self.session.run(find)

    def _listed(self, live: Live) -> list[Any]:
        from pyVmomi import vim

        rows: list[Any] = []
        for view in live.machines:
            answers = self._retrieve(live, view, [vim.VirtualMachine], PROPERTIES, ("view",))
            listed = {each._moId for row in answers if row.obj is not None for each in _properties(row).get("view", ())}
            machines = [row for row in answers if isinstance(row.obj, vim.VirtualMachine)]
            if missing := listed - {row.obj._moId for row in machines}:
                text = f"its listing omits {len(missing)} of {len(listed)} virtual machines"
                raise Transient(f"vCenter {self.session.vcenter.server}: {text}")
            rows += machines
        return rows

    def _found(self, live: Live, find: Callable[[Any], Any]) -> list[Any]:
        from pyVmomi import vim, vmodl

        rows_by_id = {each._moId: each for dc in live.datacenters or [None] for each in find(dc) or ()}
        if not rows_by_id:
            return []
        query = vmodl.query.PropertyCollector
        spec = query.FilterSpec(
            objectSet=[query.ObjectSpec(obj=each) for each in rows_by_id.values()],
            propSet=[query.PropertySpec(type=vim.VirtualMachine, all=False, pathSet=list(PROPERTIES))],
        )
        return self._pages(live, spec)

    def _retrieve(
        self, live: Live, view: Any, kinds: Sequence[type], paths: Sequence[str], of_view: Sequence[str] = ()
    ) -> list[Any]:
        """Return all objects of a view, and the view itself if `of_view` names properties of the view."""
        from pyVmomi import vim, vmodl

        query = vmodl.query.PropertyCollector
        into = query.TraversalSpec(name="view", path="view", skip=False, type=vim.view.ContainerView)
        properties = [query.PropertySpec(type=kind, all=False, pathSet=list(paths)) for kind in kinds]
        if of_view:
            properties.append(query.PropertySpec(type=vim.view.ContainerView, all=False, pathSet=list(of_view)))
        start = query.ObjectSpec(obj=view, skip=not of_view, selectSet=[into])
        return self._pages(live, query.FilterSpec(objectSet=[start], propSet=properties))

    def _pages(self, live: Live, spec: Any) -> list[Any]:
        from pyVmomi import vmodl

        collector = live.content.propertyCollector
        options = vmodl.query.PropertyCollector.RetrieveOptions(maxObjects=self._page_size)
        page = collector.RetrievePropertiesEx([spec], options)
        rows: list[Any] = []
        while page is not None:
            rows += page.objects
            page = collector.ContinueRetrievePropertiesEx(page.token) if page.token else None
        return rows

    def _reading(self, live: Live, rows: Iterable[Any]) -> Reading:
        machines, unknown = [], []
        for row in rows:
            machine = self._machine(row)
            if machine.uuid:
                machines.append(machine)
                self._uuids[machine.id] = machine.uuid
            else:
                unknown.append(f"{shorten(printable(machine.inventory_name), 60)} ({machine.id})")
        places = {} if self._labels is None else self._places(live, machines, self._labels)
        return Reading(tuple(machines), places, tuple(unknown))

    def _machine(self, row: Any) -> Machine:
        properties = _properties(row)
        id, vcenter = str(row.obj._moId), self.session.vcenter
        uuid = str(properties.get("summary.config.uuid") or "").strip().lower()
        return Machine(
            vcenter=vcenter.name,
            id=id,
            uuid=uuid or self._uuids.get(id, ""),
            inventory_name=str(properties.get("name") or ""),
            place=Place(
                host=_key(properties.get("runtime.host")),
                pool=_key(properties.get("resourcePool")),
                machine=_key(row.obj),
                folder=_key(properties.get("parent") or properties.get("parentVApp")),
            ),
            power=str(properties.get("runtime.powerState") or ""),
            is_template=bool(properties.get("summary.config.template")),
            host_name=str(properties.get("guest.hostName") or ""),
            guest_id=str(properties.get("summary.config.guestId") or ""),
            cpus=int(properties.get("summary.config.numCpu") or 0),
            memory_mb=int(properties.get("summary.config.memorySizeMB") or 0),
            nics=tuple(
                Nic(str(nic.network or ""), int(nic.deviceConfigId), tuple(map(str, nic.ipAddress or ())))
                for nic in properties.get("guest.net") or ()
            ),
            metadata=_option(properties.get(_METADATA)),
            metadata_encoding=_option(properties.get(_ENCODING)),
            families=vcenter.families,
        )

    # Zones and regions.

    def _places(self, live: Live, machines: Sequence[Machine], labels: Labels) -> dict[Machine, tuple[str, str] | None]:
        """Return zone and region of each machine, None if they are unknown. Most machines have them from the tags of
        their host and of what contains the host, so other tags are read only for the rest."""
        if not machines:
            return {}
        from pyVmomi import vim

        kinds = [vim.Datacenter, vim.Folder, vim.ComputeResource, vim.HostSystem, vim.ResourcePool]
        rows = self._retrieve(live, live.places, kinds, ("parent",))
        parents = {_key(row.obj): _key(_properties(row).get("parent")) for row in rows}
        parents |= {machine.place.machine: machine.place.folder for machine in machines}
        tags: dict[str, list[Tag]] = {}
        names = _TagNames(live)
        places: dict[Machine, tuple[str, str] | None] = dict.fromkeys(machines)
        for starts in (_host, _pool_and_machine):
            missing = [machine for machine in machines if places[machine] is None]
            objects = {above for one in missing for start in starts(one.place) for above in ancestors(start, parents)}
            tags |= names.of(sorted(objects - tags.keys()))
            places |= {machine: place_labels(machine.place, parents, tags, labels) for machine in missing}
        return places


def _host(place: Place) -> list[str]:
    return [place.host] if place.host else []


def _pool_and_machine(place: Place) -> list[str]:
    return [each for each in (place.pool, place.machine) if each]


class _TagNames:
    """Reads the tags of objects, with the names of the tags and of their categories. Each object of this class serves
    one listing, and reads each tag and each category once."""

    def __init__(self, live: Live) -> None:
        self._rest = live.rest
        self._tags: dict[str, Tag] = {}
        self._categories: dict[str, str] = {}

    def of(self, objects: Sequence[str]) -> dict[str, list[Tag]]:
        """Return object -> its tags, for all of these objects."""
        tags: dict[str, list[Tag]] = {each: [] for each in objects}
        for start in range(0, len(objects), OBJECTS):
            object_ids = [_object_id(each) for each in objects[start : start + OBJECTS]]
            path = f"{_TAGGING}/tag-association?~action=list-attached-tags-on-objects"
            for row in self._rest.call("POST", path, {"object_ids": object_ids}) or ():
                key = f"{row['object_id']['type']}:{row['object_id']['id']}"
                tags[key] = [self._tag(str(each)) for each in row.get("tag_ids") or ()]
        return tags

    def _tag(self, id: str) -> Tag:
        if id not in self._tags:
            row = self._rest.call("GET", f"{_TAGGING}/tag/id:{quote(id, safe=':')}")
            category = str(row["category_id"])
            if category not in self._categories:
                answer = self._rest.call("GET", f"{_TAGGING}/category/id:{quote(category, safe=':')}")
                self._categories[category] = str(answer["name"])
            self._tags[id] = Tag(self._categories[category], str(row["name"]))
        return self._tags[id]


_TAGGING = "/com/vmware/cis/tagging"


def _object_id(key: str) -> dict[str, str]:
    kind, _, id = key.partition(":")
    return {"type": kind, "id": id}


def _index(live: Live) -> Any:
    return live.content.searchIndex


def _with_uuid(live: Live, uuid: str, datacenter: Any) -> Any:
    return _index(live).FindAllByUuid(datacenter, uuid, True, False)


def _properties(row: Any) -> dict[str, Any]:
    return {each.name: each.val for each in row.propSet or ()}


def _key(managed: Any) -> str:
    """Return a managed object's name in zone_rules, such as `HostSystem:host-12`; "" for None."""
    return "" if managed is None else f"{type(managed)._wsdlName}:{managed._moId}"


def _option(option: Any) -> str:
    """Return the text of an option, which is a text or an object with a key and a value; "" for None."""
    return str(getattr(option, "value", option) or "")

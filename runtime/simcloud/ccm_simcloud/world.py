# SPDX-License-Identifier: Apache-2.0
"""The state of the simulated cloud and all operations on it. Independent of HTTP.

The dictionaries in memory are authoritative. Each change is first written to the state file; within `World.batch`, the
file gets all changes when the batch ends. All methods are synchronous, so nothing can happen between a check and its
effect.
"""

from __future__ import annotations

import bisect
import contextlib
import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from .config import Config, address_pool
from .config import Project as ProjectConfig
from .model import (
    Instance,
    InstanceBody,
    InstancePatch,
    LoadBalancer,
    LoadBalancerBody,
    LoadBalancerMode,
    Port,
    Route,
    RouteBody,
    Volume,
    VolumeBody,
)
from .storage import Change, Storage

Row = TypeVar("Row", bound=Struct)

#: The maximum age of a stale answer, in seconds.
HISTORY = 900.0


class Refusal(Exception):
    """The cloud rejects a call: an HTTP status, a code for programs, a message for people, seconds to wait."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.retry_after = status, code, message, retry_after


class Table(Generic[Row]):
    """Objects of one kind by id, each with its JSON ready to send. Ids ascend in the order of creation."""

    def __init__(self, kind: str, type_: type[Row]) -> None:
        self.kind, self.type = kind, type_
        self.rows: dict[str, Row] = {}
        self.encoded: dict[str, bytes] = {}
        self._ids: list[str] | None = None
        self._history: deque[tuple[float, str, Row | None]] = deque()

    def set(self, id_: str, row: Row | None, json: bytes, now: float) -> None:
        """Set a row, or remove it (None). `now` dates the change for `as_of`."""
        before = self.rows.get(id_)
        while self._history and self._history[0][0] < now - HISTORY:
            self._history.popleft()
        self._history.append((now, id_, before))
        if row is None:
            del self.rows[id_], self.encoded[id_]
        else:
            self.rows[id_], self.encoded[id_] = row, json
        if row is None or before is None:
            self._ids = None

    def restore(self, id_: str, json: bytes) -> None:
        """Restore a row from the state file."""
        self.rows[id_], self.encoded[id_] = msgspec.json.decode(json, type=self.type), json
        self._ids = None

    @property
    def ids(self) -> list[str]:
        if self._ids is None:
            self._ids = sorted(self.rows)
        return self._ids

    def after(self, token: str) -> int:
        """Return the position of the first id after `token`."""
        return bisect.bisect_right(self.ids, token)

    def as_of(self, moment: float) -> Table[Row]:
        """Return a copy of the table at that moment (at most HISTORY seconds ago)."""
        past = Table(self.kind, self.type)
        past.rows = dict(self.rows)
        for changed, id_, before in reversed(self._history):
            if changed <= moment:
                break
            if before is None:
                past.rows.pop(id_, None)
            else:
                past.rows[id_] = before
        past.encoded = {id_: msgspec.json.encode(row) for id_, row in past.rows.items()}
        return past

    def get(self, id_: str) -> Row:
        """Return the row. Raises Refusal 404 with the code `<kind>_not_found` if it does not exist."""
        try:
            return self.rows[id_]
        except KeyError:
            raise Refusal(404, f"{self.kind}_not_found", f"no {self.kind.replace('_', ' ')} {id_!r} exists") from None


class World:
    """All projects. `clock`: Unix seconds; `advance` moves it forward."""

    def __init__(self, config: Config, storage: Storage | None = None, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self.limits, self.timing = config.limits, config.timing
        self._storage = storage or Storage(None)
        self._clock, self._advanced = clock, 0.0
        self._number = int(self._storage.meta("last_number", "0"))
        self._pending: list[Change] | None = None
        self._due: list[tuple[float, str, str]] = []
        self._subscribers: list[Callable[[], None]] = []
        self.projects = {project.name: Project(self, project) for project in config.projects}
        self._restore()
        with self.batch():
            for project in self.projects.values():
                project.seed()

    def now(self) -> float:
        return self._clock() + self._advanced

    def advance(self, seconds: float) -> None:
        """Let time pass: load balancers become ready, tokens expire."""
        self._advanced += seconds
        self.tick()
        self._notify()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change."""
        self._subscribers.append(callback)

    def tick(self) -> None:
        """Complete all work of the cloud that is due."""
        while self._due and self._due[0][0] <= self.now():
            due, project, id_ = heapq.heappop(self._due)
            self.projects[project].finish(id_, due)

    def next_due(self) -> float | None:
        """Return the seconds until `tick` has work to do, None if there is none."""
        return max(0.0, self._due[0][0] - self.now()) if self._due else None

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Combine the changes inside into one transaction and one notification. If an error ends the batch, the changes
        before the error are still written."""
        pending: list[Change] = []
        self._pending = pending
        try:
            yield
        finally:
            self._pending = None
            self._storage.write(pending, self._number)
            self._notify()

    def new_id(self, prefix: str) -> str:
        """Return an id that was never used and will never be reused."""
        self._number += 1
        return f"{prefix}-{self._number:012x}"

    def commit(self, project: str, changes: list[tuple[Table[Any], str, Struct | None]]) -> None:
        """Write rows (None: delete) to the file, then to memory, then notify subscribers. Within `batch`, only write
        them to memory, and remember them for the file."""
        encoded = [(table, id_, row, msgspec.json.encode(row) if row else b"") for table, id_, row in changes]
        stored = [Change(project, table.kind, id_, json if row else None) for table, id_, row, json in encoded]
        if self._pending is not None:
            self._pending.extend(stored)
        else:
            self._storage.write(stored, self._number)
        now = self.now()
        for table, id_, row, json in encoded:
            table.set(id_, row, json, now)
            if isinstance(row, LoadBalancer) and row.busy_until is not None:
                heapq.heappush(self._due, (row.busy_until, project, id_))
        if self._pending is None:
            self._notify()

    def close(self) -> None:
        self._storage.close()

    def _notify(self) -> None:
        for callback in self._subscribers:
            callback()

    def _restore(self) -> None:
        for name, kind, id_, json in self._storage.load():
            project = self.projects.get(name)
            if project is None:
                continue  # its project is currently not configured; the rows stay in the file
            if kind == "seed":
                project.seeded.add(id_)
                continue
            table = project.tables[kind]
            table.restore(id_, json)
            row = table.rows[id_]
            if isinstance(row, LoadBalancer) and row.busy_until is not None:
                heapq.heappush(self._due, (row.busy_until, name, id_))


class Seed(Struct, frozen=True):
    """Records that a seed was created, so that a deleted one does not reappear after a restart."""

    id: str


class Project:
    """The resources of one customer: instances, load balancers, routes, volumes."""

    def __init__(self, world: World, config: ProjectConfig) -> None:
        self._world = world
        self.config = config
        self.name, self.region = config.name, config.region
        self.instances = Table("instance", Instance)
        self.load_balancers = Table("load_balancer", LoadBalancer)
        self.routes = Table("route", Route)
        self.volumes = Table("volume", Volume)
        self._seeds = Table("seed", Seed)
        self.seeded: set[str] = set()
        self.tables: dict[str, Table[Any]] = {
            table.kind: table for table in (self.instances, self.load_balancers, self.routes, self.volumes)
        }
        self._pool = address_pool(config.load_balancer_addresses)

    def seed(self) -> None:
        """Create the configured seeds that were not created before."""
        for kind, bodies in (("instance", self.config.instances), ("volume", self.config.volumes)):
            for body in bodies:
                key = f"{kind}/{body.name}"
                if key not in self.seeded:
                    if isinstance(body, InstanceBody):
                        self.create_instance(body, quota=False)
                    else:
                        self.create_volume(body, quota=False)
                    self.seeded.add(key)
                    self._commit((self._seeds, key, Seed(key)))

    # Instances

    def create_instance(self, body: InstanceBody, *, quota: bool = True) -> Instance:
        if quota:
            self._check_quota(self.instances, self._world.limits.instances)
        id_ = self._world.new_id("i")
        row = Instance(id=id_, region=self.region, created_at=self._world.now(), **msgspec.structs.asdict(body))
        self._commit((self.instances, id_, row))
        return row

    def change_instance(self, id_: str, body: InstanceBody | InstancePatch) -> Instance:
        row = replace(self.instances.get(id_), **_given(body))
        self._commit((self.instances, id_, row))
        return row

    def add_labels(self, id_: str, labels: dict[str, str]) -> Instance:
        """Add labels and keep the others; return the instance. Raises Refusal if a key has another value (409), or if
        the instance does not exist (404); then nothing changes."""
        row = self.instances.get(id_)
        for key, value in labels.items():
            if row.labels.get(key, value) != value:
                raise Refusal(409, "label_taken", f"instance {id_} has {key}={row.labels[key]}")
        row = replace(row, labels=row.labels | labels)
        self._commit((self.instances, id_, row))
        return row

    def delete_instance(self, id_: str) -> None:
        """Delete an instance. Its routes become blackholes, and load balancers lose it as a target. Raises Refusal 404
        if it does not exist."""
        self.instances.get(id_)
        changes: list[tuple[Table[Any], str, Struct | None]] = [(self.instances, id_, None)]
        for route in self.routes.rows.values():
            if route.instance_id == id_:
                changes.append((self.routes, route.id, replace(route, state="blackhole")))
        for balancer in self.load_balancers.rows.values():
            left = tuple(target for target in balancer.targets if target.instance_id != id_)
            if len(left) < len(balancer.targets):
                changes.append((self.load_balancers, balancer.id, replace(balancer, targets=left)))
        self._commit(*changes)

    # Load balancers

    def create_load_balancer(self, body: LoadBalancerBody, *, fails: bool = False) -> LoadBalancer:
        """Create a load balancer. Raises Refusal 409 if the name or the address is taken, 403 if the quota or the pool
        of addresses is used up, 400 if it is a proxy and a port has no node port, and 422 if the address is outside the
        pool. The message about a taken name says who owns the load balancer of that name."""
        for other in self.load_balancers.rows.values():
            if other.name == body.name:
                ours = bool(body.tags) and _owner(other.tags) == _owner(body.tags)
                raise Refusal(
                    409,
                    "already_exists" if ours else "name_in_use",
                    f"load balancer {body.name!r} exists as {other.id}, {_owner_text(other.tags)}",
                )
        self._check_quota(self.load_balancers, self._world.limits.load_balancers)
        mode = self.config.load_balancer_mode
        _check_node_ports(body.ports, mode)
        id_ = self._world.new_id("lb")
        fields = msgspec.structs.asdict(body) | {"ip": self._pick_address(body.ip), "mode": mode}
        row = LoadBalancer(id=id_, region=self.region, state="creating", created_at=self._world.now(), **fields)
        return self._work(row, "creating", self._world.timing.load_balancer_create, "error" if fails else "active")

    def change_load_balancer(self, id_: str, body: Struct, *, fails: bool = False) -> LoadBalancer:
        """Change a load balancer. Raises Refusal 404 if it does not exist, 409 `busy` while the cloud works on it, 409
        `in_error` if it can only be deleted, and 400 if it is a proxy and a new port has no node port."""
        row = self.load_balancers.get(id_)
        self._check_idle(row)
        given = _given(body)
        _check_node_ports(given.get("ports", ()), row.mode)
        if "tags" in given:
            given["tags"] = row.tags | given["tags"]
        row = replace(row, **given)
        return self._work(row, "updating", self._world.timing.load_balancer_update, "error" if fails else "active")

    def delete_load_balancer(self, id_: str) -> LoadBalancer | None:
        """Delete a load balancer. Returns its row while the cloud deletes it, None if it is gone at once. Raises
        Refusal if it does not exist (404), or while the cloud works on it (409 `busy`)."""
        row = self.load_balancers.get(id_)
        if row.state == "deleting":
            return row
        if row.state != "error":
            self._check_idle(row)
        self._work(row, "deleting", self._world.timing.load_balancer_delete, "gone")
        return self.load_balancers.rows.get(id_)

    def break_load_balancer(self, id_: str, reason: str) -> LoadBalancer:
        """Put a load balancer into the state "error", and return it."""
        row = replace(self.load_balancers.get(id_), state="error", reason=reason, busy_until=None, next_state=None)
        self._commit((self.load_balancers, id_, row))
        return row

    def finish(self, id_: str, due: float) -> None:
        """Complete the work on a load balancer that the cloud does until `due`, unless other work has started since."""
        row = self.load_balancers.rows.get(id_)
        if row is not None and row.busy_until == due and row.next_state is not None:
            self._settle(row, row.next_state)

    def _work(self, row: LoadBalancer, state: Any, seconds: float, next_state: Any) -> LoadBalancer:
        """Start the work of the cloud on a load balancer, and return its row. Work of 0 seconds is complete at once."""
        if seconds > 0:
            row = replace(row, state=state, busy_until=self._world.now() + seconds, next_state=next_state)
            self._commit((self.load_balancers, row.id, row))
            return row
        return self._settle(row, next_state)

    def _settle(self, row: LoadBalancer, state: Any) -> LoadBalancer:
        reason = "simulated failure of provisioning" if state == "error" else ""
        row = replace(
            row, state="deleting" if state == "gone" else state, reason=reason, busy_until=None, next_state=None
        )
        self._commit((self.load_balancers, row.id, None if state == "gone" else row))
        return row

    def _check_idle(self, row: LoadBalancer) -> None:
        if row.state == "error":
            raise Refusal(409, "in_error", f"load balancer {row.id} is in error ({row.reason}): it can only be deleted")
        if row.state != "active":
            raise Refusal(409, "busy", f"load balancer {row.id} is {row.state}: it takes no change until that is done")

    def _pick_address(self, wanted: str) -> str:
        used = {row.ip for row in self.load_balancers.rows.values()}
        if wanted:
            if wanted not in self._pool:
                raise Refusal(422, "invalid", f"address {wanted} is not one of this project's load balancer addresses")
            if wanted in used:
                # The requester must not learn the owner, because the message becomes an Event of another tenant.
                raise Refusal(409, "address_in_use", f"address {wanted} is in use")
            return wanted
        for address in self._pool:
            if address not in used:
                return address
        raise Refusal(403, "quota_exceeded", f"all {len(self._pool)} load balancer addresses of the project are in use")

    # Routes

    def create_route(self, body: RouteBody) -> Route:
        """Create a route. Raises Refusal if the destination is taken (409), if the instance does not exist (422), or if
        the quota is used up (403)."""
        for other in self.routes.rows.values():
            if other.destination == body.destination:
                raise Refusal(
                    409,
                    "destination_in_use",
                    f"{body.destination} is routed to {other.instance_id} by {other.id}"
                    + (f" of cluster {other.owner!r}" if other.owner else ""),
                )
        if body.instance_id not in self.instances.rows:
            raise Refusal(422, "invalid", f"instance {body.instance_id!r} does not exist, it cannot be a route target")
        self._check_quota(self.routes, self._world.limits.routes)
        id_ = self._world.new_id("r")
        row = Route(id_, self.region, body.destination, body.instance_id, "active", body.owner)
        self._commit((self.routes, id_, row))
        return row

    def delete_route(self, id_: str) -> None:
        self.routes.get(id_)
        self._commit((self.routes, id_, None))

    # Volumes

    def create_volume(self, body: VolumeBody, *, quota: bool = True) -> Volume:
        if quota:
            self._check_quota(self.volumes, self._world.limits.volumes)
        id_ = self._world.new_id("v")
        row = Volume(id=id_, region=self.region, **msgspec.structs.asdict(body))
        self._commit((self.volumes, id_, row))
        return row

    def delete_volume(self, id_: str) -> None:
        self.volumes.get(id_)
        self._commit((self.volumes, id_, None))

    def quotas(self) -> list[dict[str, Any]]:
        """Return each limited kind, with its number of objects and its limit."""
        limits = self._world.limits
        every: dict[str, tuple[Table[Any], int | None]] = {
            "instances": (self.instances, limits.instances),
            "load balancers": (self.load_balancers, limits.load_balancers),
            "routes": (self.routes, limits.routes),
            "volumes": (self.volumes, limits.volumes),
        }
        return [
            {"kind": kind, "used": len(table.rows), "limit": limit}
            for kind, (table, limit) in every.items()
            if limit is not None
        ]

    def _check_quota(self, table: Table[Any], limit: int | None) -> None:
        if limit is not None and len(table.rows) >= limit:
            what = table.kind.replace("_", " ")
            raise Refusal(
                403, "quota_exceeded", f"project {self.name} may have {limit} {what}s, and has {len(table.rows)}"
            )

    def _commit(self, *changes: tuple[Table[Any], str, Struct | None]) -> None:
        self._world.commit(self.name, list(changes))


def _given(body: Struct) -> dict[str, Any]:
    """Return the fields of a body that were set."""
    return {key: value for key, value in msgspec.structs.asdict(body).items() if value is not UNSET}


def _check_node_ports(ports: Iterable[Port], mode: LoadBalancerMode) -> None:
    """Raises Refusal 400 for a port of a proxy without node port, because the proxy has nothing to connect to."""
    for number, port in enumerate(ports):
        if mode == "proxy" and not port.node_port:
            raise Refusal(400, "invalid", f"ports[{number}].node_port: expected int >= 1, got 0")


def _owner(tags: Mapping[str, str]) -> tuple[str | None, str | None]:
    return tags.get("cluster"), tags.get("service_uid")


def _owner_text(tags: Mapping[str, str]) -> str:
    cluster, uid = tags.get("cluster"), tags.get("service_uid")
    return f"owned by cluster {cluster!r}, Service UID {uid}" if cluster or uid else "which belongs to no cluster"

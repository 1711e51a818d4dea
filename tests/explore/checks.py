# SPDX-License-Identifier: Apache-2.0
"""Checks what must hold at every write, and what must be true in the end.

The checks compare with the cluster's own store and the cloud's own tables, whatever answers the runtime got.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .process import CLUSTER, CLUSTER_CIDR

if TYPE_CHECKING:
    from tests.kube_store import Change, Document

    from .api_server import ApiServer, Request
    from .cloud import InProcessCloud
    from .cloud import _Request as CloudRequest
    from .process import Process
    from .simulation import Simulation

#: Seconds for which a former state may still be treated as current, because nobody sees a change at once: a Service
#: needed no load balancer, or a Node of this name did not exist, or was another one.
SINCE = 60.0
#: Seconds after its start during which a machine may still be taken for one that is shut down: an answer may be old,
#: the process may be stopped between the answer and its write, and the write may be carried out late.
STARTED = 120.0
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
#: The label that keeps a Node from being a backend.
EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
#: With this argument, a Node with one of the taints LEAVING is not a backend, as upstream.
DRAINS_NEVER = "--load-balancer-drain-nodes=never"
LEAVING = {"ToBeDeletedByClusterAutoscaler"}
#: Taints with which a Node drains, whatever the traffic policy.
DRAINING = {
    "ToBeDeletedByClusterAutoscaler",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
}
#: A label of the provider's own. Machines never have the value BY_HAND.
RACK, BY_HAND = "example.com/rack", "mine"
#: The ends of sentences about violations that a restored etcd explains. `known` recognises such violations by them.
UNRESTORED = ", which the restored etcd does not have"
UNHELD = ": our finalizer is in the restored etcd, and the Service was deleted in the other one"


class Violation(NamedTuple):
    invariant: str
    text: str
    at: float


class Checks:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.found: list[Violation] = []
        #: UID of a Service -> when the Service last existed and needed no load balancer.
        self._unwanted: dict[str, float] = {}
        #: Name of a Node -> when a Node of this name was last created or deleted.
        self._touched: dict[str, float] = {}
        #: UIDs of Services that were deleted without our finalizer: the controller had no chance to release them.
        self._unheld: set[str] = set()
        #: Id of an instance -> when it was created or started last.
        self._started: dict[str, float] = {}
        #: UID of an object -> when its last Event was written; name of an Event -> its object's UID.
        self._told: dict[str, float] = {}
        self._events: dict[str, str] = {}

    def hear(self, request: Request) -> None:
        """Note that an Event was written, or repeated, about an object."""
        if request.verb == "POST":
            self._events[request.body["metadata"]["name"]] = request.body["involvedObject"].get("uid", "")
        uid = self._events.get(request.key.rpartition("/")[2] or request.body.get("metadata", {}).get("name", ""), "")
        self._told[uid] = self._simulation.loop.now

    def violated(self, invariant: str, text: str) -> None:
        at = self._simulation.loop.now
        if all((each.invariant, each.text) != (invariant, text) for each in self.found):
            self.found.append(Violation(invariant, text, at))
            self._simulation.note(f"VIOLATION {invariant}: {text}")

    def follow(self, change: Change) -> None:
        """Note a change in the true store."""
        now = self._simulation.loop.now
        if change.resource == "services":
            document = self._simulation.store.table("services").get(change.key)
            for each in (change.before, document):
                if each is not None and not wants(each):
                    self._unwanted[each["metadata"]["uid"]] = now
            if change.kind == "DELETED" and change.before and not change.before["metadata"].get("finalizers"):
                self._unheld.add(change.before["metadata"]["uid"])
        elif change.resource == "nodes":
            document = self._simulation.store.table("nodes").get(change.key)
            if change.before is None or document is None:
                for each in (change.before, document):
                    if each is not None:
                        self._touched[each["metadata"]["name"]] = now

    def starts(self, id_: str) -> None:
        """Note that a machine runs from now on."""
        self._started[id_] = self._simulation.loop.now

    def begin(self) -> None:
        """Treat everything that exists now as old."""
        self._unwanted.clear()
        self._touched.clear()
        self._started.clear()

    # At every write

    def before_api(self, process: Process, request: Request, server: ApiServer) -> None:
        if request.verb == "DELETE" and request.resource == "nodes" and server.is_genuine:
            node = self._simulation.store.table("nodes").get(request.key)
            uid = request.body.get("preconditions", {}).get("uid")
            if node is not None and uid in (None, node["metadata"]["uid"]) and self._instance(node) is not None:
                self.violated("node-deleted", f"Node {request.key} is deleted and its instance lives")
        if request.verb == "PATCH" and request.resource == "nodes" and server.is_genuine:
            self._check_fence(request)
            self._check_label(request)
        if request.verb in ("PATCH", "PUT", "DELETE") and request.resource in ("nodes", "services"):
            self._check_part(request.part, self._simulation.cloud_of(request.key), request.what)
        if request.verb in ("PATCH", "POST", "PUT", "DELETE") and request.resource not in ("events", "leases"):
            self._check_leadership(process, f"{request.what}")

    def _check_part(self, part: str, cloud: InProcessCloud, what: str) -> None:
        """Check that the controllers of one of two clouds write nothing of the other cloud."""
        if len(self._simulation.clouds) > 1 and part != cloud.name:
            self.violated("foreign-write", f"controllers of {part or 'no cloud'} write what is {cloud.name}'s: {what}")

    def before_cloud(self, process: Process, operation: str, request: CloudRequest, cloud: InProcessCloud) -> None:
        id_, data = request.match_info["id"], request.data
        verb = operation.partition(".")[2]
        if operation.startswith(("instances.", "tokens.", "project.")) or verb in ("list", "get"):
            return
        self._check_leadership(process, operation)
        self._check_part(request.part, cloud, operation)
        if (uid := cloud.about(operation, request)) and (key := self._service_key(uid)):
            self._check_part(cloud.name, self._simulation.cloud_of(key), f"{operation} for Service {key}")
        project = cloud.project
        if operation == "load_balancers.delete":
            row = project.load_balancers.rows.get(id_)
            if row is not None and row.state != "error" and self._lives(row.tags.get("service_uid", "")):
                self.violated("load-balancer-deleted", f"{self._service_name(row.tags)}: its load balancer is deleted")
        elif operation == "load_balancers.create":
            tags = msgspec.json.decode(data or b"{}").get("tags", {})
            same = [each for each in project.load_balancers.rows.values() if each.tags == tags]
            if len(same) > 1:
                self.violated("load-balancer-doubled", f"{self._service_name(tags)}: it has {len(same)} load balancers")
        elif operation in ("load_balancers.update", "load_balancers.set_targets"):
            row = project.load_balancers.rows.get(id_)
            self._check_targets(process, cloud, row, msgspec.json.decode(data or b"{}"))
        elif operation == "routes.delete":
            route = project.routes.rows.get(id_)
            if route is not None and route.state == "active":
                self._check_route(route)

    def _check_fence(self, request: Request) -> None:
        """Check that nobody fences a Node if its machine, or another one of its name, has run for longer than STARTED.
        """
        node = self._simulation.store.table("nodes").get(request.key)
        if node is None or is_fenced(node) or not is_fenced({"spec": request.body.get("spec") or {}}):
            return
        if request.body["metadata"].get("resourceVersion") != node["metadata"]["resourceVersion"]:
            return  # the API server refuses it
        for row in self._simulation.cloud_of(request.key).project.instances.rows.values():
            is_its = row.id == _id(node) or row.name == request.key
            since = self._simulation.loop.now - self._started.get(row.id, -STARTED)
            if is_its and row.state == "running" and since > STARTED:
                self.violated("node-fenced", f"Node {request.key} is fenced and its machine runs")

    def _check_label(self, request: Request) -> None:
        """Check that nobody changes a label that an administrator wrote."""
        labels = request.body.get("metadata", {}).get("labels") or {}
        node = self._simulation.store.table("nodes").get(request.key)
        if node is None or RACK not in labels or _rack(node) != BY_HAND:
            return
        if request.body["metadata"].get("resourceVersion") == node["metadata"]["resourceVersion"]:
            self.violated("label-overwritten", f"Node {request.key}: its label of an administrator is changed")

    def _check_leadership(self, process: Process, what: str) -> None:
        """Check that no process writes while another one holds the Lease."""
        for key, lease in self._simulation.store.table("leases").items():
            if key.endswith("-migration") and not _is_migrated(what):
                continue
            holder = lease["spec"].get("holderIdentity")
            mine = process.elector.identity if process.elector is not None else ""
            if holder and holder != mine and self._simulation.api.is_genuine:
                other = "a process that has ended" if self._simulation.has_ended(holder) else "another process"
                self.violated("write-without-lease", f"{process.name} writes while {other} leads: {what}")

    def _check_targets(self, process: Process, cloud: InProcessCloud, row: Any, body: Document) -> None:
        if row is None or "targets" not in body or not self._lives(row.tags.get("service_uid", "")):
            return
        left = {each["instance_id"] for each in body["targets"]}
        if left and all(each.get("draining") for each in body["targets"]):
            self.violated("nobody-serves", f"{self._service_name(row.tags)}: all targets of its load balancer drain")
        taken = {target.instance_id for target in row.targets} - left
        lost = sorted(name for name, id_ in self._backends(cloud).items() if id_ in taken and self._is_settled(name))
        if lost:
            name = self._service_name(row.tags)
            how = "backend-removed" if process.first_list_right.get("nodes") else "backend-removed-at-start"
            what = f"{name}: its load balancer loses the living Nodes {', '.join(lost)}"
            self.violated(how, what + self._unrestored(lost))

    def _check_route(self, route: Any) -> None:
        for name, node in self._simulation.store.table("nodes").items():
            routed = route.destination in node["spec"].get("podCIDRs", ()) and _id(node) == route.instance_id
            if routed and self._is_settled(name):
                what = f"Node {name}: its route {route.destination} is deleted"
                self.violated("route-deleted", what + self._unrestored([name]))

    def _unrestored(self, names: Iterable[str]) -> str:
        """Return UNRESTORED if the restored etcd answers and has none of these Nodes, so that they look deleted; else
        ""."""
        store = self._simulation.api.restored_now
        return UNRESTORED if store is not None and not store.table("nodes").keys() & set(names) else ""

    def _is_settled(self, name: str) -> bool:
        return self._simulation.loop.now - self._touched.get(name, 0.0) > SINCE

    def _lives(self, uid: str) -> bool:
        """Return whether the Service with this UID exists and has needed a load balancer for a while."""
        for service in self._simulation.store.table("services").values():
            if service["metadata"]["uid"] == uid:
                return wants(service) and self._simulation.loop.now - self._unwanted.get(uid, 0.0) > SINCE
        return False

    def _is_held_in_restored(self, uid: str, made_at: float) -> bool:
        """Return whether a restored etcd still has a Service whose load balancer nobody releases, because the Service
        was deleted without our finalizer, or because the load balancer was created while that etcd answered."""
        if uid not in self._unheld and not self._simulation.api.was_restored(made_at):
            return False
        store = self._simulation.api.restored
        services = store.table("services").values() if store is not None else ()
        return any(each["metadata"]["uid"] == uid and each["metadata"].get("finalizers") for each in services)

    def _service_key(self, uid: str) -> str:
        services = self._simulation.store.table("services").items()
        return next((key for key, service in services if service["metadata"]["uid"] == uid), "")

    def _service_name(self, tags: Any) -> str:
        uid = tags.get("service_uid")
        return f"Service {self._service_key(uid) or f'with UID {uid}'}"

    def _instance(self, node: Document) -> Any:
        cloud = self._simulation.cloud_of(node["metadata"]["name"])
        return cloud.project.instances.rows.get(_id(node))

    def _named(self, name: str) -> bool:
        return any(row.name == name for row in self._simulation.cloud_of(name).project.instances.rows.values())

    def _backends(self, cloud: InProcessCloud) -> dict[str, str]:
        """Return Node -> ID of its instance, for the Nodes that should be backends of a cloud's load balancers."""
        found, never = {}, DRAINS_NEVER in self._simulation.arguments
        for name, node in self._simulation.store.table("nodes").items():
            excluded = EXCLUDE_LABEL in node["metadata"].get("labels", {}) or (never and _taints(node) & LEAVING)
            is_its = self._simulation.cloud_of(name) is cloud
            if is_its and self._instance(node) is not None and not excluded:
                found[name] = _id(node)
        return found

    def _draining(self, cloud: InProcessCloud) -> list[str]:
        """Return the IDs of instances whose Nodes drain; none if all Nodes would drain."""
        nodes, backends = self._simulation.store.table("nodes"), self._backends(cloud)
        found = sorted(
            id_
            for name, id_ in backends.items()
            if DRAINING & _taints(nodes[name])
        )
        return found if len(found) < len(backends) else []

    # While mistakes last

    def behind(self) -> list[tuple[str, str]]:
        """Return violations for load balancers whose targets differ from the Nodes that should be backends."""
        found = []
        for cloud in self._simulation.clouds.values():
            targets = sorted(self._backends(cloud).values())
            for row in cloud.project.load_balancers.rows.values():
                is_ours = row.tags.get("cluster") == CLUSTER and self._wants(row.tags.get("service_uid", ""))
                if is_ours and row.state == "active" and sorted(each.instance_id for each in row.targets) != targets:
                    name = self._service_name(row.tags)
                    found.append(("backends-behind", f"{name}: its load balancer does not follow the Nodes"))
        return found

    def silent(self) -> list[tuple[str, str]]:
        """Return violations for Services that need a load balancer, have no published address, and never got an
        Event."""
        return [
            ("waits-silently", f"Service {key} waits, and no Event says for what")
            for key, service in self._simulation.store.table("services").items()
            if wants(service) and not _ingress(service) and service["metadata"]["uid"] not in self._told
        ]

    def _wants(self, uid: str) -> bool:
        services = self._simulation.store.table("services").values()
        return any(each["metadata"]["uid"] == uid and wants(each) for each in services)

    # What users expect. Only runs without faults are judged: a fault may last longer than users wait.

    def is_served(self, key: str) -> None:
        service = self._simulation.store.table("services").get(key)
        if self._simulation.is_undisturbed and service is not None and wants(service) and not _ingress(service):
            self.violated("tenant-waits", f"Service {key} is not served, and only others make mistakes")

    def is_initialised(self, name: str) -> None:
        node = self._simulation.store.table("nodes").get(name)
        if self._simulation.is_undisturbed and node is not None and not _id(node):
            self.violated("node-waits", f"Node {name} is not initialised, and its cloud lists its machine")

    def is_gone(self, key: str) -> None:
        service = self._simulation.store.table("services").get(key)
        if self._simulation.is_undisturbed and service is not None and not wants(service):
            self.violated("deletion-waits", f"Service {key} is not released, and load balancers can be deleted")

    def loses_lease(self, process: Process) -> None:
        """Note that a process lost the Lease, which is a violation if only connections died."""
        if self._simulation.is_undisturbed and self._simulation.people.lost_connections:
            self.violated("lease-lost", f"{process.name} loses its Lease, and new connections work")

    # In the end

    def problems(self) -> list[tuple[str, str]]:
        """Return the invariant and a sentence for everything in the cluster or the cloud that is wrong once nothing
        changes any more."""
        return [
            *self._node_problems(),
            *(problem for cloud in self._simulation.clouds.values() for problem in self._route_problems(cloud)),
            *(problem for cloud in self._simulation.clouds.values() for problem in self._service_problems(cloud)),
            *self._released_problems(),
            *self._volume_problems(),
        ]

    def held(self) -> set[str]:
        """Return the Nodes that never had a providerID and whose machine is gone. The runtime keeps them, because
        nothing proves which machine they had."""
        nodes = self._simulation.store.table("nodes").items()
        return {name for name, node in nodes if not _id(node) and not self._named(name)}

    def _node_problems(self) -> list[tuple[str, str]]:
        found, held = [], self.held()
        for name, node in self._simulation.store.table("nodes").items():
            if _id(node) and self._instance(node) is None:
                found.append(("node-stays", f"Node {name} exists and its instance does not"))
                continue
            taints = {taint["key"] for taint in node["spec"].get("taints") or ()}
            if name in held:
                continue
            if not _id(node) or "node.cloudprovider.kubernetes.io/uninitialized" in taints:
                found.append(("not-converged", f"Node {name} is not initialised"))
                continue
            if _rack(node) not in (BY_HAND, self._instance(node).labels.get(RACK)):
                found.append(("not-converged", f"Node {name} has another rack than its machine"))
            conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
            if conditions.get("Ready") == "True" and "node.cloudprovider.kubernetes.io/shutdown" in taints:
                found.append(("not-converged", f"Node {name} is Ready and has the shutdown taint"))
            if is_fenced(node) and self._instance(node).state == "running":
                found.append(("not-converged", f"Node {name} is fenced and its machine runs"))
            if conditions.get("NetworkUnavailable") != "False":
                found.append(("not-converged", f"Node {name} is not marked as having its route"))
        for name in self._simulation.people.waiting:
            if name not in self._simulation.store.table("nodes"):
                found.append(("not-converged", f"Node {name} has yet to register"))
        return found

    def _route_problems(self, cloud: InProcessCloud) -> list[tuple[str, str]]:
        found = []
        wanted = {}
        for name, node in self._simulation.store.table("nodes").items():
            if self._simulation.cloud_of(name) is cloud and self._instance(node) is not None:
                wanted |= {cidr: _id(node) for cidr in node["spec"].get("podCIDRs", ())}
        present = {}
        for row in cloud.project.routes.rows.values():
            if _is_ours(row.destination):
                if row.destination in present:
                    found.append(("route-doubled", f"{row.destination} is routed twice"))
                present[row.destination] = row.instance_id if row.state == "active" else "nowhere"
        stays = {cidr for node in self._simulation.store.table("nodes").values() for cidr in node["spec"]["podCIDRs"]}
        for cidr in sorted(wanted.keys() | present.keys()):
            if cidr not in wanted and cidr not in stays:
                found.append(("route-leaked", f"{cidr} is routed to {present[cidr]} and belongs to no Node"))
            elif cidr in wanted and present.get(cidr) != wanted[cidr]:
                found.append(("not-converged", f"{cidr} is routed to {present.get(cidr)}, not to {wanted[cidr]}"))
        return found

    def _volume_problems(self) -> list[tuple[str, str]]:
        found = []
        for name, volume in self._simulation.store.table("persistentvolumes").items():
            row = self._simulation.cloud.project.volumes.rows[volume["spec"]["csi"]["volumeHandle"]]
            labels = volume["metadata"].get("labels", {})
            here = tuple(labels.get(f"topology.kubernetes.io/{each}") for each in ("zone", "region"))
            if here != (row.zone, row.region):
                found.append(("not-converged", f"PersistentVolume {name} is labelled {here}, not {row.zone}"))
        return found

    def _service_problems(self, cloud: InProcessCloud) -> list[tuple[str, str]]:
        found = []
        services = self._simulation.store.table("services").items()
        its = [(key, each) for key, each in services if wants(each) and self._simulation.cloud_of(key) is cloud]
        wanted = {each["metadata"]["uid"]: (key, each) for key, each in its}
        rows: dict[str, list[Any]] = {}
        for row in cloud.project.load_balancers.rows.values():
            if row.tags.get("cluster") == CLUSTER:
                rows.setdefault(row.tags.get("service_uid", ""), []).append(row)
        targets = sorted(self._backends(cloud).values())
        for uid, same in rows.items():
            if uid not in wanted:
                how = UNHELD if self._is_held_in_restored(uid, same[0].created_at) else ""
                found.append(("load-balancer-leaked", f"{same[0].name} is there, and no Service wants it{how}"))
            elif len(same) > 1:
                found.append(("load-balancer-doubled", f"Service {wanted[uid][0]} has {len(same)} load balancers"))
        for uid, (key, service) in wanted.items():
            row = rows.get(uid, [None])[0]
            if row is None:
                found.append(("not-converged", f"Service {key} has no load balancer"))
                continue
            ports = sorted((each["protocol"], each["port"], each["nodePort"]) for each in service["spec"]["ports"])
            if row.state != "active":
                found.append(("not-converged", f"the load balancer of Service {key} is {row.state}"))
            if sorted((each.protocol, each.port, each.node_port) for each in row.ports) != ports:
                found.append(("not-converged", f"the load balancer of Service {key} has other ports"))
            if sorted(target.instance_id for target in row.targets) != targets:
                found.append(("not-converged", f"the load balancer of Service {key} has other targets"))
            if sorted(target.instance_id for target in row.targets if target.draining) != self._draining(cloud):
                found.append(("not-converged", f"the load balancer of Service {key} has other targets that drain"))
            ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or []
            if [entry.get("ip") for entry in ingress] != [row.ip]:
                found.append(("not-converged", f"Service {key} does not name its load balancer's address"))
            if service["status"].get("conditions"):
                found.append(("not-converged", f"Service {key} is served and says that it waits"))
        return found

    def _released_problems(self) -> list[tuple[str, str]]:
        found = []
        for key, service in self._simulation.store.table("services").items():
            ingress = (service.get("status", {}).get("loadBalancer") or {}).get("ingress")
            if not wants(service) and (service["metadata"].get("finalizers") or ingress):
                found.append(("not-converged", f"Service {key} was not released"))
        return found


def _is_migrated(what: str) -> bool:
    """Return whether a write comes from a controller that runs under the Lease of a leader migration."""
    return what.startswith(("load_balancers.", "routes.", "PATCH services/", "DELETE nodes/"))


@functools.lru_cache(maxsize=4096)
def _is_ours(cidr: str) -> bool:
    """Return whether a route leads to Pods of the cluster."""
    return ipaddress.ip_network(cidr).subnet_of(ipaddress.ip_network(CLUSTER_CIDR))


def _taints(node: Document) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints") or ()}


def is_fenced(node: Document) -> bool:
    """Return whether a Node has the taint that moves its Pods at once."""
    return any(taint["key"] == OUT_OF_SERVICE for taint in node["spec"].get("taints") or ())


def _rack(node: Document) -> str | None:
    found: str | None = node["metadata"].get("labels", {}).get(RACK)
    return found


def wants(service: Document) -> bool:
    """Return whether a Service must have a load balancer."""
    return service["spec"].get("type") == "LoadBalancer" and not service["metadata"].get("deletionTimestamp")


def _ingress(service: Document) -> bool:
    return bool((service.get("status", {}).get("loadBalancer") or {}).get("ingress"))


def _id(node: Document) -> str:
    found: str = node["spec"].get("providerID", "").rpartition("/")[2]
    return found

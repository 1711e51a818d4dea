# SPDX-License-Identifier: Apache-2.0
"""Runs our controller as a process that misbehaves in the ways that $MUTANTS names: its writes are altered, or it does
something of its own every second, or whenever it starts again.

Each mutant lists the behaviours that notice it. Nodes and Services of a behaviour have names that begin with it, so a
mutant that would break other behaviours, too, spares theirs. The arguments are those of `ccm`.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccm_suite.adapters.sim import PROJECT
from ccm_suite.kube import NODES, Kube
from ccm_suite.trial import SHUTDOWN

from ccm import cli
from ccm.engine.client import KubeClient
from ccm.providers.sim.api import Api

#: Gets a write: its path, and its body, which is a merge patch if it changes an object, and `DELETED` if it deletes
#: one. Returns the altered body, or None to drop the write.
Alter = Callable[[str, dict[str, Any]], dict[str, Any] | None]


DELETED = {"kind": "DeleteOptions"}
#: Whether the file $MUTANT_STATE was already there: another process of the run has made it.
STARTED_AGAIN = False


@dataclass(frozen=True)
class Place:
    """Where a mutant acts. `kube`: the cluster. `config`: the file that names the simulated cloud's URL; the project is
    always PROJECT."""

    kube: Kube
    config: Path

    def ready(self, prefix: str, status: str) -> list[str]:
        """Return the Nodes with this prefix whose condition Ready has this status."""
        return [
            node["metadata"]["name"]
            for node in self.kube.list(NODES)
            if node["metadata"]["name"].startswith(prefix)
            for each in node["status"].get("conditions", [])  # a new Node has none for a moment
            if (each["type"], each["status"]) == ("Ready", status)
        ]

    def services(self, prefix: str) -> dict[str, str]:
        """Return path -> address of the Services in namespaces with this prefix."""
        found = {}
        for each in self.kube.list("/api/v1/services"):
            meta, ingress = each["metadata"], each["status"].get("loadBalancer", {}).get("ingress")
            if meta["namespace"].startswith(prefix) and ingress:
                found[f"/api/v1/namespaces/{meta['namespace']}/services/{meta['name']}"] = ingress[0]["ip"]
        return found

    def delete_balancer(self, address: str) -> None:
        for row in self._call("GET", "")["items"]:
            if row["ip"] == address:
                self._call("DELETE", f"/{row['id']}")

    def _call(self, method: str, path: str) -> Any:
        url = f"{json.loads(self.config.read_text())['endpoint']}/v1/projects/{PROJECT}/load-balancers{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer token-of-{PROJECT}"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")


Act = Callable[[Place], None]


def _same(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return body


@dataclass(frozen=True)
class Mutant:
    """A way to misbehave. `to_cloud`: whether it alters writes to the simulated cloud, not those to Kubernetes. `act`:
    what it does every second; `at_start`: whether it does that only once, when the process is started again."""

    noticed_by: frozenset[str]
    alter: Alter = _same
    to_cloud: bool = False
    act: Act | None = None
    at_start: bool = False


MUTANTS: dict[str, Mutant] = {}


def acting(*noticed_by: str, at_start: bool = False) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        MUTANTS[act.__name__] = Mutant(frozenset(noticed_by), act=act, at_start=at_start)
        return act

    return add


def mutant(*noticed_by: str, to_cloud: bool = False) -> Callable[[Alter], Alter]:
    def add(alter: Alter) -> Alter:
        MUTANTS[alter.__name__] = Mutant(frozenset(noticed_by), alter, to_cloud)
        return alter

    return add


@mutant("node.zone")
def forgets_the_zone(path: str, body: dict[str, Any]) -> dict[str, Any]:
    body.get("metadata", {}).get("labels", {}).pop("topology.kubernetes.io/zone", None)
    return body


@mutant("node.addresses", "node.provided-ip")
def forgets_addresses(path: str, body: dict[str, Any]) -> dict[str, Any]:
    body.get("status", {}).pop("addresses", None)
    return body


@mutant("node.other-taints")
def removes_all_taints(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if "/nodes/" in path and "taints" in body.get("spec", {}):
        body["spec"]["taints"] = []
    return body


@mutant("node.told", "node.unknown-told")
def tells_nothing_of_nodes(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if body.get("involvedObject", {}).get("kind") == "Node" else body


@mutant("balancer.finalizer")
def sets_no_finalizer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    body.get("metadata", {}).pop("finalizers", None)
    return body


@mutant("balancer.told")
def tells_nothing_of_success(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if body.get("reason") == "EnsuredLoadBalancer" else body


@mutant("balancer.family-told")
def tells_nothing_of_failures(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if body.get("involvedObject", {}).get("kind") == "Service" and body["type"] == "Warning" else body


@mutant("balancer.source-ranges", to_cloud=True)
def lets_everybody_in(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "source_ranges": []} if "source_ranges" in body else body


@mutant("balancer.udp", to_cloud=True)
def takes_udp_for_tcp(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "ports": [{**port, "protocol": "TCP"} for port in body["ports"]]} if "ports" in body else body


@mutant("balancer.local", to_cloud=True)
def checks_no_health(path: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "health_check": None} if "health_check" in body else body


@mutant("fault.late-listing.initialises-afterwards")
def initialises_nothing_of_a_fault(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if "/nodes/fault-late-listing-initialises" in path else body


@mutant("project.initialises-afterwards")
def initialises_nothing_of_another_project(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if "/nodes/project-initialises" in path else body


@mutant("fault.late-listing.deletes-afterwards")
def deletes_no_node(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if body == DELETED and "/nodes/fault-late-listing-deletes" in path else body


@mutant("fault.late-listing.serves-afterwards")
def serves_nobody_of_a_fault(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if "/fault-late-listing-serves" in path else body


@mutant("fault.late-listing.releases-nothing", to_cloud=True)
def deletes_no_load_balancer(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if body == DELETED and "/load-balancers/" in path else body


@mutant("restart.status-lost")
def publishes_nothing_again(path: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return None if STARTED_AGAIN and "/restart-status-lost" in path else body


@mutant("machine.renamed-member")
def excludes_renamed_machines(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if "/nodes/machine-renamed-member" in path and body != DELETED and not path.endswith("/status"):
        label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
        metadata = body.get("metadata", {})
        body["metadata"] = {**metadata, "labels": {**metadata.get("labels", {}), **label}}
    return body


@acting("fault.late-listing.keeps-nodes")
def deletes_silent_nodes(place: Place) -> None:
    for name in place.ready("fault-late-listing-keeps-nodes", "Unknown"):
        place.kube.delete(f"{NODES}/{name}")


@acting("fault.late-listing.taints-nothing")
def takes_silent_nodes_for_stopped(place: Place) -> None:
    for name in place.ready("fault-late-listing-taints-nothing", "Unknown"):
        taint = {"key": SHUTDOWN, "effect": "NoSchedule"}
        place.kube.patch(f"{NODES}/{name}", {"spec": {"taints": [taint]}})


@acting("fault.late-listing.keeps-balancers")
def deletes_load_balancers(place: Place) -> None:
    for address in place.services("fault-late-listing-keeps-balancers").values():
        if SEEN.setdefault(address, time.monotonic()) < time.monotonic() - LATER:
            place.delete_balancer(address)


@acting("project.keeps-balancers", at_start=True)
def deletes_load_balancers_at_start(place: Place) -> None:
    for address in place.services("project-keeps-balancers").values():
        place.delete_balancer(address)


#: When `deletes_load_balancers` first saw an address, and how many seconds later it acts.
SEEN: dict[str, float] = {}
LATER = 10.0


def act(names: list[str], arguments: list[str]) -> None:
    """Start what the mutants do besides altering writes."""
    flags = dict(each.split("=", 1) for each in arguments if "=" in each)
    place = Place(Kube(Path(flags["--kubeconfig"])), Path(flags["--cloud-config"]))
    acts = [each for name in names if (each := MUTANTS[name]).act is not None]

    def once(fault: Mutant) -> None:
        assert fault.act is not None
        try:
            fault.act(place)
        except Exception:  # the API server may be away; anything else is in the controller's log
            traceback.print_exc()

    def forever() -> None:
        while True:
            for each in acts:
                if not each.at_start:
                    once(each)
            time.sleep(1)

    for each in acts:
        if each.at_start and STARTED_AGAIN:
            once(each)
    threading.Thread(target=forever, daemon=True).start()


def altered(names: list[str], path: str, body: Mapping[str, Any], *, to_cloud: bool) -> dict[str, Any] | None:
    """Return the body of a write after the mutants altered it that alter writes to the cloud (`to_cloud`) or to
    Kubernetes; None if one of them drops it."""
    result: dict[str, Any] | None = copy.deepcopy(dict(body))
    for each in (MUTANTS[name] for name in names):
        if each.to_cloud is to_cloud and result is not None:
            result = each.alter(path, result)
    return result


def misbehave(names: list[str]) -> None:
    replace, patch, create, call = KubeClient.replace, KubeClient.patch, KubeClient.create, Api.call
    delete = KubeClient.delete

    async def replaced(self: KubeClient, path: str, type: Any, data: bytes, change: Any, **how: Any) -> bytes:
        return await replace(self, path, type, data, altered(names, path, change, to_cloud=False) or {}, **how)

    async def patched(self: KubeClient, path: str, change: Any, **how: Any) -> Any:
        return await patch(self, path, altered(names, path, change, to_cloud=False) or {}, **how)

    async def deleted(self: KubeClient, path: str, **how: Any) -> None:
        if altered(names, path, DELETED, to_cloud=False) is not None:
            await delete(self, path, **how)

    async def created(self: KubeClient, path: str, body: Any, **how: Any) -> Any:
        body = altered(names, path, body, to_cloud=False)
        return None if body is None else await create(self, path, body, **how)

    async def called(self: Api, method: str, path: str, answer: Any, *, body: Any = None, **how: Any) -> Any:
        body = altered(names, path, body, to_cloud=True) if isinstance(body, Mapping) else body
        if method == "DELETE" and altered(names, path, DELETED, to_cloud=True) is None:
            return None
        return await call(self, method, path, answer, body=body, **how)

    KubeClient.replace, KubeClient.patch, KubeClient.create = replaced, patched, created  # type: ignore[method-assign]
    KubeClient.delete, Api.call = deleted, called  # type: ignore[method-assign]


if __name__ == "__main__":
    chosen = os.environ["MUTANTS"].split(",")
    if state := os.environ.get("MUTANT_STATE"):
        STARTED_AGAIN = Path(state).exists()
        Path(state).touch()
    misbehave(chosen)
    act(chosen, sys.argv[1:])
    sys.exit(cli.main())

# SPDX-License-Identifier: Apache-2.0
"""Runs our controller as a process that misbehaves in the ways that $MUTANTS names: its writes are altered.

Each mutant lists the behaviours that notice it. The arguments are those of `ccm`.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ccm import cli
from ccm.engine.client import KubeClient
from ccm.providers.sim.api import Api

#: Gets a write: its path, and its body, which is a merge patch if it changes an object. Returns the altered body, or
#: None to drop the write.
Alter = Callable[[str, dict[str, Any]], dict[str, Any] | None]


@dataclass(frozen=True)
class Mutant:
    """A way to misbehave. `to_cloud`: whether it alters writes to the simulated cloud, not those to Kubernetes."""

    noticed_by: frozenset[str]
    alter: Alter
    to_cloud: bool = False


MUTANTS: dict[str, Mutant] = {}


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


def altered(names: list[str], path: str, body: Mapping[str, Any], *, to_cloud: bool) -> dict[str, Any] | None:
    """Return the body of a write after all mutants altered it; None if one drops it."""
    result: dict[str, Any] | None = copy.deepcopy(dict(body))
    for each in (MUTANTS[name] for name in names):
        if each.to_cloud is to_cloud and result is not None:
            result = each.alter(path, result)
    return result


def misbehave(names: list[str]) -> None:
    replace, patch, create, call = KubeClient.replace, KubeClient.patch, KubeClient.create, Api.call

    async def replaced(self: KubeClient, path: str, type: Any, data: bytes, change: Any, **how: Any) -> bytes:
        return await replace(self, path, type, data, altered(names, path, change, to_cloud=False) or {}, **how)

    async def patched(self: KubeClient, path: str, change: Any, **how: Any) -> Any:
        return await patch(self, path, altered(names, path, change, to_cloud=False) or {}, **how)

    async def created(self: KubeClient, path: str, body: Any, **how: Any) -> Any:
        body = altered(names, path, body, to_cloud=False)
        return None if body is None else await create(self, path, body, **how)

    async def called(self: Api, method: str, path: str, answer: Any, *, body: Any = None, **how: Any) -> Any:
        body = altered(names, path, body, to_cloud=True) if isinstance(body, Mapping) else body
        return await call(self, method, path, answer, body=body, **how)

    KubeClient.replace, KubeClient.patch, KubeClient.create = replaced, patched, created  # type: ignore[method-assign]
    Api.call = called  # type: ignore[method-assign]


if __name__ == "__main__":
    misbehave(os.environ["MUTANTS"].split(","))
    sys.exit(cli.main())

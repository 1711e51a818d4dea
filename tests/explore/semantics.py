# SPDX-License-Identifier: Apache-2.0
"""Checks of the behaviour of API servers on which the runtime relies. Every API server must pass them.

`test_semantics` runs them against the API server of this folder, and those without watches against
`tests/kube_in_memory.py`. `tests/integration/engine/test_semantics` runs them against a real one. So what tests find
holds for a real cluster.
Each check gets a client, and a name of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from ccm.engine.api_errors import ConflictError, InvalidError, NotFoundError
from ccm.engine.client import KubeClient

Check = Callable[[KubeClient, str], Awaitable[None]]

SERVICES = "/api/v1/namespaces/default/services"
NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
FINALIZER = "example.com/kept"
Document = dict[str, Any]


def service(name: str, **meta: Any) -> Document:
    ports = [{"name": "http", "protocol": "TCP", "port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", **meta},
        "spec": {"type": "ClusterIP", "ports": ports},
    }


def node(name: str) -> Document:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "True"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": "sim://north/a"},
        "status": {"conditions": conditions},
    }


async def read(kube: KubeClient, path: str) -> Document:
    return await kube.get(path, dict)


async def watched(kube: KubeClient, path: str, version: str, number: int, **params: str) -> list[Document]:
    """Return the first events of a watch; fewer if the watch ends before."""
    found: list[Document] = []
    query = {"resourceVersion": version, "timeoutSeconds": "5", "allowWatchBookmarks": "true", **params}
    async with kube.watch(path, query, read_timeout=30.0) as lines:
        async for line in lines:
            found.append(msgspec.json.decode(line))
            if len(found) == number:
                break
    return found


async def a_name_is_taken_once(kube: KubeClient, name: str) -> None:
    await kube.create(SERVICES, service(name))
    with pytest.raises(ConflictError):
        await kube.create(SERVICES, service(name))


async def a_patch_of_an_old_version_is_a_conflict(kube: KubeClient, name: str) -> None:
    created = await kube.create(SERVICES, service(name))
    meta = {"resourceVersion": created.resource_version}
    changed = await kube.patch(f"{SERVICES}/{name}", {"metadata": {**meta, "labels": {"a": "1"}}})
    assert changed.resource_version != created.resource_version
    with pytest.raises(ConflictError):
        await kube.patch(f"{SERVICES}/{name}", {"metadata": {**meta, "labels": {"a": "2"}}})
    assert (await read(kube, f"{SERVICES}/{name}"))["metadata"]["labels"] == {"a": "1"}


async def a_patch_of_another_uid_is_refused(kube: KubeClient, name: str) -> None:
    """A patch with another UID is refused as invalid, or as a conflict if it also has another resourceVersion."""
    created = await kube.create(SERVICES, service(name))
    meta = {"uid": "another", "labels": {"a": "1"}}
    with pytest.raises(InvalidError):
        await kube.patch(f"{SERVICES}/{name}", {"metadata": meta})
    await kube.patch(f"{SERVICES}/{name}", {"metadata": {"labels": {"b": "1"}}})
    with pytest.raises(ConflictError):
        await kube.patch(f"{SERVICES}/{name}", {"metadata": {**meta, "resourceVersion": created.resource_version}})


async def a_patch_that_changes_nothing_keeps_the_version(kube: KubeClient, name: str) -> None:
    created = await kube.create(SERVICES, service(name, labels={"a": "1"}))
    again = await kube.patch(f"{SERVICES}/{name}", {"metadata": {"labels": {"a": "1"}}})
    assert again.resource_version == created.resource_version


async def a_merge_patch_merges_maps_and_removes_by_null(kube: KubeClient, name: str) -> None:
    await kube.create(SERVICES, service(name, labels={"a": "1", "b": "2"}))
    changed = await kube.patch(f"{SERVICES}/{name}", {"metadata": {"labels": {"a": None, "c": "3"}}})
    assert changed.labels == {"b": "2", "c": "3"}


async def what_is_not_there_is_not_found(kube: KubeClient, name: str) -> None:
    path = f"{SERVICES}/{name}"
    for attempt in (lambda: read(kube, path), lambda: kube.patch(path, {}), lambda: kube.delete(path)):
        with pytest.raises(NotFoundError):
            await attempt()


async def a_delete_has_preconditions(kube: KubeClient, name: str) -> None:
    created = await kube.create(SERVICES, service(name))
    path = f"{SERVICES}/{name}"
    with pytest.raises(ConflictError):
        await kube.delete(path, uid="another")
    with pytest.raises(ConflictError):
        await kube.delete(path, resource_version="1")
    await kube.delete(path, uid=created.uid, resource_version=created.resource_version)
    with pytest.raises(NotFoundError):
        await read(kube, path)


async def a_finalizer_keeps_what_is_deleted(kube: KubeClient, name: str) -> None:
    path = f"{SERVICES}/{name}"
    created = await kube.create(SERVICES, service(name, finalizers=[FINALIZER]))
    await kube.delete(path)
    kept = (await read(kube, path))["metadata"]
    assert kept["deletionTimestamp"] and kept["uid"] == created.uid
    await kube.delete(path)
    assert (await read(kube, path))["metadata"]["resourceVersion"] == kept["resourceVersion"]
    with pytest.raises(InvalidError):  # a patch may remove a finalizer, but not add one
        await kube.patch(path, {"metadata": {"finalizers": [FINALIZER, "example.com/more"]}})
    await kube.patch(f"{path}/status", {"metadata": {"finalizers": None}})
    with pytest.raises(NotFoundError):
        await read(kube, path)


async def status_and_spec_change_by_their_own_paths_alone(kube: KubeClient, name: str) -> None:
    path = f"{SERVICES}/{name}"
    ingress = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    created = await kube.create(SERVICES, {**service(name), "status": ingress})
    before = await read(kube, path)
    assert not before["status"].get("loadBalancer", {}).get("ingress")
    same = await kube.patch(path, {"status": ingress})
    assert same.resource_version == created.resource_version
    other = {"spec": {"sessionAffinity": "ClientIP"}, "metadata": {"finalizers": [FINALIZER]}}
    await kube.patch(path, {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}})
    await kube.patch(f"{path}/status", {**other, "status": ingress})
    after = await read(kube, path)
    assert after["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
    assert after["spec"].get("sessionAffinity") != "ClientIP"
    assert after["metadata"]["finalizers"] == [FINALIZER]


async def a_strategic_patch_merges_conditions_by_type(kube: KubeClient, name: str) -> None:
    await kube.create(NODES, node(name))
    patch = {"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}}
    await kube.patch(f"{NODES}/{name}/status", patch, strategic=True)
    conditions = (await read(kube, f"{NODES}/{name}"))["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {"Ready": "True", "NetworkUnavailable": "False"}


async def a_strategic_patch_deletes_one_condition_of_a_service(kube: KubeClient, name: str) -> None:
    await kube.create(SERVICES, service(name))
    path = f"{SERVICES}/{name}"
    known = {"status": "True", "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for kind in ("LoadBalancerWaiting", "Another"):
        await kube.patch(f"{path}/status", {"status": {"conditions": [{"type": kind, **known}]}}, strategic=True)
    types = [each["type"] for each in (await read(kube, path))["status"]["conditions"]]
    assert sorted(types) == ["Another", "LoadBalancerWaiting"]
    gone = {"status": {"conditions": [{"$patch": "delete", "type": "LoadBalancerWaiting"}]}}
    await kube.patch(f"{path}/status", gone, strategic=True)
    after = await read(kube, path)
    assert [each["type"] for each in after["status"]["conditions"]] == ["Another"]
    await kube.patch(f"{path}/status", gone, strategic=True)
    assert (await read(kube, path))["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


async def a_strategic_patch_merges_addresses_by_type_or_replaces_them(kube: KubeClient, name: str) -> None:
    path = f"{NODES}/{name}"
    two = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]
    host = {"type": "Hostname", "address": name}
    await kube.create(NODES, node(name))
    for given in ([host], [{"$patch": "replace"}, *two]):
        await kube.patch(f"{path}/status", {"status": {"addresses": given}}, strategic=True)
    assert (await read(kube, path))["status"]["addresses"] == two
    await kube.patch(f"{path}/status", {"status": {"addresses": [{"$patch": "replace"}, two[0]]}}, strategic=True)
    await kube.patch(f"{path}/status", {"status": {"addresses": [host]}}, strategic=True)
    types = [each["type"] for each in (await read(kube, path))["status"]["addresses"]]
    assert sorted(types) == ["Hostname", "InternalIP"]


async def a_provider_id_is_written_once(kube: KubeClient, name: str) -> None:
    await kube.create(NODES, node(name))
    with pytest.raises(InvalidError):
        await kube.patch(f"{NODES}/{name}", {"spec": {"providerID": "sim://north/b"}})


async def a_node_has_no_address_twice(kube: KubeClient, name: str) -> None:
    await kube.create(NODES, node(name))
    address = {"type": "InternalIP", "address": "10.0.0.1"}
    with pytest.raises(InvalidError):
        await kube.patch(f"{NODES}/{name}/status", {"status": {"addresses": [address, address]}})


async def addresses_are_for_load_balancers_alone(kube: KubeClient, name: str) -> None:
    """A Service loses its addresses when its type changes, and a Service of another type gets none."""
    path = f"{SERVICES}/{name}"
    given = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
    await kube.create(SERVICES, service(name))
    with pytest.raises(InvalidError):
        await kube.patch(f"{path}/status", given)
    await kube.patch(path, {"spec": {"type": "LoadBalancer"}})
    await kube.patch(f"{path}/status", given)
    assert (await read(kube, path))["status"]["loadBalancer"]["ingress"][0]["ip"] == "203.0.113.9"
    await kube.patch(path, {"spec": {"type": "ClusterIP"}})
    assert not (await read(kube, path))["status"].get("loadBalancer")


async def a_watch_goes_on_where_the_list_ended(kube: KubeClient, name: str) -> None:
    await kube.create(SERVICES, service(f"{name}-a"))
    items, version = await kube.list(SERVICES, dict)
    assert f"{name}-a" in {each["metadata"]["name"] for each in items}
    await kube.create(SERVICES, service(f"{name}-b"))
    await kube.patch(f"{SERVICES}/{name}-a", {"metadata": {"labels": {"a": "1"}}})
    await kube.delete(f"{SERVICES}/{name}-b")
    events = [each for each in await watched(kube, SERVICES, version, 3) if each["type"] != "BOOKMARK"]
    told = [(each["type"], each["object"]["metadata"]["name"]) for each in events]
    assert told == [("ADDED", f"{name}-b"), ("MODIFIED", f"{name}-a"), ("DELETED", f"{name}-b")]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert int(version) < versions[0] and versions == sorted(set(versions))


async def a_watch_of_one_name_tells_of_it_alone(kube: KubeClient, name: str) -> None:
    _, version = await kube.list(SERVICES, dict)
    await kube.create(SERVICES, service(f"{name}-a"))
    await kube.create(SERVICES, service(f"{name}-b"))
    events = await watched(kube, SERVICES, version, 1, fieldSelector=f"metadata.name={name}-b")
    assert [each["object"]["metadata"]["name"] for each in events] == [f"{name}-b"]


async def a_watch_from_a_forgotten_version_is_told_so(kube: KubeClient, version: str) -> None:
    """A watch from a compacted version gets a 410 as an event; the answer itself is 200. The check is not in `SUITE`,
    because the server must compact `version` first."""
    (event,) = await watched(kube, SERVICES, version, 9)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def a_watch_ends_with_a_bookmark(kube: KubeClient, name: str) -> None:
    """A watch ends with a bookmark if others write meanwhile, so that a watch of an unchanged object can continue."""
    created = await kube.create(SERVICES, service(f"{name}-a"))
    own = {"fieldSelector": f"metadata.name={name}-a"}
    watching = asyncio.create_task(watched(kube, SERVICES, created.resource_version, 9, **own))
    await asyncio.sleep(1.0)
    other = await kube.create(SERVICES, service(f"{name}-b"))
    events = await watching
    assert {each["type"] for each in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(other.resource_version)


async def a_lease_is_taken_by_one(kube: KubeClient, name: str) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    created = await kube.create(LEASES, lease)
    meta = {"resourceVersion": created.resource_version}
    await kube.patch(f"{LEASES}/{name}", {"metadata": meta, "spec": {"holderIdentity": "b"}})
    with pytest.raises(ConflictError):
        await kube.patch(f"{LEASES}/{name}", {"metadata": meta, "spec": {"holderIdentity": "c"}})
    found = await read(kube, f"{LEASES}/{name}")
    assert found["spec"] == {**spec, "holderIdentity": "b"}


#: Checks of objects, without watches.
OBJECTS: tuple[Check, ...] = (
    a_name_is_taken_once,
    a_patch_of_an_old_version_is_a_conflict,
    a_patch_of_another_uid_is_refused,
    a_patch_that_changes_nothing_keeps_the_version,
    a_merge_patch_merges_maps_and_removes_by_null,
    what_is_not_there_is_not_found,
    a_delete_has_preconditions,
    a_finalizer_keeps_what_is_deleted,
    status_and_spec_change_by_their_own_paths_alone,
    a_strategic_patch_merges_conditions_by_type,
    a_strategic_patch_deletes_one_condition_of_a_service,
    a_strategic_patch_merges_addresses_by_type_or_replaces_them,
    a_provider_id_is_written_once,
    a_node_has_no_address_twice,
    addresses_are_for_load_balancers_alone,
    a_lease_is_taken_by_one,
)
SUITE: tuple[Check, ...] = (
    *OBJECTS,
    a_watch_goes_on_where_the_list_ended,
    a_watch_of_one_name_tells_of_it_alone,
    a_watch_ends_with_a_bookmark,
)

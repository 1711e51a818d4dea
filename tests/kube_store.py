# SPDX-License-Identifier: Apache-2.0
"""The objects of a cluster as the API server keeps them, for all tests without a real one.

It knows nothing of HTTP, faults or time-outs. `tests/explore/semantics.py` compares it with a real API server.

Documents are never changed in place, so that a copy of the tables is a snapshot, and an old state can be shown again.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tests.merge_patch import merge, strategic_merge

Document = dict[str, Any]
Key = tuple[str, str]  # resource ("services"), and "namespace/name" or "name"

#: Resources with a subresource `status`: only the subresource changes the status, and it does not change the spec.
WITH_STATUS = {"nodes", "services"}


class Refusal(Exception):
    """The API server refuses a request: HTTP status, reason, message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Change(NamedTuple):
    """A change, as watches report it. `before`: None for a new object."""

    version: int
    at: float
    resource: str
    kind: str
    key: str
    before: Document | None
    line: bytes


@functools.lru_cache(maxsize=4096)
def named(path: str) -> tuple[str, str, str, bool]:
    """Return what the path of a request names: namespace, resource, key, and whether it ends with `/status`."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    return namespace, parts[0], f"{namespace}/{name}" if name and namespace else name, parts[2:] == ["status"]


def key_of(document: Document) -> str:
    """Return "namespace/name", or the name of an object without a namespace."""
    meta = document["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


@dataclass
class Store:
    """One cluster's etcd. `clock` gives monotonic seconds, `stamp` the wall clock as RFC 3339 text."""

    clock: Callable[[], float]
    stamp: Callable[[], str]
    objects: dict[str, dict[str, Document]] = field(default_factory=dict)
    version: int = 1000
    uids: int = 0
    name: str = "a"
    history: list[Change] = field(default_factory=list)
    compacted: int = 0
    listeners: list[Callable[[Change], None]] = field(default_factory=list)

    def snapshot(self, name: str | None = None) -> Store:
        """Return another etcd with the same content, without listeners and history: older watches get a 410."""
        objects = {resource: dict(table) for resource, table in self.objects.items()}
        return Store(
            self.clock, self.stamp, objects, self.version, self.uids, name or self.name, compacted=self.version
        )

    def table(self, resource: str) -> dict[str, Document]:
        return self.objects.setdefault(resource, {})

    def get(self, resource: str, key: str) -> Document:
        try:
            return self.table(resource)[key]
        except KeyError:
            raise Refusal(404, "NotFound", f'{resource} "{key}" not found') from None

    def as_of(self, resource: str, moment: float) -> tuple[dict[str, Document], int]:
        """Return the table and its resourceVersion as they were at `moment`."""
        table, version = dict(self.table(resource)), self.version
        for change in reversed(self.history):
            if change.at <= moment:
                break
            version = change.version - 1
            if change.resource != resource:
                continue
            if change.before is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.before
        return table, version

    def since(self, resource: str, version: int) -> Iterator[Change]:
        newer = list(itertools.takewhile(lambda each: each.version > version, reversed(self.history)))
        return (each for each in reversed(newer) if each.resource == resource)

    def compact(self) -> None:
        """Compact: no watch can continue from a resourceVersion that was seen until now."""
        self.version += 1
        self.compacted = self.version

    # Writes

    def create(self, resource: str, body: Document) -> Document:
        if (key := key_of(body)) in self.table(resource):
            raise Refusal(409, "AlreadyExists", f'{resource} "{key}" already exists')
        if resource == "services":  # a Service's status cannot be created
            body = {**body, "status": {"loadBalancer": {}}}
        self.uids += 1
        meta = {"uid": f"{self.name}-uid-{self.uids}", "creationTimestamp": self.stamp(), **body["metadata"]}
        return self._put(resource, "ADDED", key, {**body, "metadata": meta})

    def put(self, resource: str, document: Document) -> Document:
        """Create or replace an object, even if the API server would refuse that."""
        key = key_of(document)
        return self._put(resource, "MODIFIED" if key in self.table(resource) else "ADDED", key, document)

    def drop(self, resource: str, key: str) -> Document:
        """Remove an object, whatever its finalizers say."""
        return self._remove(resource, key, self.get(resource, key))

    def update(
        self,
        resource: str,
        key: str,
        change: Callable[[Document], Document],
        *,
        version: str | None = None,
        uid: str | None = None,
        status: bool = False,
    ) -> Document:
        """Replace an object by what `change` returns, and return the result. `status`: through the subresource. An
        object without a change keeps its resourceVersion."""
        before = self.get(resource, key)
        self._check(before, version)
        if uid not in (None, before["metadata"].get("uid")):
            raise Refusal(422, "Invalid", f"metadata.uid: Invalid value: {uid}: field is immutable")
        after = change(before)
        if resource in WITH_STATUS:
            name = "spec" if status else "status"
            after = {key: value for key, value in after.items() if key != name}
            after |= {name: before[name]} if name in before else {}
        meta = before["metadata"]
        fixed = {name: meta[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in meta}
        after = {**after, "metadata": {**after["metadata"], **fixed}}
        old_id, new_id = (each.get("spec", {}).get("providerID") for each in (before, after))
        if old_id and new_id != old_id:
            raise Refusal(422, "Invalid", "spec.providerID: Forbidden: node updates may not change providerID")
        if resource == "nodes":
            addresses = [(each["type"], each["address"]) for each in after.get("status", {}).get("addresses") or ()]
            if len(set(addresses)) < len(addresses):
                raise Refusal(422, "Invalid", "status.addresses: Duplicate value")
        if resource == "services" and after["spec"].get("type") != "LoadBalancer":
            after = without_addresses(after, may_have=not status)
        if after == before:
            return before
        new = set(after["metadata"].get("finalizers") or ()) - set(meta.get("finalizers") or ())
        if meta.get("deletionTimestamp") and new:
            raise Refusal(422, "Invalid", "metadata.finalizers: Forbidden: no new finalizers can be added")
        if meta.get("deletionTimestamp") and not after["metadata"].get("finalizers"):
            return self._remove(resource, key, after)
        return self._put(resource, "MODIFIED", key, after)

    def patch(self, resource: str, key: str, patch: Document, *, is_strategic: bool, status: bool) -> Document:
        meta = patch.get("metadata", {})
        bare = {**patch, "metadata": {k: v for k, v in meta.items() if k not in ("resourceVersion", "uid")}}
        how = strategic_merge if is_strategic else merge
        return self.update(
            resource,
            key,
            lambda before: how(before, bare),
            version=meta.get("resourceVersion"),
            uid=meta.get("uid"),
            status=status,
        )

    def delete(self, resource: str, key: str, *, version: str | None = None, uid: str | None = None) -> None:
        before = self.get(resource, key)
        self._check(before, version, uid)
        if not before["metadata"].get("finalizers"):
            self._remove(resource, key, before)
        elif not before["metadata"].get("deletionTimestamp"):
            gone = {**before["metadata"], "deletionTimestamp": self.stamp()}
            self._put(resource, "MODIFIED", key, {**before, "metadata": gone})

    def touch(self, resource: str, key: str) -> None:
        """Change an object as another writer does, if it exists."""
        note = {"metadata": {"annotations": {"example.com/touched": str(self.version)}}}
        if key in self.table(resource):
            self.update(resource, key, lambda before: merge(before, note))

    def _check(self, before: Document, version: str | None, uid: str | None = None) -> None:
        meta = before["metadata"]
        if uid not in (None, meta["uid"]):
            raise Refusal(409, "Conflict", f"precondition failed: UID in precondition: {uid}, in object: {meta['uid']}")
        if version not in (None, meta["resourceVersion"]):
            raise Refusal(409, "Conflict", "the object has been modified; please apply your changes to the latest")

    def _put(self, resource: str, kind: str, key: str, document: Document) -> Document:
        before = self.table(resource).get(key)
        return self._tell(resource, kind, key, before, document)

    def _remove(self, resource: str, key: str, last: Document) -> Document:
        return self._tell(resource, "DELETED", key, self.table(resource)[key], last)

    def _tell(self, resource: str, kind: str, key: str, before: Document | None, document: Document) -> Document:
        self.version += 1
        document = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.version)}}
        if kind == "DELETED":
            del self.table(resource)[key]
        else:
            self.table(resource)[key] = document
        line = msgspec.json.encode({"type": kind, "object": document}) + b"\n"
        change = Change(self.version, self.clock(), resource, kind, key, before, line)
        self.history.append(change)
        for listener in list(self.listeners):
            listener(change)
        return document

    def dump(self) -> Any:
        return copy.deepcopy(self.objects)


def without_addresses(service: Document, *, may_have: bool) -> Document:
    """Return a Service, which is not of type LoadBalancer, without the addresses in its status. `may_have`: drop them;
    otherwise, refuse a Service that has some."""
    balancer = service.get("status", {}).get("loadBalancer") or {}
    if not balancer.get("ingress"):
        return service
    if not may_have:
        what = 'may only be used when `spec.type` is "LoadBalancer"'
        raise Refusal(422, "Invalid", f"status.loadBalancer.ingress: Forbidden: {what}")
    return {**service, "status": {**service["status"], "loadBalancer": {}}}

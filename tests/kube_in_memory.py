# SPDX-License-Identifier: Apache-2.0
"""An API server that replaces a `KubeClient`. It keeps its objects in a `Store` of `tests/kube_store.py`.

It is for tests of single controllers. `tests/explore` has the same objects below a `KubeClient`, with faults of
connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import msgspec

from ccm.engine import api_errors
from ccm.engine.client import KubeClient
from ccm.engine.objects import ObjectMeta, Status
from tests.kube_store import Document, Refusal, Store, named, without_addresses
from tests.merge_patch import merge

#: creationTimestamp and deletionTimestamp, unless a test sets them.
STAMP = "2026-01-01T00:00:00Z"


class KubeInMemory:
    """`requests`: (verb, path) of each request except lists and watches. `patches`: (path, patch) of each patch of an
    object. `events`: bodies of created Events. `repeated`: patches of repeated Events.

    `latency`: seconds of each request, except those for Events. `list_latency`: seconds of each list, by kind. `before`
    is called as each request arrives. `after`, after the work, may return an error to raise. `most`: maximum of
    concurrent requests, without those for Events. `wrong_lists`: by kind, what its next lists answer instead of the
    objects.
    """

    def __init__(self, *kinds: str) -> None:
        self.store = Store(lambda: 0.0, lambda: STAMP, {kind: {} for kind in kinds}, version=100)
        self.objects = self.store.objects
        self.requests: list[tuple[str, str]] = []
        self.patches: list[tuple[str, Document]] = []
        self.events: list[Document] = []
        self.repeated: list[Document] = []
        self.before: Callable[[str, str], None] = lambda verb, path: None
        self.after: Callable[[str, str], Exception | None] = lambda verb, path: None
        self.latency = 0.01
        self.list_latency: dict[str, float] = {}
        self.wrong_lists: dict[str, list[list[Document]]] = {}
        self.most = self._under_way = 0
        self._watchers: list[tuple[str, asyncio.Queue[bytes]]] = []
        self.store.listeners.append(lambda change: self._send(change.resource, change.line))

    def refusal(self, verb: str, path: str, patch: Document) -> Exception | None:
        """Return the error with which a request fails, None to let it succeed; subclasses override this.

        `patch`: {} unless the request is a patch.
        """
        return None

    # Changes that others make to the cluster.

    def put(self, kind: str, document: Document) -> Document:
        """Create or replace an object and notify watches. Returns the stored object."""
        return self.store.put(kind, document)

    def change(self, kind: str, key: str, patch: Document) -> None:
        """Change an object as others do. A Service that no longer has the type LoadBalancer loses its addresses."""
        document = merge(self.objects[kind][key], patch)
        if kind == "services" and document["spec"].get("type") != "LoadBalancer":
            document = without_addresses(document, may_have=True)
        self.store.put(kind, document)

    def remove(self, kind: str, key: str) -> None:
        """Remove an object at once, whatever its finalizers."""
        self.store.drop(kind, key)

    def show(self, kind: str, how: str, document: Document) -> None:
        """Show a change to the watches alone."""
        self._send(kind, json.dumps({"type": how, "object": document}).encode())

    def expire(self) -> None:
        """End all watches with a 410, as after a compaction."""
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        for kind in self.objects:
            self.show(kind, "ERROR", status)

    def _send(self, kind: str, line: bytes) -> None:
        for watched, watcher in self._watchers:
            if watched == kind:
                watcher.put_nowait(line)

    # What tests read.

    def told(self, reason: str, name: str = "") -> list[str]:
        """Return the messages of Events with this reason, about the object `name` or about any."""
        return [
            event["message"]
            for event in self.events
            if event["reason"] == reason and name in ("", event["involvedObject"]["name"])
        ]

    # The methods of a KubeClient.

    async def _request(self, verb: str, path: str, work: Callable[[], Any], patch: Document | None = None) -> Any:
        self.requests.append((verb, path))
        self.before(verb, path)
        counts = "/events" not in path
        self._under_way += counts
        self.most = max(self.most, self._under_way)
        try:
            await asyncio.sleep(self.latency if counts else 0)
            if (error := self.refusal(verb, path, patch or {})) is not None:
                raise error
            result = self._carried_out(f"{verb} {path}", work)
            if (error := self.after(verb, path)) is not None:
                raise error
            return result
        finally:
            self._under_way -= counts

    @staticmethod
    def _carried_out(context: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Refusal as refusal:
            status = Status(message=str(refusal), reason=refusal.reason, code=refusal.status)
            raise api_errors.from_status(status, context) from None

    async def get(self, path: str, type: Any, **_: Any) -> Any:
        _, kind, key, _ = named(path)
        return await self._request("GET", path, lambda: msgspec.convert(self.store.get(kind, key), type))

    async def exists(self, collection: str, meta: ObjectMeta) -> bool:
        return await KubeClient.exists(self, collection, meta)  # type: ignore[arg-type]

    async def list(
        self, path: str, type: Any, *, keep: Callable[[Any], Any] = lambda item: item, **_: Any
    ) -> tuple[list[Any], str]:
        namespace, kind, _, _ = named(path)
        await asyncio.sleep(self.list_latency.get(kind, self.latency))
        wrong = self.wrong_lists.get(kind)
        listed = [
            each
            for each in (wrong.pop(0) if wrong else self.store.table(kind).values())
            if namespace in ("", each["metadata"].get("namespace"))
        ]
        return [keep(msgspec.convert(each, type)) for each in listed], str(self.store.version)

    async def create(self, path: str, body: Document, **_: Any) -> ObjectMeta:
        namespace, kind, _, _ = named(path)
        if kind == "events":
            return await self._request("POST", path, lambda: self.events.append(body) or ObjectMeta())
        meta = {"namespace": namespace, **body["metadata"]} if namespace else body["metadata"]
        return await self._request("POST", path, lambda: _meta(self.store.create(kind, {**body, "metadata": meta})))

    async def patch(self, path: str, patch: Document, *, strategic: bool = False, **_: Any) -> ObjectMeta:
        _, kind, key, status = named(path)
        if kind == "events":
            return await self._request("PATCH", path, lambda: self.repeated.append(patch) or ObjectMeta(), patch)
        self.patches.append((path, patch))

        def work() -> ObjectMeta:
            return _meta(self.store.patch(kind, key, patch, is_strategic=strategic, status=status))

        return await self._request("PATCH", path, work, patch)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None, **_: Any) -> None:
        _, kind, key, _ = named(path)
        await self._request("DELETE", path, lambda: self.store.delete(kind, key, version=resource_version, uid=uid))

    @contextlib.asynccontextmanager
    async def watch(self, path: str, params: Any, *, read_timeout: float, **_: Any) -> Any:
        queue = asyncio.Queue[bytes]()
        watcher = (named(path)[1], queue)
        self._watchers.append(watcher)

        async def lines() -> Any:
            while True:
                yield await queue.get()

        try:
            yield lines()
        finally:
            self._watchers.remove(watcher)


def _meta(document: Document) -> ObjectMeta:
    return msgspec.convert(document["metadata"], ObjectMeta)

# SPDX-License-Identifier: Apache-2.0
"""Writes a plan to a Node: its addresses first, then the rest. The first write names the resourceVersion on
which the decision is based, the second one the resourceVersion that the first one returned.

A Node that waits to be initialised is replaced (PUT): the change is made in the bytes that were read. That costs the
API server a fifth less CPU than a strategic merge patch, which costs less than a JSON merge patch (`make bench
BENCH=wire`). Any other Node is patched, and so is a Node that the API server refuses to replace.
"""

from __future__ import annotations

import logging

from prometheus_client import Counter

from ccm.engine.client import ApiError, ForbiddenError, InvalidError, KubeClient
from ccm.engine.encodings import in_protobuf
from ccm.engine.objects import Node

from . import node_rules as rules

log = logging.getLogger(__name__)

PATCHES = Counter(
    "ccm_node_patches",
    "Patches of Nodes, by what they write: addresses, initialisation, labels, shutdown-taint, "
    "out-of-service-taint. A Node that is replaced counts as well.",
    ["kind"],
)


class NodeWrites:
    """Writes to Nodes: replaces those whose bytes are known, and patches the others. Patches all of them once the API
    server says that the process has no right to replace Nodes."""

    def __init__(self, client: KubeClient) -> None:
        self._client, self._may_replace = client, in_protobuf(Node, "PUT")

    async def write(self, node: Node, plan: rules.Plan, kind: str) -> None:
        """Write the plan; `kind`: what its second write is for. Raises ApiError: ConflictError if the Node changed."""
        if node.as_read is not None and self._may_replace:
            try:
                await self._replace(node, node.as_read.data, plan, kind)
                return
            except (ForbiddenError, InvalidError) as error:
                self._note_refusal(error)
        await self._patch(node, plan, kind)

    async def _replace(self, node: Node, data: bytes, plan: rules.Plan, kind: str) -> None:
        """Replace the status, then the rest. Each write sends the whole Node as it was read, with one change. The API
        server takes only the status from the first write and only the rest from the second.
        """
        path = f"/api/v1/nodes/{node.metadata.name}"
        if plan.status is not None:
            data = await self._client.replace(f"{path}/status", Node, data, plan.status, last=plan.node is None)
            PATCHES.labels("addresses").inc()
        if plan.node is not None:
            await self._client.replace(path, Node, data, plan.node, last=True)
            PATCHES.labels(kind).inc()

    async def _patch(self, node: Node, plan: rules.Plan, kind: str) -> None:
        path, version = f"/api/v1/nodes/{node.metadata.name}", node.metadata.resource_version
        if plan.status is not None:
            guarded = {"metadata": {"resourceVersion": version}, **rules.as_strategic(plan.status)}
            version = (await self._client.patch(f"{path}/status", guarded, strategic=True)).resource_version
            PATCHES.labels("addresses").inc()
        if plan.node is not None:
            metadata = {**plan.node.get("metadata", {}), "resourceVersion": version}
            await self._client.patch(path, {**plan.node, "metadata": metadata}, strategic=True)
            PATCHES.labels(kind).inc()

    def _note_refusal(self, error: ApiError) -> None:
        """Stop replacing Nodes if the Role has no verb update. A webhook may refuse this one Node alone."""
        if "cannot update resource" in error.message:
            self._may_replace = False
            log.info("Nodes are patched from now on, at a greater cost to the API server: %s", error)

# SPDX-License-Identifier: Apache-2.0
"""node-ipam-controller with `--cidr-allocator-type=CloudAllocator`: Nodes get the pod CIDRs of their instances.

`node_ipam_cloud_rules` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm.cloud import NotFound
from ccm.cloud.errors import CloudError
from ccm.engine.objects import Node
from ccm.engine.queue import Requeue

from ..nodes import node_rules
from ..nodes.vouching import Vouching
from ..shared.context import Context
from . import node_ipam_rules
from .node_ipam import AGAIN, NodeIpamOptions
from .node_ipam_cloud_rules import CloudRanges


class CloudSource:
    """The pod CIDRs of instances. A Node without a providerID waits, because only that identifies its instance."""

    def __init__(self, context: Context, options: NodeIpamOptions, vouching: Vouching) -> None:
        """Raises ValueError for a provider without instances."""
        if context.gateway.instances is None:
            raise ValueError("--cidr-allocator-type=CloudAllocator needs a provider with instances")
        self._context, self._vouching, self._directory = context, vouching, context.gateway.instances
        self._ranges = CloudRanges(options.network.cluster)
        self.observe, self.release = self._ranges.observe, self._ranges.release

    def is_news(self, old: Node, new: Node) -> bool:
        return old.spec.provider_id != new.spec.provider_id

    async def choose(self, node: Node) -> Sequence[str]:
        if not self._directory.owns(node.spec.provider_id):
            return ()
        now = self._context.monotonic()
        try:
            instance = await self._directory.lookup(node_rules.instance_ref(node), not_before=now)
            wrong = await self._vouching.problem(node, instance, not_before=now)
        except NotFound:
            raise Requeue(AGAIN) from None  # the lifecycle controller decides what happens to the Node
        except CloudError as error:
            if error.retry_after is None:
                raise
            raise Requeue(error.retry_after) from error
        if wrong is not None:
            raise node_ipam_rules.NotAssigned(wrong.message, "CIDRNotAvailable")
        current = self._context.nodes.get(node.metadata.name)
        if current is None or current.metadata.uid != node.metadata.uid:
            return ()  # the Node is gone, so nothing would release its CIDRs
        return self._ranges.assign(node.metadata.uid, instance.pod_cidrs)

    def usage(self) -> Mapping[str, float]:
        return {}  # only the cloud knows its ranges

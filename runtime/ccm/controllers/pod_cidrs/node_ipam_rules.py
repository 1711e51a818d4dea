# SPDX-License-Identifier: Apache-2.0
"""Decide which pod CIDRs a Node gets. No I/O: an `Allocator` remembers which blocks Nodes have, and picks free ones.

The rules are those of kube-controller-manager's range allocator (`pkg/controller/nodeipam/ipam`). Each range of
`--cluster-cidr` is cut into blocks of one size, and a Node gets one block of each. The search continues after the last
block that was assigned, so that a freed block is used again as late as possible. Two things differ: a Node with a CIDR
outside of the ranges does not stop the process, and a block that two Nodes claim is free only when both are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from ccm.engine.objects import Node, ObjectMeta

from ..nodes import node_rules
from ..shared.limits import NODE_POD_CIDRS
from ..shared.pod_network_rules import Network, PodNetwork, parse, parse_cidr
from ..shared.rule_error import RuleError

#: A range has at most 2**16 blocks, as in upstream. A larger number means a mistake in a mask size.
MAX_BITS = 16
#: How many Nodes one message names.
NAMED = 5


class NotAssigned(RuleError):
    """A Node gets no pod CIDRs for now. `reason`: the reason of the Event."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class BlockRange:
    """The blocks of one range of `--cluster-cidr`, by their number. `prefix`: the length of a block's prefix."""

    def __init__(self, cluster: Network, prefix: int, cidr_flag: str = "--cluster-cidr") -> None:
        """Raises ValueError if no block fits into the range, or too many do."""
        bits = prefix - cluster.prefixlen
        flag = f"--node-cidr-mask-size-ipv{cluster.version}"
        if bits < 0:
            raise ValueError(f"{flag}={prefix}: a Node's pod CIDR does not fit into {cidr_flag}={cluster}")
        if bits > MAX_BITS:
            raise ValueError(
                f"{flag}={prefix}: {cidr_flag}={cluster} would have more than 2^{MAX_BITS} pod CIDRs; set a smaller "
                "mask size or a smaller range"
            )
        self.cluster, self.prefix, self.size = cluster, prefix, 1 << bits
        self._step = cluster.max_prefixlen - prefix
        self._first = int(cluster.network_address)
        #: Holders of single blocks by number, and claims of several blocks: holder, first and last number.
        self._holders: dict[int, set[str]] = {}
        self._wide: list[tuple[str, int, int]] = []
        self._next = 0

    @property
    def used(self) -> int:
        """The number of used blocks. It may be too large, because a claim of several blocks counts all of them, even
        those that others hold, too."""
        wide = sum(last - first + 1 for _, first, last in self._wide)
        return min(len(self._holders) + wide, self.size)

    def hold(self, holder: str, network: Network) -> bool:
        """Count the blocks that overlap with `network` as used by `holder`: the UID of a Node, or `SERVICES`.

        Return whether there are several such blocks.
        """
        if (numbers := self._numbers(network)) is None:
            return False
        if numbers[0] == numbers[1]:
            self._holders.setdefault(numbers[0], set()).add(holder)
            return False
        self._wide.append((holder, *numbers))
        return True

    def free(self, holder: str, network: Network) -> None:
        """Undo `hold`."""
        if (numbers := self._numbers(network)) is None:
            return
        if numbers[0] != numbers[1]:
            self._wide = [each for each in self._wide if each != (holder, *numbers)]
        elif (holders := self._holders.get(numbers[0])) is not None:
            holders.discard(holder)
            if not holders:
                del self._holders[numbers[0]]

    def others(self, holder: str, network: Network) -> set[str]:
        """Return who else holds a block that overlaps with `network`."""
        if (ends := self._numbers(network)) is None:
            return set()
        first, last = ends
        wide = {name for name, begin, end in self._wide if begin <= last and first <= end}
        numbers = self._holders if last - first > len(self._holders) else range(first, last + 1)
        single = {name for number in numbers if first <= number <= last for name in self._holders.get(number, ())}
        return (wide | single) - {holder}

    def take(self, holder: str) -> Network | None:
        """Hold a block that nobody holds, and return it; None if there is none."""
        looked = 0
        while looked < self.size:
            number = (self._next + looked) % self.size
            ends = [last for _, first, last in self._wide if first <= number <= last]
            if ends:
                looked += max(ends) - number + 1
            elif number in self._holders:
                looked += 1
            else:
                self._holders[number] = {holder}
                self._next = (number + 1) % self.size
                return self._network(number)
        return None

    def _network(self, number: int) -> Network:
        return type(self.cluster)((self._first + (number << self._step), self.prefix))

    def _numbers(self, network: Network) -> tuple[int, int] | None:
        """Return the numbers of the first and last block that overlap with `network`, None for none."""
        if network.version != self.cluster.version or not network.overlaps(self.cluster):
            return None
        begin = max(int(network.network_address), self._first)
        end = min(int(network.broadcast_address), int(self.cluster.broadcast_address))
        return (begin - self._first) >> self._step, (end - self._first) >> self._step


#: The holder of blocks that belong to Services.
SERVICES = "Services"


class Allocator:
    """The pod CIDRs that Nodes hold, by the UID of the Node; gives free ones to other Nodes."""

    def __init__(
        self,
        cluster: Sequence[Network],
        node_prefix: Mapping[int, int],
        services: Sequence[Network] = (),
        flag: str = "--cluster-cidr",
    ) -> None:
        """`node_prefix`: the length of a Node's prefix by family. No Node gets a block that overlaps with `services`.
        `flag`: the flag that sets `cluster`, for messages.

        Raises ValueError if a prefix does not fit into its range, or makes too many blocks.
        """
        self.flag = flag
        self.ranges = [BlockRange(each, node_prefix[each.version], flag) for each in cluster]
        self._held: dict[str, tuple[Network, ...]] = {}
        #: Names of Nodes with a pod CIDR of several blocks, by UID.
        self._greedy: dict[str, str] = {}
        for block in self.ranges:
            for network in services:
                block.hold(SERVICES, network)

    def observe(self, node: Node) -> set[str]:
        """Remember the CIDRs of a Node that has some. Return the UIDs of other Nodes with overlapping ones."""
        uid, networks = node.metadata.uid, pod_networks(node)
        if not networks:
            return set()
        if self._held.get(uid) != networks:
            self.release(uid)
            self._held[uid] = networks
            for block in self.ranges:
                for network in networks:
                    if block.hold(uid, network):
                        self._greedy[uid] = node.metadata.name
        return {other for block in self.ranges for each in networks for other in block.others(uid, each)} - {SERVICES}

    def assign(self, uid: str) -> tuple[str, ...] | None:
        """Return the CIDRs for a Node without any, in the order of `--cluster-cidr`; None if a range has none left.

        They belong to the Node until it is released, because a write whose result is unknown may have succeeded.
        """
        if uid not in self._held:
            taken: list[Network] = []
            for block in self.ranges:
                network = block.take(uid)
                if network is None:
                    for earlier, each in zip(self.ranges, taken, strict=False):
                        earlier.free(uid, each)
                    return None
                taken.append(network)
            self._held[uid] = tuple(taken)
        return tuple(map(str, self._held[uid]))

    def release(self, uid: str) -> bool:
        """Forget a Node that is gone. Return whether it held something."""
        networks = self._held.pop(uid, ())
        self._greedy.pop(uid, None)
        for block in self.ranges:
            for network in networks:
                block.free(uid, network)
        return bool(networks)

    def exhausted(self) -> str:
        """Return the ranges without a free block, for a message; all ranges if each has one."""
        full = [each for each in self.ranges if each.used >= each.size]
        return ", ".join(str(each.cluster) for each in full or self.ranges)

    def greedy(self) -> str:
        """Return the names of Nodes with a pod CIDR of several blocks, for a message; only the first ones of many."""
        names = sorted(self._greedy.values())
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return ", ".join(names[:NAMED]) + more


class Allocators:
    """One allocator for each cloud with ranges of its own, and one for all other Nodes, which get no block of those
    ranges."""

    def __init__(
        self, network: PodNetwork, services: Sequence[Network], of_clouds: Mapping[str, Sequence[Network]]
    ) -> None:
        """`services`: no Node gets a block that overlaps with these. `of_clouds`: cloud -> ranges within `network`.
        Raises ValueError as `Allocator` does."""
        prefixes = network.node_prefix
        taken = [each for ranges in of_clouds.values() for each in ranges]
        self._others = Allocator(network.cluster, prefixes, (*services, *taken))
        self._of_clouds = {
            cloud: Allocator(ranges, prefixes, services, f"--cloud-cluster-cidr={cloud}")
            for cloud, ranges in of_clouds.items()
        }
        self._all = (self._others, *self._of_clouds.values())

    @property
    def differ(self) -> bool:
        """Whether a Node's pod CIDRs depend on its cloud."""
        return bool(self._of_clouds)

    @property
    def ranges(self) -> list[BlockRange]:
        return [block for each in self._all for block in each.ranges]

    def of(self, node: Node, cloud_of: Callable[[Node], str | None]) -> Allocator | None:
        """Return the allocator that gives the Node its pod CIDRs. None while the Node may still turn out to belong to a
        cloud with ranges of its own: an uninitialised Node without a providerID."""
        if not self._of_clouds:
            return self._others
        if (cloud := cloud_of(node)) is not None:
            return self._of_clouds.get(cloud, self._others)
        is_open = node_rules.is_uninitialized(node) and not node.spec.provider_id
        return None if is_open else self._others

    def observe(self, node: Node) -> set[str]:
        """Remember the CIDRs of a Node that has some. Return the UIDs of other Nodes with overlapping ones."""
        return {other for each in self._all for other in each.observe(node)}

    def release(self, uid: str) -> bool:
        """Forget a Node that is gone. Return whether it held something."""
        return any([each.release(uid) for each in self._all])


def parse_ranges(flag: str, text: str) -> tuple[Network, ...]:
    """Parse the value of a flag: CIDRs separated by commas, or nothing. Raises ValueError."""
    networks: list[Network] = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        try:
            networks.append(parse_cidr(part))
        except ValueError as error:
            raise ValueError(f"{flag}: {error}") from None
    return tuple(networks)


def pod_networks(node: Node) -> tuple[Network, ...]:
    """Return the pod CIDRs of a Node, without texts that are not CIDRs."""
    texts = node.spec.pod_cidrs or [node.spec.pod_cidr]
    return tuple(network for text in texts[:NODE_POD_CIDRS] if (network := parse(text)) is not None)


def needs_cidrs(node: Node) -> bool:
    """Return whether the Node has no pod CIDR, and is not being deleted."""
    return not node.spec.pod_cidr and not node.spec.pod_cidrs and not node.metadata.deletion_timestamp


def patch(node: Node, cidrs: Sequence[str]) -> dict[str, object]:
    """Return the merge patch for exactly the Node that was looked at, because pod CIDRs cannot be changed later."""
    meta = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return {"metadata": meta, "spec": {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)}}


class ManagerContainer(msgspec.Struct, frozen=True):
    command: list[str] | None = None
    args: list[str] | None = None


class ManagerPodSpec(msgspec.Struct, frozen=True):
    containers: list[ManagerContainer] = []


class ManagerPod(msgspec.Struct, frozen=True):
    """A Pod of kube-controller-manager."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ManagerPodSpec = ManagerPodSpec()


@dataclass(frozen=True)
class _Flags:
    allocates: bool
    controllers: str


def other_allocator(pods: Iterable[ManagerPod]) -> str:
    """Return the name of a Pod of kube-controller-manager that assigns pod CIDRs, "" if none does."""
    for pod in pods:
        for container in pod.spec.containers:
            flags = _flags([*(container.command or ()), *(container.args or ())])
            if flags.allocates and _runs_allocator({part.strip() for part in flags.controllers.split(",")}):
                return pod.metadata.name
    return ""


def _runs_allocator(controllers: Set[str]) -> bool:
    """Return whether `--controllers` turns the allocator on: by its name, or by `*` unless it is excluded."""
    if {"nodeipam", "node-ipam-controller"} & controllers:
        return True
    return "*" in controllers and not {"-nodeipam", "-node-ipam-controller"} & controllers


def _flags(arguments: Sequence[str]) -> _Flags:
    allocates, controllers = False, "*"
    for text in arguments:
        name, _, value = text.partition("=")
        if name.lstrip("-") == "allocate-node-cidrs":
            allocates = value.lower() in ("", "true", "t", "1")
        elif name.lstrip("-") == "controllers":
            controllers = value
    return _Flags(allocates, controllers)

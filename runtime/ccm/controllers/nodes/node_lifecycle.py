# SPDX-License-Identifier: Apache-2.0
"""cloud-node-lifecycle-controller: deletes Nodes whose instances are gone, taints those whose instances are shut down.

The controller asks only about Nodes that are not Ready, about all of them in one read, and about each less often while
nothing changes. `node_lifecycle_rules` decides what may be deleted. Before a Node is deleted, both a complete listing
and a request for that one instance must report it gone: with credentials of another project, every request gets "not
found", and a listing with a wrong filter hides existing instances. Missing Nodes are deleted a few at a time, first
those whose instances this process saw, because nobody can have invented them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.cloud import CloudError, Instance, InstanceState, NotFound, Transient
from ccm.engine.client import ApiError, ConflictError, NotFoundError, UnavailableError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory

from ..shared.context import Context
from ..shared.event_budget import EventBudget
from . import node_fencing_rules, node_rules
from .node_changes import NodeChanges
from .node_fencing import Fencing
from .node_lifecycle_metrics import DELETED, FAILED, HELD, MISSING, PASS_SECONDS, count_answer
from .node_lifecycle_rules import Decision, Missing, Safety, Verdict, Window, concerns_us, decide, turn
from .node_witness import Witnesses
from .node_witness_rules import Evidence, doubt
from .node_writes import PATCHES
from .owners import Share
from .window_note import WindowNote

log = logging.getLogger(__name__)

#: Key of the note that records, for the next leader, the deletions within the window.
NOTE = "node-deletions"
#: Longest time in seconds between two requests about a Node that does not change.
ASK_AGAIN_MAX = 60.0
#: Key and effect of the taint of a Node whose instance is shut down.
SHUTDOWN = (node_rules.SHUTDOWN_TAINT, "NoSchedule")
#: Number of Nodes deleted or tainted at the same time.
WRITERS = 10
#: A Node that was just fenced stays for `node_fencing_rules.KEPT` seconds, so that its volumes are detached.
JUST_FENCED = Decision(Verdict.WAIT, "Fenced", "the Node was just fenced, and stays until its volumes are detached")

Answer = Instance | CloudError


class LifecycleOptions(msgspec.Struct, frozen=True):
    """Options of the controller. `period`: seconds between passes (`--node-monitor-period`). `fence`:
    `--fence-dead-nodes`."""

    period: float = 5.0
    safety: Safety = msgspec.field(default_factory=Safety)
    fence: bool = False


class _Patience(msgspec.Struct):
    """When to ask the cloud about a Node again (monotonic seconds)."""

    uid: str
    interval: float
    due: float


_Fact = TypeVar("_Fact", Missing, _Patience)


class NodeLifecycleController:
    name: ClassVar[str] = "cloud-node-lifecycle-controller"

    def __init__(self, context: Context, options: LifecycleOptions, share: Share | None = None) -> None:
        """`share`: the Nodes of this cloud if the process has several clouds, otherwise None. Raises ValueError for a
        provider without instances."""
        if context.gateway.instances is None:
            raise ValueError(f"{self.name} needs a provider with instances")
        self._directory: InstanceDirectory = context.gateway.instances
        self._context, self._share = context, share
        self._options, self._changes = options, NodeChanges(context)
        self._events = context.recorder("cloud-node-lifecycle-controller")
        self._warnings = EventBudget(self._events, context.monotonic)
        self._missing: dict[str, Missing] = {}
        self._patience: dict[str, _Patience] = {}
        self._witnesses = Witnesses(self._is_ours)
        self._window = Window(options.safety.window)
        self._note = WindowNote(context, NOTE, self._window)
        self._fencing = Fencing(
            context,
            self._directory,
            self._witnesses,
            self._warnings,
            options.safety,
            enabled=options.fence,
            is_ours=self._is_ours,
            age=self._changes.age,
            deleted=self._window.within,
        )
        self._recalled = False

    async def run(self) -> None:
        await self._context.nodes.wait_synced()
        self._changes.watch()
        while True:
            try:
                with PASS_SECONDS.time():
                    await self._pass()
            except ApiError as error:
                log.warning("cannot check the Nodes now: %s", error)
            except Exception:  # a bug must not affect the other Nodes or the other controllers
                log.exception("a check of the Nodes failed; the next one follows on schedule")
            await self._changes.pause(self._options.period, self._fencing.next_answer())

    async def _pass(self) -> None:
        if not self._recalled:
            await self._recall()
        now = self._context.monotonic()
        nodes = {node.metadata.name: node for node in self._context.nodes.items()}
        self._forget(nodes)
        # The latest listing is usually that of the node controller's refresh.
        self._witnesses.overhear(nodes.values(), self._directory.latest)
        due, well, back = [], [], []
        for node in filter(self._may_touch, nodes.values()):
            if node_fencing_rules.is_to_lift(node):
                back.append(node)
            elif node_rules.is_ready(node):
                if node_rules.has_taint(node.spec.taints, *SHUTDOWN):
                    well.append(node)
            elif self._is_ours(node) and self._is_due(node, now):
                due.append(node)
        # These writes come first, because they need no cloud call, and a Node that is back must not wait for a slow
        # cloud.
        await self._in_parallel(back, self._fencing.lift)
        await self._in_parallel(well, lambda node: self._set_shutdown_taint(node, False))
        if due:
            answers, evidence = await self._ask(due, nodes.values(), now)
            gone, there, back = [], [], []
            for node, answer in zip(due, answers, strict=True):
                count_answer(answer)
                self._fencing.learn(node, answer, now)
                if isinstance(answer, NotFound):
                    self._count_missing(node, now)
                    gone.append(node)
                elif isinstance(answer, CloudError):
                    self._hold_unknown(node, answer)
                else:
                    self._missing.pop(node.metadata.name, None)
                    self._context.holds.drop("Node", node.metadata.name)
                    self._be_patient(node, since=now)
                    self._witnesses.saw(node, node_rules.known_as(node, answer), now)
                    if answer.state is not InstanceState.RUNNING:
                        there.append(node)
                    if node_fencing_rules.is_to_lift(node, answer):
                        back.append(node)
            await self._in_parallel(there, lambda node: self._set_shutdown_taint(node, True))
            await self._in_parallel(back, self._fencing.lift)
            for node in await self._fencing.settle(due, nodes.values(), now):
                self._patience.pop(node.metadata.name, None)
            await self._settle(gone, evidence)
        MISSING.of(self._context.gateway.name).set(len(self._missing))

    async def _recall(self) -> None:
        """Load the deletions and fences of former leaders, which count, too. No pass runs before this succeeds."""
        await self._note.recall()
        await self._fencing.recall()
        self._recalled = True

    def _forget(self, nodes: dict[str, Node]) -> None:
        """Forget Nodes that are gone or were replaced, and the confirmations and holds of those that are Ready or are
        being deleted."""
        self._missing = _still_true(self._missing, nodes)
        self._patience = _still_true(self._patience, nodes)
        self._witnesses.keep_only(nodes.values())
        self._fencing.keep_only(nodes.values())
        self._context.holds.keep("Node", lambda name: name in nodes and _is_candidate(nodes[name]))

    def _is_ours(self, node: Node) -> bool:
        return self._may_touch(node) and concerns_us(node, self._directory.owns)

    def _may_touch(self, node: Node) -> bool:
        """Return False for a Node that another cloud's controllers handle."""
        return self._share is None or self._share.concerns(node)

    def _is_due(self, node: Node, now: float) -> bool:
        patience = self._patience.get(node.metadata.name)
        return patience is None or now >= patience.due

    async def _ask(self, due: Sequence[Node], nodes: Iterable[Node], now: float) -> tuple[list[Answer], Evidence]:
        """Return the cloud's answer for each Node in `due`, from a read that starts now.

        If one of them may be deleted afterwards, the read is a complete listing, and all Nodes are witnesses, because
        they reveal another project's listing. Otherwise, and if the listing fails, the `Evidence` is empty.
        """
        if not any(self._may_be_the_last_look(node) for node in due):
            # The directory combines these lookups into one read.
            answers = await asyncio.gather(
                *(self._directory.lookup(node_rules.instance_ref(node), not_before=now) for node in due),
                return_exceptions=True,
            )
            return [_answer(each) for each in answers], Evidence()
        try:
            snapshot = await self._directory.list(not_before=now)
        except CloudError as error:
            return [error] * len(due), Evidence()

        def find(node: Node) -> Answer:
            try:
                return snapshot.find(node_rules.instance_ref(node))
            except CloudError as error:
                return error

        return [find(node) for node in due], self._witnesses.hear(nodes, snapshot)

    def _may_be_the_last_look(self, node: Node) -> bool:
        missing = self._missing.get(node.metadata.name)
        confirmed = missing.confirmed if missing and missing.provider_id == node.spec.provider_id else 0
        return bool(node.spec.provider_id) and confirmed + 1 >= self._options.safety.confirmations

    def _count_missing(self, node: Node, now: float) -> None:
        name = node.metadata.name
        missing = self._missing.get(name)
        if missing is None or (missing.uid, missing.provider_id) != (node.metadata.uid, node.spec.provider_id):
            missing = self._missing[name] = Missing(node.metadata.uid, node.spec.provider_id)
        missing.confirm(now, self._options.safety.interval)

    def _hold_unknown(self, node: Node, error: CloudError) -> None:
        """The cloud gave no clear answer: reset the confirmations, report why the Node is kept, and wait."""
        self._missing.pop(node.metadata.name, None)
        HELD.labels("CloudUnknown").inc()
        self._context.holds.put("Node", node.metadata.name, "CloudUnknown", str(error))
        self._warnings.event(
            node,
            "Warning",
            "DeletionHeld",
            f"the Node is not Ready, but the cloud could not say whether its instance exists, so it is kept: {error}",
            topic="CloudUnknown",
        )
        self._be_patient(node, at_least=error.retry_after or 0.0)

    def _be_patient(self, node: Node, *, at_least: float = 0.0, since: float | None = None) -> None:
        """Do not ask about the Node for a while from `since` (monotonic seconds; now if None), longer each time."""
        before = self._patience.get(node.metadata.name)
        doubled = min(ASK_AGAIN_MAX, before.interval * 2) if before else self._options.period
        interval = max(doubled, min(at_least, ASK_AGAIN_MAX))
        due = (self._context.monotonic() if since is None else since) + interval
        self._patience[node.metadata.name] = _Patience(node.metadata.uid, interval, due)

    async def _settle(self, gone: Iterable[Node], evidence: Evidence) -> None:
        """Delete or hold the Nodes that the latest read reported gone.

        Nodes get the slots of the cap in order of `turn`. A slot stays taken in this pass even if a deletion fails.
        """
        now = self._context.monotonic()
        taken = self._window.within(now)
        nodes = evidence.known + len(taken)
        cap = self._options.safety.cap(nodes)
        at_once = self._options.safety.cap(evidence.listed + len(evidence.absent))
        chosen: list[Node] = []
        condemned: list[Node] = []

        async def choose(node: Node) -> None:
            uid, missing, age = node.metadata.uid, self._missing[node.metadata.name], self._changes.age(node)
            last_seen = self._witnesses.last_seen(uid, missing.provider_id)
            decision = decide(
                missing,
                age=age,
                doubt=doubt(evidence, last_seen=last_seen, cap=at_once, now=now),
                used=len(taken - {uid}),
                nodes=nodes,
                cap=cap,
                safety=self._options.safety,
            )
            if decision.verdict is Verdict.DELETE and self._fencing.is_fresh(uid):
                decision = JUST_FENCED
            if decision.verdict is Verdict.DELETE:
                taken.add(uid)
                chosen.append(node)
            else:
                self._hold(node, decision, age)

        async def look(node: Node) -> None:
            if await self._is_confirmed_gone(node):
                condemned.append(node)

        await self._in_parallel(self._in_turn(gone), choose)  # runs sequentially, because `choose` never waits
        await self._in_parallel(chosen, look)
        await self._delete_all(condemned)

    def _in_turn(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the Nodes that are still candidates according to the cache, in the order of `turn`."""
        turns = []
        for name in (node.metadata.name for node in nodes):
            missing, node = self._missing[name], self._context.nodes.get(name)
            if node is None or node.metadata.uid != missing.uid or not _is_candidate(node):
                self._missing.pop(name)
                continue
            seen = self._witnesses.last_seen(missing.uid, missing.provider_id) is not None
            turns.append((turn(missing, seen=seen, created=node.metadata.creation_timestamp, name=name), node))
        return [node for _, node in sorted(turns, key=lambda each: each[0])]

    async def _is_confirmed_gone(self, node: Node) -> bool:
        """Return whether a request for this one instance reports it gone, as a listing did: the last check."""
        doubt: CloudError
        try:
            await self._directory.get(node_rules.instance_ref(node))
        except NotFound:
            self._directory.confirm_gone(node.spec.provider_id)
            return True
        except CloudError as error:
            doubt = error
        else:
            doubt = Transient(f"the cloud does not list {node.spec.provider_id}, but returns it when asked for it")
        self._hold_unknown(node, doubt)
        return False

    def _hold(self, node: Node, decision: Decision, age: float) -> None:
        name = node.metadata.name
        HELD.labels(decision.reason).inc()
        self._context.holds.put("Node", name, decision.reason, decision.message)
        if decision.verdict is Verdict.HOLD:
            self._warnings.event(node, "Warning", "DeletionHeld", decision.message, topic=decision.reason)
            self._be_patient(node)
            return
        log.info("node %s: instance %s is missing; waiting: %s", name, node.spec.provider_id, decision.message)
        self._patience.pop(name, None)
        if decision.reason == "RateLimited":
            message = f"instance {node.spec.provider_id} is gone; the Node waits to be deleted: {decision.message}"
            self._warnings.event(node, "Normal", "DeletionWaits", message)
            self._wait_for_turn(node)
        if decision.reason == "TooYoung":
            self._be_patient(node, at_least=self._options.safety.min_age - age)
        if decision is JUST_FENCED:
            self._be_patient(node, at_least=node_fencing_rules.KEPT)

    def _wait_for_turn(self, node: Node) -> None:
        """Do not ask about the Node until the next deletion may be sent, for at most `ASK_AGAIN_MAX`."""
        now = self._context.monotonic()
        due = now + min(ASK_AGAIN_MAX, self._window.frees(now))
        self._patience[node.metadata.name] = _Patience(node.metadata.uid, self._options.period, due)

    async def _delete_all(self, nodes: Sequence[Node]) -> None:
        if nodes and await self._note.record(nodes):
            await self._in_parallel(nodes, self._delete)

    async def _delete(self, node: Node) -> None:
        """Delete exactly the Node that was decided on: not its successor, and not if anything about it changed."""
        name, uid = node.metadata.name, node.metadata.uid
        self._events.event(
            node, "Normal", "DeletingNode", f"Deleting node {name} because its instance {node.spec.provider_id} is gone"
        )
        try:
            await self._context.client.delete(
                f"/api/v1/nodes/{name}", uid=uid, resource_version=node.metadata.resource_version
            )
        except NotFoundError as error:  # a retry of this request may have deleted it: it stays in the window
            log.info("node %s is already gone: %s", name, error)
        except ConflictError as error:
            self._window.remove(uid)
            self._count_refusal(name)
            log.info("node %s is not deleted: it was replaced or has just changed: %s", name, error)
        except ApiError as error:
            if not isinstance(error, UnavailableError):
                self._window.remove(uid)
            self._count_refusal(name)
            FAILED.inc()
            self._warnings.event(node, "Warning", "DeletingNodeFailed", f"cannot delete Node {name}: {error}")
            log.warning("cannot delete node %s, trying again later: %s", name, error)
        else:
            self._missing.pop(name, None)
            DELETED.inc()
            log.info("node %s deleted: instance %s is gone", name, node.spec.provider_id)

    def _count_refusal(self, name: str) -> None:
        """Let other Nodes go first: a Node that its kubelet keeps changing would otherwise take a slot in each pass."""
        if missing := self._missing.get(name):
            missing.refused += 1

    async def _set_shutdown_taint(self, node: Node, tainted: bool) -> None:
        """Add or remove the shutdown taint, based on the cache. If the write fails, a later pass tries again."""
        if node_rules.has_taint(node.spec.taints, *SHUTDOWN) == tainted:
            return
        if problem := node_rules.too_many_taints(node):
            self._warnings.event(node, "Warning", "TaintNotSet", problem)
            return
        taints = node_rules.taints_without(node.spec.taints, *SHUTDOWN) or []
        if tainted:
            taints.append(dict(zip(("key", "effect"), SHUTDOWN, strict=True)))
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints or None}}
        try:
            await self._context.client.patch(f"/api/v1/nodes/{node.metadata.name}", patch)
            PATCHES.labels("shutdown-taint").inc()
        except ApiError as error:
            self._patience.pop(node.metadata.name, None)
            if not isinstance(error, (ConflictError, NotFoundError)):
                log.warning("cannot change the shutdown taint of node %s: %s", node.metadata.name, error)

    async def _in_parallel(self, nodes: Iterable[Node], work: Callable[[Node], Awaitable[None]]) -> None:
        """Run `work` for all Nodes, WRITERS at a time. A bug that one Node triggers does not stop the others."""
        nodes = list(nodes)
        todo = iter(nodes)

        async def worker() -> None:
            for node in todo:
                try:
                    await work(node)
                except Exception:
                    log.exception("node %s: unexpected failure, the other Nodes continue", node.metadata.name)

        async with TaskGroup() as group:
            for _ in range(min(WRITERS, len(nodes))):
                group.create_task(worker())


def _still_true(facts: dict[str, _Fact], nodes: dict[str, Node]) -> dict[str, _Fact]:
    """Return the facts about Nodes that still exist, are the same objects, and could be deleted."""
    return {
        name: fact
        for name, fact in facts.items()
        if (node := nodes.get(name)) is not None and node.metadata.uid == fact.uid and _is_candidate(node)
    }


def _is_candidate(node: Node) -> bool:
    """Return whether the Node could be deleted in its current state."""
    return not node_rules.is_ready(node) and not node.metadata.deletion_timestamp


def _answer(result: Instance | BaseException) -> Answer:
    """Convert the result of one lookup. An exception outside of the contract counts as an unknown answer."""
    if isinstance(result, (Instance, CloudError)):
        return result
    return Transient(f"unexpected {type(result).__name__} while asking the cloud: {result}")

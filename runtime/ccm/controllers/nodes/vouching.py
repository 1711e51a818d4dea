# SPDX-License-Identifier: Apache-2.0
"""Cache of what the cloud says about the machines of Nodes, for controllers that write to the cloud.

`vouching_rules` decides. This file knows which Nodes claim which providerID, remembers what the cloud last said, and
asks the cloud if that is not enough. It also uses what the node controllers list and read, without a second call.

What the cloud once said about a Node with this UID and providerID stays valid until the cloud says otherwise. A listing
without the instance is no contradiction: the lifecycle controller decides about deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from ccm.base.cancellation import TaskGroup
from ccm.base.cloud_metrics import CloudGauge
from ccm.cloud import CloudError, Conflict, Instance, InstanceRef, NotFound, Transient
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory

from ..shared.context import Context
from ..shared.event_budget import EventBudget
from ..shared.stretches import STRETCH
from . import node_rules
from . import vouching_rules as rules
from .first_listing import Replacements, missing_from_first_listing
from .known_nodes import KnownNodes
from .owners import Share
from .vouching_rules import Reason, Refused, Verdict, Vouched

log = logging.getLogger(__name__)

NOT_VOUCHED = CloudGauge(
    "ccm_nodes_not_vouched",
    "Nodes that get no new route and are no backend, by reason: CloudUnknown, InstanceNotFound, SameProviderID, "
    "OtherMachine, ListingNotBelieved (nothing is written until a listing contains half of the Ready Nodes). "
    "AddressNotVouched: the Node is used, but not all addresses that it claims.",
    ["reason"],
)
for _reason in Reason:
    NOT_VOUCHED.labels(_reason.value)

#: Seconds until the cloud is asked again about a Node for which it gave no answer: the first and the longest interval.
RETRY_FIRST, RETRY_MAX = 1.0, 60.0
#: The same, after an answer that contradicts the Node, because it may be older than a change in the cloud.
AGAIN_FIRST, AGAIN_MAX = 60.0, 600.0


class _Fact(msgspec.Struct, frozen=True):
    """What the cloud said about the machine of one Node. `heard`: the instance as received. `instance`: the same
    instance, with its former addresses if it was received without addresses."""

    uid: str
    provider_id: str
    heard: Instance
    instance: Instance


class _Look(msgspec.Struct):
    """When to ask the cloud about one Node, in monotonic seconds.

    `doubt`: the error if the cloud gave no answer. `named`: the cloud has reported which instances have the Node's
    name.
    """

    uid: str
    provider_id: str
    seen_at: float
    due: float = math.inf
    interval: float = 0.0
    asked_at: float = -math.inf
    asking: bool = False
    named: bool = False
    doubt: CloudError | None = None


class Vouching:
    """Judges the Nodes of one cloud. It follows the Nodes from its start; on the leader, `run` asks the cloud."""

    def __init__(self, context: Context, share: Share | None = None) -> None:
        if context.gateway.instances is None:
            raise ValueError("vouching for Nodes needs a provider with instances")
        self._directory: InstanceDirectory = context.gateway.instances
        self._context, self._share = context, share
        self._events: EventBudget | None = None
        #: Nodes by normalised providerID (`InstanceDirectory.same_as`), then by name.
        self._claims: dict[str, dict[str, Node]] = {}
        self._keys: dict[str, str] = {}
        self._facts: dict[str, _Fact] = {}
        self._looks: dict[str, _Look] = {}
        #: Verdicts that are valid until something changes, with the Node that each applies to.
        self._judged: dict[str, tuple[Node, Verdict]] = {}
        #: What listeners were last notified of: the addresses in use, None for none.
        self._reported: dict[str, object] = {}
        self._reasons: dict[str, Reason] = {}
        self._counts: Counter[Reason] = Counter()
        self._listeners: list[Callable[[], None]] = []
        self._ready = asyncio.Event()
        self._wake = asyncio.Event()
        self._news = False
        self._running = False
        self._began = -math.inf
        self._unanswered_since = math.inf
        #: The Nodes as load balancers and routes use them.
        self.nodes = KnownNodes(context.nodes, self._has_instance)
        self.nodes.add_handler(self._on_node)
        context.nodes.confirm_by(self._is_gone)
        self._directory.on_news(self._on_news)

    # Answers for other controllers.

    async def ready(self) -> None:
        """Wait until the cloud has reported enough to write backends and routes."""
        await self._ready.wait()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the addresses of a Node that may be used change, even if the Node itself does not."""
        self._listeners.append(listener)

    def judge(self, node: Node) -> Verdict | None:
        """Return the verdict about a Node; None if the Node may belong to another cloud. No I/O."""
        name, provider_id = node.metadata.name, node.spec.provider_id
        cached = self._judged.get(name)
        if cached is not None and cached[0] is node:
            return cached[1]
        if not self._directory.owns(provider_id) or (self._share and self._share.may_lack(provider_id)):
            return None
        look = self._look_of(node)
        verdict = rules.judge(
            node,
            self._instance(node),
            self.claimants(provider_id),
            self._namesakes(name, look),
            look.doubt if look is not None else None,
        )
        if self._is_current(node):
            self._judged[name] = node, verdict
        return verdict

    def claimants(self, provider_id: str) -> Iterable[Node]:
        """Return all Nodes with this providerID, whatever its spelling."""
        return self._claims.get(self._directory.same_as(provider_id), {}).values()

    async def problem(self, node: Node, instance: Instance, *, not_before: float) -> Refused | None:
        """Return why `instance` is not the Node's machine, None if it may be. Raises CloudError.

        It asks the cloud only if the Node has a providerID, and its name is not one of the instance's.
        """
        if not node.spec.provider_id:  # the instance was found by the Node's name
            if doubt := rules.former_machine(instance, self._directory.gone_for(instance.provider_id)):
                raise Transient(doubt, retry_after=rules.LOOK_AGAIN)
            return rules.stopped_namesake(node, instance)
        namesakes: Sequence[Instance] = ()
        if not instance.is_named(node.metadata.name):
            namesakes = await self._ask_for_namesakes(node.metadata.name, not_before)
        verdict = rules.judge(node, instance, self.claimants(node.spec.provider_id), namesakes)
        return verdict if isinstance(verdict, Refused) else None

    def has_answers(self) -> bool:
        """Return whether it is known of each Node whether its instance exists, or `rules.PATIENCE` s have passed."""
        doubts = (self._looks[name].doubt for name, reason in self._reasons.items() if reason is Reason.CLOUD_UNKNOWN)
        if not self._counts[Reason.CLOUD_UNKNOWN] or rules.are_answers(doubts):
            self._unanswered_since = math.inf
            return True
        now = self._context.monotonic()
        self._unanswered_since = min(self._unanswered_since, now)
        return now - self._unanswered_since >= rules.PATIENCE

    # What is known without a request to the cloud.

    def _is_current(self, node: Node) -> bool:
        return self._claims.get(self._keys.get(node.metadata.name, ""), {}).get(node.metadata.name) is node

    def _look_of(self, node: Node) -> _Look | None:
        look = self._looks.get(node.metadata.name)
        return look if look is not None and _same(look, node) else None

    def _instance(self, node: Node) -> Instance | None:
        """Return the instance as last described, or None. Its last addresses stay valid if the cloud omits all of
        them."""
        heard = self._directory.known(node.spec.provider_id)
        fact = self._facts.get(node.metadata.name)
        if fact is not None and not _same(fact, node):
            fact = None
        if heard is None or (fact is not None and fact.heard is heard):
            return fact.instance if fact is not None else None
        instance = heard
        if fact is not None and not heard.addresses:
            instance = dataclasses.replace(heard, addresses=fact.instance.addresses)
        if self._is_current(node):
            self._facts[node.metadata.name] = _Fact(node.metadata.uid, node.spec.provider_id, heard, instance)
        return instance

    def _has_instance(self, node: Node) -> bool:
        provider_id = node.spec.provider_id
        return self._directory.owns(provider_id) and self._directory.known(provider_id) is not None

    def _is_gone(self, node: Node) -> bool:
        """Return whether a listing that began after the Node appeared does not contain its instance. No I/O."""
        look, listing = self._look_of(node), self._directory.latest
        if look is None or listing is None or self._directory.listed_at < look.seen_at:
            return False
        if not self._directory.owns(node.spec.provider_id) or self._directory.known(node.spec.provider_id) is not None:
            return False
        try:
            listing.find(node_rules.instance_ref(node))
        except CloudError as error:
            return isinstance(error, NotFound)
        return False

    def _namesakes(self, name: str, look: _Look | None) -> Sequence[Instance] | None:
        """Return the instances with this name; None until a read after the Node's arrival can show that none exist."""
        namesakes = self._directory.named(name)
        if look is not None and not look.named:
            look.named = self._directory.listed_at >= look.seen_at
        return namesakes if namesakes or (look is not None and look.named) else None

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        node = new or old
        assert node is not None
        name, now = node.metadata.name, self._context.monotonic()
        if new is None or self._look_of(new) is None:  # it was deleted, replaced, or given its providerID
            self._looks.pop(name, None)
            self._facts.pop(name, None)
        if new is not None and name not in self._looks:
            self._looks[name] = _Look(new.metadata.uid, new.spec.provider_id, now)
        affected = {self._keys.get(name, "")}
        self._index(name, new)
        affected.add(self._keys.get(name, ""))
        self._judged.pop(name, None)
        touched = {each.metadata.name: each for key in affected if key for each in self._claims.get(key, {}).values()}
        for other in touched:
            self._judged.pop(other, None)
        if self._running:
            changed = [self._review(each) for each in touched.values()]
            if name not in touched:
                changed.append(self._forget(name))
            if any(changed):
                self._notify()

    def _index(self, name: str, node: Node | None) -> None:
        key = self._keys.pop(name, None)
        if key is not None:
            self._claims[key].pop(name, None)
            if not self._claims[key]:
                del self._claims[key]
        if node is not None and self._directory.owns(node.spec.provider_id):
            key = self._keys[name] = self._directory.same_as(node.spec.provider_id)
            self._claims.setdefault(key, {})[name] = node

    def _on_news(self, instance: Instance | None) -> None:
        if instance is None:
            self._judged.clear()
            self.nodes.review()
            self._news = True
            self._wake.set()
            return
        about = list(self.claimants(instance.provider_id))
        for name in instance.names:
            if (named := self.nodes.get(name)) is not None and self._is_current(named):
                about.append(named)
        for node in about:
            self._judged.pop(node.metadata.name, None)
        if self._running and any([self._review(node) for node in about]):
            self._notify()

    # Reviews of Nodes: problems to report, requests to plan, listeners to notify.

    def _review(self, node: Node) -> bool:
        """Judge a Node again, report problems and plan the next request. Return whether listeners must be notified."""
        name, now = node.metadata.name, self._context.monotonic()
        verdict, look = self.judge(node), self._looks[name]
        if verdict is None:  # the Node belongs, or may belong, to another cloud
            return self._forget(name)
        used = verdict.addresses if isinstance(verdict, Vouched) else None
        changed = self._reported.get(name) != used
        self._reported[name] = used
        reason, message = None, ""
        if isinstance(verdict, Refused):
            reason, message = verdict.reason, verdict.message
        elif verdict.ignored:
            reason, message = Reason.ADDRESS_NOT_VOUCHED, rules.ignored_message(node, verdict)
        self._count(name, reason)
        if reason is None or reason is Reason.SAME_PROVIDER_ID:
            look.due, look.interval = math.inf, 0.0
        elif look.due == math.inf and not look.asking:
            look.due = max(now, self._earliest(look, reason))
            self._wake.set()
        if (
            reason is not None
            and self._events is not None
            and (reason is not Reason.CLOUD_UNKNOWN or look.doubt is not None)
        ):
            self._events.event(node, "Warning", "NodeNotVouched", message, topic=reason)
        return changed

    def _earliest(self, look: _Look, reason: Reason) -> float:
        """Return when the cloud may be asked about the Node.

        The cached answer may be older than the Node or a change of it, so a first contradiction is checked at once. An
        exception is a contradiction from the first listing, which is new.
        """
        if reason is Reason.CLOUD_UNKNOWN:
            return -math.inf if look.doubt is None else look.asked_at + RETRY_FIRST
        if look.asked_at == -math.inf and self._ready.is_set():
            return -math.inf
        return max(look.asked_at, self._began) + AGAIN_FIRST

    def _forget(self, name: str) -> bool:
        self._count(name, None)
        return self._reported.pop(name, None) is not None

    def _count(self, name: str, reason: Reason | None) -> None:
        before = self._reasons.pop(name, None)
        if reason is not None:
            self._reasons[name] = reason
        if before is not reason:
            for counted, change in ((before, -1), (reason, 1)):
                if counted is not None:
                    self._counts[counted] += change
                    NOT_VOUCHED.of(self._context.gateway.name).labels(counted.value).set(self._counts[counted])

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    async def _review_all(self) -> None:
        """Review all Nodes after news from the cloud. After a reload, it may spell providerIDs differently."""
        self._news = False
        changed = False
        for number, node in enumerate(self.nodes.items(), 1):
            name = node.metadata.name
            if self.nodes.get(name) is not node:
                continue  # it changed in the meantime and was reviewed then
            owned = self._directory.owns(node.spec.provider_id)
            if self._keys.get(name) != (self._directory.same_as(node.spec.provider_id) if owned else None):
                self._index(name, node)
                self._judged.clear()
            changed |= self._review(node)
            if number % STRETCH == 0:
                await asyncio.sleep(0)
        if changed:
            self._notify()

    # Requests to the cloud.

    async def run(self) -> None:
        """Await a plausible listing, then ask the cloud about Nodes until cancelled. A second call only waits."""
        if self._running:
            await asyncio.Event().wait()
        self._running, self._began = True, self._context.monotonic()
        self._events = EventBudget(self._context.recorder("node-vouching"), self._context.monotonic)
        await self._context.nodes.wait_synced()
        listing = self._context, self._directory, self._report_listing
        replacements = Replacements(*listing, self._ready, self._keys.keys)
        missing = await missing_from_first_listing(*listing)
        await asyncio.gather(*(self._ask_directly(node, doubt) for node, doubt in missing))
        await self._review_all()
        async with TaskGroup() as tasks:
            tasks.create_task(replacements.run())
            while True:
                self._wake.clear()
                if self._news:
                    await self._review_all()
                now, soonest = self._context.monotonic(), math.inf
                for name, look in list(self._looks.items()):
                    if look.due <= now and not look.asking:
                        look.asking = True
                        tasks.create_task(self._ask(name, look))
                    elif not look.asking:
                        soonest = min(soonest, look.due)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if soonest == math.inf else max(0.0, soonest - now)):
                        await self._wake.wait()

    async def _ask(self, name: str, look: _Look) -> None:
        """Ask the cloud about one Node. The directory combines concurrent requests into one read."""
        node, now = self.nodes.get(name), self._context.monotonic()
        first, look.asked_at = look.asked_at == -math.inf, now
        try:
            if node is None or self._looks.get(name) is not look or not self._directory.owns(node.spec.provider_id):
                look.due = math.inf
                return
            # A read that began after the Node arrived is fresh enough, unless that read contradicts the Node.
            verdict = self.judge(node)
            unknown = isinstance(verdict, Refused) and verdict.reason is Reason.CLOUD_UNKNOWN
            not_before = look.seen_at if first and unknown else now
            instance = await self._directory.lookup(node_rules.instance_ref(node), not_before=not_before)
            if not instance.is_named(name):
                await self._ask_for_namesakes(name, not_before)
                look.named = True
        except CloudError as error:
            look.doubt = error
        else:
            look.doubt = None
        finally:
            look.asking = False
        unanswered = look.doubt is not None and not isinstance(look.doubt, NotFound)
        shortest, longest = (RETRY_FIRST, RETRY_MAX) if unanswered else (AGAIN_FIRST, AGAIN_MAX)
        look.interval = min(longest, max(shortest, look.interval * 2))
        look.due = self._context.monotonic() + look.interval
        if look.doubt is not None and look.doubt.retry_after is not None:
            look.due = max(look.due, self._context.monotonic() + look.doubt.retry_after)
        self._judged.pop(name, None)
        current = self.nodes.get(name)
        if current is not None and self._is_current(current) and self._review(current):
            self._notify()
        self._wake.set()

    async def _ask_for_namesakes(self, name: str, not_before: float) -> Sequence[Instance]:
        """Return the instances with this name. Raises CloudError."""
        try:
            return [await self._directory.lookup(InstanceRef(name), not_before=not_before)]
        except NotFound:
            return []
        except Conflict:  # there are several
            return (await self._directory.list(not_before=not_before)).by_name.get(name, [])

    def _report_listing(self, nodes: Sequence[Node], missing: Sequence[Node], problem: str) -> None:
        NOT_VOUCHED.of(self._context.gateway.name).labels(Reason.LISTING_NOT_BELIEVED.value).set(len(nodes))
        if problem and self._events is not None:
            log.error("%s", problem)
            for node in missing:
                self._events.event(node, "Warning", "NodeNotVouched", problem, topic=Reason.LISTING_NOT_BELIEVED)

    async def _ask_directly(self, node: Node, doubt: CloudError) -> None:
        """Ask the cloud for one instance that is missing from its listing, which may omit a part of the cloud."""
        look = self._look_of(node)
        if look is None:
            return
        look.asked_at, look.doubt = self._context.monotonic(), doubt
        try:
            await self._directory.get(node_rules.instance_ref(node))
        except CloudError as error:
            look.doubt = error
        else:
            look.doubt = None


def _same(known: _Fact | _Look, node: Node) -> bool:
    """Return whether what is known applies to this Node with its current providerID."""
    return known.uid == node.metadata.uid and known.provider_id == node.spec.provider_id

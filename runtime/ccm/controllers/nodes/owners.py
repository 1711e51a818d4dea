# SPDX-License-Identifier: Apache-2.0
"""Asks several clouds which of them a Node belongs to; `ownership_rules` decides.

Each cloud has its own set of controllers, which works as if there were no other cloud. All sets share one `Owners`: it
decides once for each Node, so that two sets never act on different answers. A decision waits at most `PATIENCE` for a
cloud that does not answer. Then another cloud that has the machine is the owner if the silent cloud's last complete
listing does not contain the machine. Later decisions use that listing without waiting, until the cloud answers in time
again. Without such a listing, the owner is undecided if neither the SMBIOS UUID nor a declaration for another cloud
decides.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Collection, Mapping

import msgspec

from ccm.cloud import CloudError, Instance, NotFound, Transient
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory

from ..shared.rule_error import RuleError
from . import node_rules
from . import ownership_rules as rules
from .ownership_rules import CloudAnswer, Declarations, Owned, Ownership, Undecided, Unowned

#: Seconds that a decision waits for clouds that have not answered. After that, their older listings count.
PATIENCE = 5.0
#: Reasons that no answer of a cloud can change.
FINAL = frozenset({"ForeignProviderID", "OtherController"})


class _Decision(msgspec.Struct, frozen=True):
    """A decision, in progress or made, about a Node with this UID and providerID. `not_before`: the earliest time at
    which the reads that it uses began."""

    uid: str
    provider_id: str
    not_before: float
    task: asyncio.Task[Ownership]


class _Question(msgspec.Struct, frozen=True):
    """A question to one cloud about a Node with this UID and providerID. `not_before`: the earliest time at which
    the read that answers it began."""

    uid: str
    provider_id: str
    not_before: float
    task: asyncio.Task[Instance | CloudError]


class Owners:
    """Finds the cloud of each Node. `directories`: one for each cloud, by the name of the cloud, in the order of
    `--cloud-provider`. `has_started`: whether a cloud has accepted its credentials; before that, it is not asked.
    `is_failing`: whether a cloud fails or is paused; then its older listing counts at once. So does the older listing
    of a cloud whose last answer took longer than `PATIENCE`."""

    def __init__(
        self,
        directories: Mapping[str, InstanceDirectory],
        declarations: Declarations,
        *,
        has_started: Callable[[str], bool] = lambda cloud: True,
        is_failing: Callable[[str], bool] = lambda cloud: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directories, self._declarations, self._monotonic = directories, declarations, monotonic
        self._has_started, self._is_failing = has_started, is_failing
        self._decisions: dict[str, _Decision] = {}
        #: Clouds whose last answer took longer than `PATIENCE`.
        self._late: set[str] = set()
        #: Questions that had no answer yet when patience ended, by Node and cloud: the next attempt uses the answer.
        self._open: dict[tuple[str, str], _Question] = {}

    @property
    def reporter(self) -> str:
        """The cloud whose controllers report Nodes that belong to no cloud, "" before one has started. There is one
        reporter, so that each Node is reported once."""
        return next(filter(self._has_started, self._directories), "")

    def owning(self, provider_id: str) -> list[str]:
        """Return the clouds to which a providerID may belong by its form. No I/O."""
        return [cloud for cloud, directory in self._directories.items() if directory.owns(provider_id)]

    def known(self, cloud: str, provider_id: str) -> Instance | None:
        """Return the instance as a cloud last described it, None if it did not. No I/O."""
        return self._directories[cloud].known(provider_id)

    def have(self, node: Node) -> str | None:
        """Return the cloud that may update and delete an initialised Node, None if there is none. No I/O."""
        return rules.keeper(node, self.owning(node.spec.provider_id), self._declarations)

    async def of(self, node: Node, *, not_before: float) -> Ownership:
        """Return which cloud the Node belongs to. `not_before`: the earliest start of its reads (monotonic seconds).

        An owner that was found stays the owner until `forget`, until the Node is replaced or its providerID changes, or
        until a reload changes which providerIDs the owner owns. A decision in progress is shared, even if its reads
        began earlier. A decision that failed or is undecided is made again. So is "no owner" if its reads began before
        `not_before`.
        """
        meta, provider_id = node.metadata, node.spec.provider_id
        decision = self._decisions.get(meta.name)
        if (
            decision is None
            or (decision.uid, decision.provider_id) != (meta.uid, provider_id)
            or _is_stale(decision, not_before)
            or not self._is_possible(decision)
        ):
            task = asyncio.create_task(self._decide(node, not_before), name=f"whose is {meta.name}")
            decision = self._decisions[meta.name] = _Decision(meta.uid, provider_id, not_before, task)
        return await asyncio.shield(decision.task)

    def forget(self, name: str) -> None:
        """Forget the owner of a Node that is gone, or whose machine the owner does not have any more. A decision in
        progress is not cancelled, because that would cancel the set of controllers that waits for it, too."""
        self._decisions.pop(name, None)
        for cloud in self._directories:
            self._open.pop((name, cloud), None)

    def _is_possible(self, decision: _Decision) -> bool:
        """Return False if the providerID no longer has the owner's form, for example after a reload that changed the
        region."""
        owner = decision.task.result() if decision.provider_id and decision.task.done() else None
        return not isinstance(owner, Owned) or owner.cloud in self.owning(decision.provider_id)

    async def _decide(self, node: Node, not_before: float) -> Ownership:
        clouds = rules.candidates(node, self.owning(node.spec.provider_id), self._declarations)
        if isinstance(clouds, Unowned):
            return clouds
        if node.spec.provider_id and len(clouds) == 1:
            return Owned(clouds[0])
        questions = {cloud: self._question(cloud, node, not_before) for cloud in clouds}
        decided = await self._weigh(node, {cloud: each.task for cloud, each in questions.items()})
        # Unanswered questions are not cancelled, because a fast answer shows that the cloud is not late any more, and
        # the next decision may use any answer.
        if isinstance(decided, Undecided):
            late = {(node.metadata.name, cloud): each for cloud, each in questions.items() if not each.task.done()}
            self._open |= late
        return decided

    def _question(self, cloud: str, node: Node, not_before: float) -> _Question:
        """Ask a cloud about a Node, or return an earlier question whose answer is new enough."""
        uid, provider_id = node.metadata.uid, node.spec.provider_id
        earlier = self._open.pop((node.metadata.name, cloud), None)
        if (
            earlier is not None
            and (earlier.uid, earlier.provider_id) == (uid, provider_id)
            and earlier.not_before >= not_before
        ):
            return earlier
        task = asyncio.create_task(self._ask(cloud, node, not_before), name=f"{cloud}: whose is {node.metadata.name}")
        task.add_done_callback(functools.partial(self._answered, cloud, self._monotonic()))
        return _Question(uid, provider_id, not_before, task)

    def _answered(self, cloud: str, asked_at: float, task: asyncio.Task[Instance | CloudError]) -> None:
        if not task.cancelled() and task.exception() is None and self._monotonic() - asked_at <= PATIENCE:
            self._late.discard(cloud)

    async def _weigh(self, node: Node, tasks: Mapping[str, asyncio.Task[Instance | CloudError]]) -> Ownership:
        """Decide as soon as the owner is certain or all clouds have answered, at the latest when patience ends."""
        until = self._monotonic() + PATIENCE
        while True:
            silent = [cloud for cloud, task in tasks.items() if not task.done()]
            is_over = not silent or self._monotonic() >= until
            if is_over:
                self._late.update(silent)
            hopeless = [cloud for cloud in silent if cloud in self._late or self._is_failing(cloud)]
            decided = rules.owner(node, self._answers(node, tasks, hopeless), self._declarations)
            if isinstance(decided, Owned) or not silent:
                return decided
            if is_over:  # older listings do not prove that nobody has the machine
                return rules.owner(node, self._answers(node, tasks, ()), self._declarations)
            pending, left = [tasks[cloud] for cloud in silent], max(0.0, until - self._monotonic())
            await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _answers(
        self, node: Node, tasks: Mapping[str, asyncio.Task[Instance | CloudError]], hopeless: Collection[str]
    ) -> dict[str, CloudAnswer]:
        """Return what is known from each cloud. `hopeless`: clouds that have not answered yet, and whose older listings
        count."""
        answers = {}
        for cloud, task in tasks.items():
            answer = task.result() if task.done() else Transient(f"{cloud} has not answered yet")
            counts = task.done() or cloud in hopeless
            answers[cloud] = CloudAnswer(answer, counts and self._was_listed_without(cloud, node))
        return answers

    async def _ask(self, cloud: str, node: Node, not_before: float) -> Instance | CloudError:
        if not self._has_started(cloud):
            return Transient(f"{cloud} has not accepted the credentials yet")
        try:
            return await self._directories[cloud].lookup(node_rules.instance_ref(node), not_before=not_before)
        except CloudError as error:
            listing = self._directories[cloud].latest
            if listing is not None and listing.is_empty and listing.began >= not_before:
                # The empty listing would prove nothing about the deletion of a Node. Here it means only that the
                # machine is not in this cloud. A cloud without machines must not delay the Nodes of others.
                return NotFound(f"{cloud} lists no instances at all")
            return error

    def _was_listed_without(self, cloud: str, node: Node) -> bool:
        listing = self._directories[cloud].latest
        if listing is None or not (listing.proves_absence or listing.is_empty):
            return False
        if listing.is_empty:
            return True
        try:
            listing.find(node_rules.instance_ref(node))
        except CloudError as error:
            return CloudAnswer(error).denies
        return False


class Share(msgspec.Struct, frozen=True):
    """The Nodes of one of several clouds, which its set of controllers may look at."""

    owners: Owners
    cloud: str

    @property
    def reports(self) -> bool:
        """Whether this set reports Nodes that belong to no cloud."""
        return self.owners.reporter == self.cloud

    def has(self, node: Node) -> bool:
        """Return whether the Node is this cloud's according to its providerID, so that no other set updates or deletes
        it. No I/O."""
        return self.owners.have(node) == self.cloud

    def concerns(self, node: Node) -> bool:
        """Return whether this set looks at the Node: it is the set's own, or has no providerID and the set reports such
        Nodes."""
        return self.has(node) if node.spec.provider_id else self.reports

    def may_lack(self, provider_id: str) -> bool:
        """Return whether another cloud may have the machine, and this one is not known to have it. No I/O."""
        return self.owners.known(self.cloud, provider_id) is None and len(self.owners.owning(provider_id)) > 1

    def answers_for(self, node: Node | None) -> bool:
        """Return whether this set answers questions about a Node: the Node is the set's own, or no cloud's and the set
        reports such Nodes. `node`: None if the Node does not exist. No I/O."""
        owner = None if node is None else self.owners.have(node)
        return self.reports if owner is None else owner == self.cloud

    async def includes(self, node: Node, *, not_before: float) -> bool:
        """Return whether the Node belongs to this cloud. Raises OwnershipUnclear if no cloud is known to own it."""
        ownership = await self.owners.of(node, not_before=not_before)
        if isinstance(ownership, Owned):
            return ownership.cloud == self.cloud
        raise OwnershipUnclear(ownership)


class OwnershipUnclear(RuleError):
    """No cloud is known to own the Node. `reason`: the reason for an Event. `is_final`: no answer of a cloud can make
    the owner clear, for example if the providerID has the form of no cloud. `is_silence`: a cloud has not answered
    yet."""

    def __init__(self, ownership: Unowned | Undecided) -> None:
        super().__init__(ownership.message)
        self.is_silence = isinstance(ownership, Undecided)
        self.reason = "CloudNotAvailable" if isinstance(ownership, Undecided) else ownership.reason
        self.is_final = self.reason in FINAL


def _is_stale(decision: _Decision, not_before: float) -> bool:
    """Return whether a decision must be made again: it failed, a cloud did not answer in time, or it found no owner and
    newer answers are needed."""
    if not decision.task.done():
        return False
    if decision.task.cancelled() or decision.task.exception() is not None:
        return True
    ownership = decision.task.result()
    return isinstance(ownership, Undecided) or (decision.not_before < not_before and not isinstance(ownership, Owned))

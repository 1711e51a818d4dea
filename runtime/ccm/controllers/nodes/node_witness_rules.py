# SPDX-License-Identifier: Apache-2.0
"""Decide whether a listing describes this cluster, with the Ready Nodes as witnesses. No I/O.

A Ready Node reports every few seconds, so its machine runs. A listing without that machine contradicts the Node.
Either the listing is wrong (another project, a filter, missing pages) or the Node lies: a kubelet may claim any
instance when it registers, and its credentials outlive its machine. The rules therefore count instances. They trust
neither a single Node nor an instance that was never listed:

1. The listing contains more instances of Ready Nodes than are missing from it. An attacker has to invent as many Ready
   Nodes as there are real ones.
2. Of the Ready Nodes whose instances this process saw before, at most TOLERATED lost theirs around the time when the
   missing Node lost its own. If that one was never seen, all Ready Nodes that lost theirs count. One kubelet has one
   Node, so a single compromised kubelet cannot block deletions.
3. If no Node is Ready, all Nodes are witnesses. No more of them may be missing than may be deleted at once, and more
   must be listed than missing.

A Node whose machine was replaced by another one with its name counts only against the limit of rule 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

#: How many Ready Nodes may have lost their instances around the same time (rule 2).
TOLERATED = 1
#: Two instances vanished independently if one was still listed this many seconds after the other was missing.
RELATED = 600.0
#: Seconds that the Node of a deleted machine may stay Ready before that is unusual. kube-controller-manager's
#: `--node-monitor-grace-period` is 50, and kubelets stop reporting one after the other.
SETTLED = 120.0


class Claim(msgspec.Struct, frozen=True):
    """What one Node of this provider says, and what one listing says about it.

    `listed_as`: the name of the instance with the Node's providerID, None if the listing does not contain it.
    `replaced`: the listing does not contain it, but contains another instance with the Node's name.
    """

    uid: str
    name: str
    provider_id: str
    ready: bool
    listed_as: str | None
    replaced: bool = False


class Sighting(msgspec.Struct):
    """When an instance was seen. Both times are monotonic seconds at which the read began.

    `last`: the last time it was seen; `absent_since`: the first listing without it after that.
    """

    provider_id: str
    last: float
    absent_since: float | None = None


class Sightings:
    """The instances that this process saw, by UID of their Nodes."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Sighting] = {}

    def learn(self, claims: Sequence[Claim], began: float) -> None:
        """Learn from one listing that began at `began`.

        An instance belongs to the Node with its name, or to the only Node that claims it. A Node that claims another
        Node's instance therefore never counts as seen. A listing may arrive twice, or after a newer answer.
        """
        claimants = Counter(claim.provider_id for claim in claims)
        for claim in claims:
            sighting = self.of(claim.uid, claim.provider_id)
            if sighting and sighting.last > began:
                continue
            if claim.listed_as is None:
                if sighting and sighting.absent_since is None:
                    sighting.absent_since = began
            elif claim.listed_as == claim.name or claimants[claim.provider_id] == 1:
                self._by_uid[claim.uid] = Sighting(claim.provider_id, began)
            else:
                self._by_uid.pop(claim.uid, None)

    def saw(self, claim: Claim, when: float) -> None:
        """Record an answer for this one instance. It does not show other claimants, so it counts only if the instance
        has the Node's name, or was seen before."""
        if claim.listed_as == claim.name or self.of(claim.uid, claim.provider_id):
            self._by_uid[claim.uid] = Sighting(claim.provider_id, when)

    def of(self, uid: str, provider_id: str) -> Sighting | None:
        sighting = self._by_uid.get(uid)
        return sighting if sighting and sighting.provider_id == provider_id else None

    def keep_only(self, uids: Collection[str]) -> None:
        """Forget the Nodes that no longer exist."""
        self._by_uid = {uid: sighting for uid, sighting in self._by_uid.items() if uid in uids}


class Absence(msgspec.Struct, frozen=True):
    """A witness whose instance is missing from the listing.

    `since`: Sighting.absent_since, None if it was never seen; `replaced`: another instance with its name is listed.
    """

    node: str
    since: float | None = None
    replaced: bool = False


class Evidence(msgspec.Struct, frozen=True):
    """What the witnesses say about one listing. Without a listing all fields keep their defaults, and `doubt` then
    objects to every deletion.

    `ready`: whether any Node is Ready; if so, only Ready Nodes are witnesses. `listed`: how many of their instances
    are listed; `absent`: their instances that are missing, by providerID. `known`: how many instances of
    this provider's Nodes are or were listed. Each instance counts once, however many Nodes claim it.
    """

    ready: bool = True
    listed: int = 0
    absent: Mapping[str, Absence] = msgspec.field(default_factory=dict)
    known: int = 0


def evidence(claims: Sequence[Claim], sightings: Sightings) -> Evidence:
    """Return what the claims of all Nodes of this provider say about one listing."""
    known_ids = {
        claim.provider_id
        for claim in claims
        if claim.listed_as is not None or sightings.of(claim.uid, claim.provider_id)
    }
    ready = [claim for claim in claims if claim.ready]
    witnesses = [claim for claim in ready if not claim.replaced] if ready else claims
    absent: dict[str, Absence] = {}
    for claim in witnesses:
        if claim.listed_as is None:
            sighting = sightings.of(claim.uid, claim.provider_id)
            if sighting or claim.provider_id not in absent:
                absent[claim.provider_id] = Absence(
                    claim.name, sighting.absent_since if sighting else None, claim.replaced
                )
    listed = len({claim.provider_id for claim in witnesses if claim.listed_as is not None})
    return Evidence(bool(ready), listed, absent, len(known_ids))


class Doubt(msgspec.Struct, frozen=True):
    """Why a listing is not trusted to delete Nodes.

    `lasting`: no Node is Ready, or the doubt remains without the Ready Nodes whose instances vanished less than SETTLED
    ago. The machines of those Nodes may have been deleted, and then the Nodes are NotReady soon.
    """

    message: str
    lasting: bool


def doubt(evidence: Evidence, *, last_seen: float | None, cap: int, now: float) -> Doubt | None:
    """Return why a Node whose instance is missing from the listing may not be deleted; None means no objection.

    `last_seen`: when this process saw the Node's instance, None for never; `cap`: how many of the witnesses may be
    deleted at once; `now`: monotonic seconds.
    """
    message = _contradiction(evidence, last_seen, cap)
    if not message:
        return None
    old = {id_: each for id_, each in evidence.absent.items() if each.since is None or now - each.since >= SETTLED}
    settled = replace(evidence, absent=old)
    return Doubt(message, lasting=not evidence.ready or bool(_contradiction(settled, last_seen, cap)))


def _contradiction(evidence: Evidence, last_seen: float | None, cap: int) -> str:
    """Return how the witnesses contradict the listing, "" if they do not."""
    absent = evidence.absent.values()
    unreplaced = sum(1 for each in absent if not each.replaced)
    if not evidence.ready and (len(absent) > cap or unreplaced >= max(1, evidence.listed)):
        return (
            f"none of the Nodes is Ready, and the cloud does not list the instances of {len(absent)} of "
            f"{evidence.listed + len(absent)} Nodes ({_names(absent)}). Without a Ready Node, at most {cap} missing "
            "Nodes are deleted (--node-deletion-cap), and only if more Nodes are listed than missing. Check that "
            "--cloud-config names this cluster's project; if the machines are really gone, delete the Nodes by hand"
        )
    if evidence.ready and not absent and not evidence.listed:
        return (
            "the cloud lists no instance of any Ready Node, at most other instances with their names, so its listing "
            "is not trusted and no Node is deleted. Check that --cloud-config names this cluster's project"
        )
    if evidence.ready and len(absent) >= evidence.listed:
        return (
            f"the cloud lists the instances of {evidence.listed} Ready Nodes, but not those of {len(absent)} others "
            f"({_names(absent)}), so its listing is not trusted and no Node is deleted. Check that --cloud-config "
            "names this cluster's project"
        )
    related = [
        each for each in absent if each.since is not None and (last_seen is None or last_seen < each.since + RELATED)
    ]
    if evidence.ready and len(related) > TOLERATED:
        return (
            f"the cloud no longer lists the instances of {len(related)} Ready Nodes ({_names(related)}). This Node's "
            "instance may be missing for the same wrong reason, so the Node is kept until those instances are listed "
            "again or their Nodes are NotReady. Check --cloud-config and these machines; if the machines of NotReady "
            "Nodes are really gone, delete the Nodes by hand"
        )
    return ""


def _names(absent: Iterable[Absence], shown: int = 3) -> str:
    names = sorted(each.node for each in absent)
    return ", ".join(names[:shown]) + (", ..." if len(names) > shown else "")

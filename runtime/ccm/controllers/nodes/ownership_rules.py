# SPDX-License-Identifier: Apache-2.0
"""Decide which of several clouds a Node belongs to. No I/O.

The evidence, in this order:

1. The providerID, if the Node has one: only a cloud whose providerIDs have this form may have the machine.
2. The clouds' answers: one machine is in exactly one cloud.
3. The administrator's declaration, where the answers leave a choice: a label that kubelets cannot set, or a pattern of
   names. It chooses among the clouds that may have the machine, and gives no cloud a machine that it does not have.

A Node that no cloud knows, or that several claim, belongs to nobody. Silence is no answer: if a cloud does not answer,
a machine that is missing from its last complete listing counts as not its own. So a cloud that is down delays a Node of
another cloud only if nothing else distinguishes them: no listing without the machine, no SMBIOS UUID, no declaration.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from ccm.base.text import quoted
from ccm.cloud import CloudError, Conflict, Instance, NotFound
from ccm.engine.objects import Node

#: The label with which an administrator assigns a Node to a cloud. The NodeRestriction plugin forbids kubelets to set
#: labels with this prefix, so no Node chooses its own cloud.
LABEL = "node-restriction.kubernetes.io/ccm-cloud"


class Owned(msgspec.Struct, frozen=True):
    """The Node belongs to `cloud`."""

    cloud: str


class Unowned(msgspec.Struct, frozen=True):
    """The Node belongs to no cloud of this process, or several claim it: nobody changes it. `reason`: that of the
    Event."""

    reason: str
    message: str


class Undecided(msgspec.Struct, frozen=True):
    """The owner is unknown until the clouds `silent` answer: ask again."""

    silent: tuple[str, ...]
    message: str


Ownership = Owned | Unowned | Undecided


class CloudAnswer(msgspec.Struct, frozen=True):
    """What one cloud says about the machine of a Node.

    `answer`: the instance, or the error instead of one. `was_listed_without`: the cloud's last complete listing has no
    instance for the Node; that counts only while the cloud does not answer.
    """

    answer: Instance | CloudError
    was_listed_without: bool = False

    @property
    def claims(self) -> bool:
        """Whether the cloud has the machine. A Conflict counts, because the cloud then has several machines of this
        name, or spells the providerID in another way."""
        return isinstance(self.answer, (Instance, Conflict))

    @property
    def denies(self) -> bool:
        return isinstance(self.answer, NotFound) or (self.is_silent and self.was_listed_without)

    @property
    def is_silent(self) -> bool:
        return not isinstance(self.answer, (Instance, Conflict, NotFound))

    def proves(self, system_uuid: str) -> bool:
        """Return whether the instance is this machine: it has the UUID that the kubelet reads from the firmware."""
        return isinstance(self.answer, Instance) and bool(system_uuid) and system_uuid in self.answer.system_uuids


class Declarations(msgspec.Struct, frozen=True):
    """Which cloud an administrator assigned Nodes to. `clouds`: the clouds of this process, by name. `patterns`: name
    of a cloud -> shell patterns of Node names."""

    clouds: tuple[str, ...]
    patterns: Mapping[str, Sequence[str]]

    def problems(self) -> list[str]:
        """Return one sentence for each declaration that must be a mistake."""
        texts = [
            f"Nodes {', '.join(patterns)} are declared for {cloud!r}, which is not a cloud of this process: "
            f"--cloud-provider names {', '.join(self.clouds)}"
            for cloud, patterns in self.patterns.items()
            if cloud not in self.clouds
        ]
        texts += [
            f"cloud {cloud!r} is named more than once in --cloud-provider"
            for cloud in sorted(set(self.clouds))
            if self.clouds.count(cloud) > 1
        ]
        texts += [
            f"pattern {first!r} of Node names is declared for both {one!r} and {other!r}"
            for one, other in _pairs(self.patterns)
            for first in self.patterns[one]
            if first in self.patterns[other]
        ]
        return texts

    def of(self, node: Node) -> tuple[str, ...]:
        """Return the clouds for which the Node is declared. The label wins; () without any declaration."""
        if label := node.metadata.labels.get(LABEL):
            return (label,)
        name = node.metadata.name
        return tuple(
            cloud
            for cloud, patterns in self.patterns.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        )


def _pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    every = sorted(names)
    return [(one, other) for index, one in enumerate(every) for other in every[index + 1 :]]


def candidates(node: Node, owners: Collection[str], declarations: Declarations) -> tuple[str, ...] | Unowned:
    """Return the clouds that may have the Node's machine, and must be asked; or why none may.

    `owners`: the clouds whose providerIDs have the form of the Node's; unused if the Node has none.
    """
    provider_id, clouds = node.spec.provider_id, declarations.clouds
    label = node.metadata.labels.get(LABEL, "")
    if label and label not in clouds:
        return Unowned(
            "OtherController",
            f"label {LABEL} says that the Node belongs to {quoted(label)}, and this controller serves "
            f"{_names(clouds)}: it is left alone",
        )
    if not provider_id:
        return clouds
    chosen = tuple(each for each in clouds if each in owners)
    if not chosen:
        return Unowned(
            "ForeignProviderID",
            f"providerID {quoted(provider_id)} belongs to no cloud of this controller, which serves {_names(clouds)}: "
            "the Node is left alone",
        )
    if label and label not in chosen:
        return Unowned(
            "OwnersContradict",
            f"label {LABEL} says {label}, and providerID {quoted(provider_id)} belongs to {_names(chosen)}: the Node "
            "is left alone until the label is corrected",
        )
    return chosen


def owner(node: Node, answers: Mapping[str, CloudAnswer], declarations: Declarations) -> Ownership:
    """Return which cloud the Node belongs to. `answers`: what all `candidates` answered, in the order of the clouds."""
    uuid = "" if node.spec.provider_id else node.status.node_info.system_uuid.lower()
    claiming = [cloud for cloud, each in answers.items() if each.claims]
    silent = [cloud for cloud, each in answers.items() if not each.claims and not each.denies]
    proved = [cloud for cloud in claiming if answers[cloud].proves(uuid)]
    if len(proved) == 1:  # the same name elsewhere is another machine
        claiming, silent = proved, []
    declared = [cloud for cloud in declarations.of(node) if cloud in answers]
    if len(declared) == 1:
        return _as_declared(declared[0], claiming, silent, answers)
    if len(claiming) > 1:
        return Unowned(
            "SeveralOwners",
            f"{_names(claiming)} each have a machine of this Node's name, so the Node is left alone. Rename one of the "
            f"machines, or set the label {LABEL} to the right cloud",
        )
    if silent:
        waits = f"{_names(silent)} must answer before the cloud of the Node is known"
        return Undecided(tuple(silent), f"{claiming[0]} has a machine of this name, and {waits}" if claiming else waits)
    if not claiming:
        return Unowned(
            "InstanceNotFound",
            f"no cloud of this controller has a machine for this Node; asked: {_asked(answers)}. The Node is left "
            "alone",
        )
    return Owned(claiming[0])


def _as_declared(
    cloud: str, claiming: Sequence[str], silent: Sequence[str], answers: Mapping[str, CloudAnswer]
) -> Ownership:
    """Return the owner of a Node that an administrator declared for `cloud`."""
    if cloud in claiming:
        return Owned(cloud)
    if cloud in silent:
        return Undecided((cloud,), f"the Node is declared for {cloud}, which does not answer")
    if claiming:
        return Unowned(
            "OwnersContradict",
            f"the Node is declared for {cloud}, which has no machine for it, and {_names(claiming)} has one: the "
            "Node is left alone until the declaration or the name is corrected",
        )
    return Unowned(
        "InstanceNotFound",
        f"the Node is declared for {cloud}, which has no machine for it; asked: {_asked(answers)}",
    )


def _asked(answers: Mapping[str, CloudAnswer]) -> str:
    """Return which clouds were asked. A mark shows that only an older listing of a cloud counted, because such a
    listing does not contain new machines."""
    return _names(
        f"{cloud} (does not answer; its last listing has no such machine)" if each.is_silent else cloud
        for cloud, each in answers.items()
    )


def whose(
    node: Node, owners: Collection[str], answer_of: Callable[[str], CloudAnswer], declarations: Declarations
) -> Ownership:
    """Return which cloud the Node belongs to, from what `answer_of` returns for the clouds that may have it. `owners`:
    the clouds whose providerIDs have the form of the Node's."""
    clouds = candidates(node, owners, declarations)
    if isinstance(clouds, Unowned):
        return clouds
    if node.spec.provider_id and len(clouds) == 1:
        return Owned(clouds[0])
    return owner(node, {cloud: answer_of(cloud) for cloud in clouds}, declarations)


def keeper(node: Node, owners: Collection[str], declarations: Declarations) -> str | None:
    """Return the only cloud that may update and delete an initialised Node, None if there is none.

    If the providerID may belong to two clouds by its form, neither may, because the machine that one does not have may
    be in the other. `owners`: the clouds whose providerIDs have the form of the Node's.
    """
    possible = candidates(node, owners, declarations) if node.spec.provider_id else ()
    return possible[0] if isinstance(possible, tuple) and len(possible) == 1 else None


def same_machine(ours: Iterable[Instance], theirs: Iterable[Instance]) -> tuple[Instance, Instance] | None:
    """Return a machine that two clouds both list, as each of them describes it: the clouds then share a project. None
    if there is no such machine.

    It is one machine if the SMBIOS UUID is the same, or if both the name and the cloud's ID are the same. The ID is the
    last part of a providerID. An ID that is only the name proves nothing, because people choose names.
    """
    identified: dict[tuple[str, ...], Instance] = {}
    for instance in ours:
        identified.update(dict.fromkeys(_identities(instance), instance))
    for instance in theirs:
        for identity in _identities(instance):
            if identity in identified:
                return identified[identity], instance
    return None


def overlap(cloud: str, ours: Iterable[Instance], other: str, theirs: Iterable[Instance]) -> str:
    """Return a sentence that names a machine that both clouds list, "" if there is none."""
    if (machines := same_machine(theirs, ours)) is None:
        return ""
    their_machine, our_machine = machines
    return (
        f"clouds {other} and {cloud} overlap: {their_machine.provider_id} and {our_machine.provider_id} are one "
        f"machine, {our_machine.name}, so both reach the same project. Leave one of them out, or correct its "
        "configuration"
    )


def _identities(instance: Instance) -> Iterable[tuple[str, ...]]:
    yield from (("uuid", each) for each in instance.system_uuids)
    id_ = instance.provider_id.rpartition("/")[2].lower()
    if id_ not in (each.lower() for each in instance.names):
        yield "id", id_, instance.name


def _names(clouds: Iterable[str]) -> str:
    return " and ".join(clouds)

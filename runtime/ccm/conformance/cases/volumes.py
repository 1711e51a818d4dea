# SPDX-License-Identifier: Apache-2.0
"""The topology of volumes."""

from __future__ import annotations

from ccm.cloud import CloudError, Invalid, NotFound, NotImplementedByCloud, RateLimited, Transient, VolumeRef

from ..trial import Failed, Trial
from ..world import Trouble
from .collection import Collection
from .failing import errors_in, say_when, troubled

COLLECTION = Collection("volumes", needs="volumes")
case = COLLECTION.case

TOPOLOGY = "topology.kubernetes.io/"


@case()
async def volumes_of_others_are_left_alone(trial: Trial) -> None:
    """A volume of another driver gets no labels: NotImplementedByCloud, NotFound or Invalid."""
    ref = VolumeRef("no.such.driver.example.org", "volume")
    kinds = (NotImplementedByCloud, NotFound, Invalid)
    await trial.expect(kinds, f"labels of {ref}", trial.volumes.labels, ref)


@case()
async def a_volume_has_its_zone(trial: Trial) -> None:
    """The labels of a volume contain its zone or region; after its deletion, `labels` raises NotFound."""
    ref = await _created(trial)
    labels = await trial.ask(trial.volumes.labels, ref)
    if not {f"{TOPOLOGY}zone", f"{TOPOLOGY}region"} & labels.keys():
        raise Failed(f"labels of {ref}: {dict(labels)} contain neither zone nor region")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in labels.items()):
        raise Failed(f"labels of {ref}: {dict(labels)} are not all strings")
    await trial.world.delete_volume(ref)
    await trial.expect((NotFound,), f"labels of the deleted {ref}", trial.volumes.labels, ref)


@case()
async def a_server_error_is_transient(trial: Trial) -> None:
    """A 5xx from the cloud is Transient: it means neither that the volume is gone nor that it has no labels."""
    await _asked_in(trial, Trouble.SERVER_ERROR, Transient)


@case()
async def a_proxys_404_is_not_not_found(trial: Trial) -> None:
    """A 404 that does not come from the cloud itself, or is not about this volume, is Transient: it proves nothing."""
    await _asked_in(trial, Trouble.PROXY_PAGE, Transient)


@case()
async def an_answer_cut_short_is_transient(trial: Trial) -> None:
    """A truncated answer about a volume is Transient; the part that was read provides no labels."""
    await _asked_in(trial, Trouble.CUT_ANSWER, Transient)


@case()
async def a_rate_limit_says_when_to_come_back(trial: Trial) -> None:
    """429 and similar answers are RateLimited, with the seconds that the cloud asks to wait."""
    say_when(await _asked_in(trial, Trouble.RATE_LIMITED, RateLimited))


@case()
async def no_answer_is_transient(trial: Trial) -> None:
    """If the cloud never answers, the call raises Transient, unless its deadline ends it first."""
    await _asked_in(trial, Trouble.HANG, Transient)


async def _asked_in(trial: Trial, kind: Trouble, expected: type[CloudError]) -> list[CloudError]:
    """Return the error of reading a volume's labels during trouble. Raises Failed if the labels are different
    afterwards."""
    trouble, ref = troubled(trial, "volumes", kind), await _created(trial)
    before = dict(await trial.ask(trial.volumes.labels, ref))
    errors = await errors_in(trial, trouble, kind, expected, [(trial.volumes.labels, ref)])
    if (after := dict(await trial.ask(trial.volumes.labels, ref))) != before:
        raise Failed(f"{kind.value}; before that, labels of {ref} were {before}, and afterwards {after}")
    return errors


async def _created(trial: Trial) -> VolumeRef:
    """Create a volume, which is removed at the end."""
    ref = await trial.world.create_volume()

    async def remove() -> None:
        await trial.world.delete_volume(ref)

    trial.at_end(f"volume {ref.handle}", remove)
    return ref

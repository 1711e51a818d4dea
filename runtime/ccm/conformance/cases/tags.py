# SPDX-License-Identifier: Apache-2.0
"""Tags of instances."""

from __future__ import annotations

from collections.abc import Mapping

from ccm.cloud import Conflict, NotFound

from ..trial import Failed, Trial
from .collection import Collection

COLLECTION = Collection("instance_tags", needs="instance_tags")
case = COLLECTION.case


@case(writes=True)
async def added_tags_stay_beside_those_of_others(trial: Trial) -> None:
    """Added tags are listed. Adding one again changes nothing, and the instance keeps all its other tags."""
    instance = await trial.new_instance()
    before = await _tags(trial, instance.provider_id)
    for tags in ({"ccm-conformance-a": "1"}, {"ccm-conformance-b": "2"}, {"ccm-conformance-a": "1"}):
        await trial.ask(trial.instance_tags.add, instance.provider_id, tags)
    wanted = {**before, "ccm-conformance-a": "1", "ccm-conformance-b": "2"}
    if (present := await _tags(trial, instance.provider_id)) != wanted:
        raise Failed(f"tags of {instance.provider_id}: {present} instead of {wanted}")


@case(writes=True)
async def a_tag_with_another_value_is_kept(trial: Trial) -> None:
    """If a key has another value, `add` raises Conflict and adds nothing, because the tag may be somebody else's."""
    instance = await trial.new_instance()
    await trial.ask(trial.instance_tags.add, instance.provider_id, {"ccm-conformance-a": "1"})
    before = await _tags(trial, instance.provider_id)
    tags = {"ccm-conformance-a": "2", "ccm-conformance-b": "2"}
    await trial.expect((Conflict,), f"add of {tags}", trial.instance_tags.add, instance.provider_id, tags)
    if (present := await _tags(trial, instance.provider_id)) != before:
        what = f"tags of {instance.provider_id} changed although `add` raised Conflict"
        raise Failed(f"{what}: {before} before, {present} after")


@case(writes=True)
async def a_deleted_instance_is_not_found(trial: Trial) -> None:
    """After its deletion, an instance is in no listing of tags, and `add` raises NotFound for it."""
    instance = await trial.new_instance()
    await trial.world.delete_instance(instance.provider_id)
    tags = {"ccm-conformance-a": "1"}
    what = f"add to the deleted {instance.provider_id}"
    await trial.expect((NotFound,), what, trial.instance_tags.add, instance.provider_id, tags)
    if instance.provider_id in await trial.ask(trial.instance_tags.list):
        raise Failed(f"{instance.provider_id} was deleted and is still listed with tags")


async def _tags(trial: Trial, provider_id: str) -> Mapping[str, str]:
    listed = await trial.ask(trial.instance_tags.list)
    if provider_id not in listed:
        raise Failed(f"{provider_id} is not in the listing of tags, which has {len(listed)} instances")
    return dict(listed[provider_id])

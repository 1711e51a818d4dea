# SPDX-License-Identifier: Apache-2.0
"""Instances: their identity, complete listings, and that only an answer of the cloud proves that one is gone."""

from __future__ import annotations

import ipaddress
import re
import string

from ccm.cloud import AddressType, Conflict, Instance, InstanceRef, InstanceState, NotFound
from ccm.gateway.instance_snapshot import instance_problem

from ..trial import Failed, Trial, described
from ..world import NotRun
from .collection import Collection

COLLECTION = Collection("instances", needs="instances")
case = COLLECTION.case

#: How many of the listed instances are read individually.
SAMPLE = 5
#: How many instances are created, if the world can, so that some are at the end of a page.
SEVERAL = 7
#: The number of characters of `Instance.warnings` that fit into an Event of the framework.
LONGEST_WARNING = 500

PROVIDER_ID = re.compile(r"[a-z][a-z0-9+.-]*://\S*[^\s/]")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
FOREIGN = (
    "aws:///eu-central-1a/i-0123456789abcdef0",
    "azure:///subscriptions/1/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm",
    "gce://project/europe-west1-b/machine",
    "hcloud://123456",
    "k3s://machine",
    "kind://docker/kind/kind-control-plane",
    "openstack:///2e2aa5a1-3d6b-4a1e-8f0e-0b3a3f4cf1a1",
    "vsphere://4237a1c5-4a4f-4b1b-8c8c-0d9c8b7a6f5e",
    "no-such-cloud://machine",
)


#: Schemes of other controllers, and the names of providers that may use them.
SCHEMES = {
    "aws": {"aws"},
    "azure": {"azure", "libcloud"},
    "cloudstack": {"cloudstack"},
    "digitalocean": {"digitalocean", "libcloud"},
    "external-cloudstack": {"cloudstack", "libcloud"},
    "gce": {"gce", "gcp", "libcloud"},
    "hcloud": {"hcloud", "hetzner"},
    "hrobot": {"hcloud", "hetzner"},
    "k3s": {"k3s"},
    "kind": {"kind"},
    "linode": {"linode", "akamai", "libcloud"},
    "openstack": {"openstack", "rackspace", "libcloud"},
    "rke2": {"rke2"},
    "scaleway": {"scaleway", "libcloud"},
    "vsphere": {"vsphere"},
    "vultr": {"vultr", "libcloud"},
}


@case()
async def it_owns_what_it_lists(trial: Trial) -> None:
    """Every listed providerID has the form `<scheme>://...` with a scheme of this cloud, is owned by the provider, and
    is listed once."""
    provider_ids: set[str] = set()
    for instance in await trial.some_instances():
        if not PROVIDER_ID.fullmatch(instance.provider_id):
            raise Failed(f"{instance.name}: providerID {instance.provider_id!r} is not of the form scheme://...")
        scheme, name = instance.provider_id.partition("://")[0], trial.cloud.name
        if name not in SCHEMES.get(scheme, {name}):
            raise Failed(
                f"{instance.name}: the scheme of the providerID {instance.provider_id!r} is that of another cloud's "
                f"controller, which would delete such Nodes; use one of your own, such as {name}://"
            )
        if trial.instances.owns(instance.provider_id) is not True:
            raise Failed(f"{instance.name}: lists providerID {instance.provider_id!r}, which it does not own")
        if instance.provider_id in provider_ids:
            raise Failed(f"providerID {instance.provider_id!r} is listed twice")
        provider_ids.add(instance.provider_id)


@case()
async def a_listed_id_is_its_own_canonical_spelling(trial: Trial) -> None:
    """If the provider accepts older spellings of providerIDs (`canonical`), the listed spelling is canonical."""
    spell = getattr(trial.instances, "canonical", str)
    for instance in await trial.some_instances():
        if (spelling := spell(instance.provider_id)) != instance.provider_id:
            raise Failed(f"lists {instance.provider_id!r}, but canonical() returns {spelling!r} for it")


@case()
async def it_leaves_foreign_ids_alone(trial: Trial) -> None:
    """The provider does not own providerIDs of other clouds; `owns` accepts any text and returns a bool."""
    scheme = (await trial.some_instances())[0].provider_id.partition("://")[0]
    foreign = [text for text in FOREIGN if not text.startswith(f"{scheme}://")]
    odd = ["", "://", f"{scheme}://", scheme, f"x{scheme}://machine", f"{scheme}x://machine", "a" * 5000, "\n", "ä://ö"]
    for text in [*foreign, *odd]:
        try:
            answer = trial.instances.owns(text)
        except Exception as error:
            raise Failed(f"owns({text[:60]!r}) raised {described(error)}") from error
        if answer is not False:
            raise Failed(f"owns({text[:60]!r}) is {answer!r}, although that is not an instance of this cloud")


@case()
async def a_reloaded_cloud_owns_the_same_ids(trial: Trial) -> None:
    """A second cloud with the same configuration owns what the first one lists. Ownership follows from the
    configuration alone, because the framework leaves a Node alone if no cloud owns its providerID."""
    owned = [
        instance.provider_id for instance in await trial.some_instances() if trial.instances.owns(instance.provider_id)
    ]
    async with trial.another() as cloud:
        await trial.ask(cloud.start)
        for provider_id in owned:
            if cloud.instances is None or cloud.instances.owns(provider_id) is not True:
                raise Failed(f"a second cloud with the same configuration does not own {provider_id!r}")


@case()
async def a_uuid_is_of_one_machine(trial: Trial) -> None:
    """If the cloud has SMBIOS UUIDs (`system_uuids`), they are in lower case, and no two instances share one. If
    several clouds have a machine with the name of a Node, the UUID decides which cloud owns the Node."""
    holders: dict[str, str] = {}
    for instance in await trial.some_instances():
        for system_uuid in set(instance.system_uuids):
            if system_uuid != system_uuid.lower():
                raise Failed(f"{instance.name}: system_uuids has {system_uuid!r}, which is not in lower case")
            if (other := holders.setdefault(system_uuid, instance.provider_id)) != instance.provider_id:
                raise Failed(f"{other} and {instance.provider_id} have the same system_uuids: {system_uuid}")


@case()
async def instances_are_well_formed(trial: Trial) -> None:
    """Types match the contract, IP addresses and pod CIDRs are valid, and type, zone and region are valid label
    values."""
    for instance in await trial.some_instances():
        if problem := instance_problem(instance) or _unfit(instance):
            raise Failed(problem)


@case()
async def warnings_are_sentences(trial: Trial) -> None:
    """A warning of the provider is text for a person, on one line of at most 500 characters, and not repeated."""
    for instance in await trial.some_instances():
        for text in instance.warnings:
            if not text.strip() or not text.isprintable() or len(text) > LONGEST_WARNING:
                raise Failed(f"{instance.name}: the warning {text[:LONGEST_WARNING]!r} does not fit into an Event")
        if len(set(instance.warnings)) < len(instance.warnings):
            raise Failed(f"{instance.name}: repeats a warning: {instance.warnings}")


@case()
async def a_listing_repeats_itself(trial: Trial) -> None:
    """While nothing changes, two listings are equal, including the order of addresses; otherwise Nodes would flap."""
    before, after = await _by_id(trial), await _by_id(trial)
    for provider_id in before.keys() & after.keys():
        if before[provider_id] != after[provider_id]:
            raise Failed(f"two listings differ: {before[provider_id]} and {after[provider_id]}")


@case()
async def all_pages_are_the_whole(trial: Trial) -> None:
    """The pages end; no instance is missing between two of them, and none occurs twice."""
    try:
        made = [await trial.new_instance() for _ in range(SEVERAL)]
    except NotRun:
        made = []
    pages = await trial.pages()
    ids = [instance.provider_id for page in pages for instance in page.instances]
    if missing := {instance.provider_id for instance in made} - set(ids):
        raise Failed(f"not in any of {len(pages)} pages: {', '.join(sorted(missing))}")
    if len(ids) != len(set(ids)):
        raise Failed(f"{len(ids) - len(set(ids))} instances occur twice")
    if (total := pages[-1].total) not in (None, len(ids)):
        raise Failed(f"the listing has {len(ids)} instances, and the cloud's total is {total}")


@case()
async def getting_agrees_with_listing(trial: Trial) -> None:
    """`get` by providerID returns the same as the listing."""
    for listed in (await trial.some_instances())[:SAMPLE]:
        answer = await trial.ask(trial.instances.get, InstanceRef(listed.name, listed.provider_id))
        if answer != listed:
            raise Failed(f"listed as {listed}, but get returns {answer}")


@case()
async def getting_by_name_agrees_with_listing(trial: Trial) -> None:
    """`get` by a unique name returns the instance with that name."""
    for listed in _unique_names(await trial.some_instances())[:SAMPLE]:
        answer = await trial.ask(trial.instances.get, InstanceRef(listed.name))
        if answer != listed:
            raise Failed(f"listed as {listed}, but get by its name returns {answer}")


@case()
async def an_alias_finds_its_instance(trial: Trial) -> None:
    """If the cloud has aliases, `get` by a unique alias returns its instance; no alias equals the name."""
    instances = await trial.some_instances()
    names = [name for instance in instances for name in instance.names]
    for listed in instances:
        if listed.name in listed.aliases or len(set(listed.aliases)) < len(listed.aliases):
            raise Failed(f"{listed.name}: its aliases {listed.aliases} repeat its name or one another")
    aliases = [(alias, each) for each in instances for alias in each.aliases if names.count(alias) == 1]
    for alias, listed in aliases[:SAMPLE]:
        answer = await trial.ask(trial.instances.get, InstanceRef(alias))
        if answer != listed:
            raise Failed(f"listed as {listed}, but get by its alias {alias!r} returns {answer}")


@case()
async def the_id_counts_and_not_the_name(trial: Trial) -> None:
    """`get` with a providerID returns that instance, whatever the Node's name is, because names are reused."""
    instances = await trial.some_instances(2)
    for name in (instances[1].name, trial.new_name()):
        answer = await trial.ask(trial.instances.get, InstanceRef(name, instances[0].provider_id))
        if answer.provider_id != instances[0].provider_id:
            raise Failed(f"requested {instances[0].provider_id} as Node {name!r}, got {answer.provider_id}")


@case()
async def names_match_exactly(trial: Trial) -> None:
    """A part, a pattern, or another spelling of an instance's name does not match the instance."""
    instances = await trial.some_instances()
    listed = {instance.name for instance in instances}
    name = max(listed, key=len)
    similar = [
        name[:-1],
        name[1:],
        f"{name}0",
        name.swapcase(),
        f"{name[:-1]}.",
        f"{name[:2]}.*",
        f"{name[:2]}*",
        ".*",
        "*",
        "%",
    ]
    for other in similar:
        if other and other not in listed:
            await trial.expect(
                (NotFound,), f"get by the name {other!r} (there is a {name!r})", trial.instances.get, InstanceRef(other)
            )


@case()
async def an_unknown_name_is_not_found(trial: Trial) -> None:
    """For a name that no instance has, `get` raises NotFound, because no other error allows the deletion of a Node."""
    name = trial.new_name()
    await trial.expect((NotFound,), f"get by the unknown name {name!r}", trial.instances.get, InstanceRef(name))


@case()
async def an_unknown_id_is_not_found(trial: Trial) -> None:
    """For a valid providerID that no instance has, `get` raises NotFound, even if an instance has the Node's name."""
    instances = await trial.some_instances()
    listed = {instance.provider_id for instance in instances}
    instance = instances[0]
    for unknown in _similar_ids(instance.provider_id):
        if unknown not in listed and trial.instances.owns(unknown):
            ref = InstanceRef(instance.name, unknown)
            await trial.expect((NotFound,), f"get by the unknown ID {unknown!r}", trial.instances.get, ref)
            return
    raise NotRun("could not construct another ID of the provider's form")


@case()
async def a_new_instance_is_seen_at_once(trial: Trial) -> None:
    """A new instance is visible as soon as the cloud has it. The framework needs fresh answers, so a provider keeps no
    cache."""
    await trial.ask(trial.instances.list_page, None)
    new = await trial.new_instance()
    answer = await trial.ask(trial.instances.get, InstanceRef(new.name, new.provider_id))
    if answer.provider_id != new.provider_id:
        raise Failed(f"created as {new.provider_id}, got {answer.provider_id}")


@case()
async def a_deleted_instance_is_gone(trial: Trial) -> None:
    """A deleted instance is no longer listed, and `get` raises NotFound for its ID and for its name."""
    gone = await trial.new_instance()
    await trial.ask(trial.instances.get, InstanceRef(gone.name, gone.provider_id))
    await trial.world.delete_instance(gone.provider_id)
    if gone.provider_id in {instance.provider_id for instance in await trial.listing()}:
        raise Failed(f"{gone.provider_id} was deleted and is still listed")
    for ref in (InstanceRef(gone.name, gone.provider_id), InstanceRef(gone.name)):
        await trial.expect((NotFound,), f"get of the deleted instance by {ref}", trial.instances.get, ref)


@case()
async def an_instance_created_again_is_another_one(trial: Trial) -> None:
    """An instance that is created again with the same name has another providerID. `get` raises NotFound for the old
    ID, although the name exists."""
    former = await trial.new_instance()
    await trial.world.delete_instance(former.provider_id)
    again = await trial.new_instance(former.name)
    if again.provider_id == former.provider_id:
        raise Failed(f"{former.name} was deleted and created again, but has the same providerID {again.provider_id}")
    ref = InstanceRef(former.name, former.provider_id)
    await trial.expect((NotFound,), "get of the former instance by its ID", trial.instances.get, ref)


@case()
async def a_lost_tag_changes_no_instance(trial: Trial) -> None:
    """An instance that lost its tags and labels is still listed and found, because a missing instance counts as
    deleted."""
    instance = await trial.new_instance()
    await trial.world.untag_instance(instance.provider_id)
    if instance.provider_id not in {each.provider_id for each in await trial.listing()}:
        raise Failed("an instance that lost its tags is no longer listed")
    for ref in (InstanceRef(instance.name, instance.provider_id), InstanceRef(instance.name)):
        try:
            answer = await trial.ask(trial.instances.get, ref)
        except NotFound as error:
            raise Failed(f"an instance that lost its tags is not found by {ref}: {error}") from error
        if answer.provider_id != instance.provider_id:
            raise Failed(f"requested {instance.provider_id} by {ref}, got {answer.provider_id}")


@case()
async def a_stopped_instance_is_shut_down_and_not_gone(trial: Trial) -> None:
    """A stopped instance is still listed and found, with the state SHUTDOWN. Its Node gets a taint and is kept."""
    stopped = await trial.new_instance()
    await trial.world.stop_instance(stopped.provider_id)
    answer = await trial.ask(trial.instances.get, InstanceRef(stopped.name, stopped.provider_id))
    listed = {each.provider_id: each for each in await trial.listing()}.get(stopped.provider_id)
    if listed is None:
        raise Failed("a stopped instance is no longer listed")
    if InstanceState.SHUTDOWN not in (answer.state, listed.state) or answer.state != listed.state:
        raise Failed(f"a stopped instance is {answer.state} when read and {listed.state} in the listing")


@case()
async def an_ambiguous_name_is_a_conflict(trial: Trial) -> None:
    """If two instances have the same name, `get` by that name raises Conflict. The provider neither picks one nor
    reports that there is none."""
    name = trial.new_name()
    for _ in range(2):
        await trial.new_instance(name)
    await trial.expect((Conflict,), "get by a name that two instances have", trial.instances.get, InstanceRef(name))


async def _by_id(trial: Trial) -> dict[str, Instance]:
    return {instance.provider_id: instance for instance in await trial.listing()}


def _unfit(instance: Instance) -> str:
    for address in instance.addresses:
        if address.type in (AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP):
            try:
                ipaddress.ip_address(address.address)
            except ValueError:
                return f"{instance.name}: {address.type} {address.address!r} is not an IP address"
    for cidr in instance.pod_cidrs:
        try:
            ipaddress.ip_network(cidr)
        except ValueError:
            return f"{instance.name}: {cidr!r} in pod_cidrs is not a CIDR"
    for name in ("type", "zone", "region"):
        value = getattr(instance, name)
        if not LABEL_VALUE.fullmatch(value):
            return f"{instance.name}: {name} {value!r} is not a valid value for a Node's label"
    if not instance.name:
        return f"{instance.provider_id} has no name"
    return ""


def _unique_names(instances: list[Instance]) -> list[Instance]:
    names = [instance.name for instance in instances]
    return [instance for instance in instances if names.count(instance.name) == 1]


def _similar_ids(provider_id: str) -> list[str]:
    """Return IDs that differ in one character of the same kind, so that the form is kept; last characters first."""
    ids = []
    for index in range(len(provider_id) - 1, provider_id.find("://") + 2, -1):
        character = provider_id[index]
        kind = string.digits if character.isdigit() else "abcdef" if character in "abcdef" else string.ascii_lowercase
        if character in kind:
            ids += [provider_id[:index] + other + provider_id[index + 1 :] for other in kind if other != character]
    return ids

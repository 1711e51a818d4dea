# SPDX-License-Identifier: Apache-2.0
"""`ccm nodes`: the instance of each Node, and what prevents its initialisation or refresh. Reads only.

It applies the controllers' own rules before any controller acts, because a migration runs this command before it taints
a Node.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs, to_builtins

from ccm.cloud import CloudError, ConfigError, Instance, NotFound, ProviderConfig, Transient, registry
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.ownership_rules import Declarations, Owned, Undecided
from ccm.engine.client import ApiError, KubeClient, KubeConfigError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot
from ccm.options.clouds import CloudFlags, clouds

from .asking import answers
from .asking.asking import show
from .asking.question_flags import default_kubeconfig
from .asking.reading import ReadingClient, ReadingGateway
from .outlooks.judging import Judging
from .outlooks.node_outlook import REGISTER, RENAME
from .outlooks.ownership_outlook import owners

#: Reason why a Node belongs to none of several clouds -> the verdict about the Node; "mismatched" for all other
#: reasons.
VERDICTS = {"ForeignProviderID": "foreign", "OtherController": "foreign", "CloudNotAvailable": "unknown"}


class Match(Struct, frozen=True):
    """A Node, and what the cloud says about it."""

    name: Annotated[str, Meta(description="The Node's name.")]
    verdict: Annotated[
        str,
        Meta(
            description="`ok`, `foreign` (of another provider), `mismatched` (Node and cloud disagree, another Node "
            "has the providerID, or the Node could not be initialised), or `unknown` (the cloud cannot say)."
        ),
    ]
    instance: Annotated[str, Meta(description="The providerID of the Node's instance; empty if there is none.")] = ""
    reason: Annotated[str, Meta(description="Why the verdict is not `ok`; empty otherwise.")] = ""
    primary: Annotated[
        list[str],
        Meta(
            description="The Node's primary addresses now: the first InternalIP, or else ExternalIP, and the first "
            "address of the other IP family."
        ),
    ] = []
    primary_after: Annotated[
        list[str],
        Meta(description="The same after the controller has written the addresses of the instance; empty if unknown."),
    ] = []
    cloud: Annotated[
        str,
        Meta(description="The object's cloud, if there are several clouds; empty if it belongs to none of them."),
    ] = ""


@dataclass(frozen=True)
class Listing:
    """What one cloud lists, and which providerIDs are its own."""

    snapshot: Snapshot
    owns: Callable[[str], bool]


def main(argv: Sequence[str]) -> int:
    """Run the command. Return the exit status: 0 done, 1 no answer from the cloud or the API server, 2 invalid command
    line or configuration."""
    args = arguments().parse_args(argv)
    named, problems = clouds(args.cloud_provider, args.cloud_config, args.cloud_nodes)
    if problems:
        arguments().error("; ".join(problems))
    try:
        client = ReadingClient.from_config(kubeconfig=args.kubeconfig or default_kubeconfig())
        matches = asyncio.run(_ask(client, named))
    except ConfigError as error:
        for problem in error.problems:
            print(f"ccm: {problem}", file=sys.stderr)
        return 2
    except CloudError as error:
        print(f"ccm: the cloud gave no answer: {error}", file=sys.stderr)
        return 1
    except (ApiError, KubeConfigError) as error:
        print(f"ccm: {error}", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps(to_builtins(matches)))
    else:
        show(table(matches))
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ccm nodes", description="List the instance of each Node, and mismatches.")
    parser.add_argument("--cloud-provider", required=True, help="use this provider, like the controller")
    parser.add_argument("--cloud-config", default="", help="read this provider configuration, like the controller")
    parser.add_argument(
        "--cloud-nodes", action="append", default=[], help="use these patterns of several clouds, like the controller"
    )
    parser.add_argument("--kubeconfig", default="", help="use this kubeconfig; default: as kubectl, or in-cluster")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser


async def _ask(client: KubeClient, named: Sequence[CloudFlags]) -> list[Match]:
    """Return a Match for each Node, sorted by name. Raises CloudError, which includes ConfigError, and ApiError."""
    try:
        nodes, _ = await client.list("/api/v1/nodes", Node)
    finally:
        await client.close()
    listings = {each.provider: await _listing(each.provider, each.config) for each in named}
    if len(listings) == 1:
        (only,) = listings.values()
        return match(nodes, only.snapshot, only.owns)
    declarations = Declarations(tuple(listings), {each.provider: each.nodes for each in named})
    return match_all(nodes, listings, declarations)


async def _listing(provider: str, path: str) -> Listing:
    """Return what one cloud lists. Raises CloudError; ConfigError if the configuration cannot be used, or if the
    provider has no instances."""
    gateway = ReadingGateway(registry.create(provider, _config(path)))
    try:
        await gateway.call("cloud.start", gateway.cloud.start)
        if gateway.cloud.instances is None:
            raise ConfigError([f"provider {provider!r} has no instances: there is nothing to compare Nodes with"])
        directory = InstanceDirectory(gateway.cloud.instances, gateway.call)
        return Listing(await directory.list(not_before=time.monotonic()), directory.owns)
    finally:
        await gateway.close()


def _config(path: str) -> ProviderConfig:
    """Return the provider's configuration: the content of the file, or an empty text without one. Raises ConfigError if
    the file cannot be read."""
    if not path:
        return ProviderConfig("", "(no --cloud-config)")
    try:
        return ProviderConfig(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError([f"cannot read --cloud-config {path}: {reason}"]) from None


def match(nodes: Iterable[Node], snapshot: Snapshot, owns: Callable[[str], bool]) -> list[Match]:
    """Return a Match for every Node, sorted by name, from its instance and the other Nodes. `owns`: whether a
    providerID belongs to this cloud. Pure."""
    judging = Judging(sorted(nodes, key=lambda node: node.metadata.name), snapshot, owns)
    return [_judge(node, judging) for node in judging.nodes]


def match_all(nodes: Iterable[Node], listings: Mapping[str, Listing], declarations: Declarations) -> list[Match]:
    """Return a Match for every Node, sorted by name, from its instance in the cloud to which it belongs. `listings`:
    cloud -> what it lists. Pure."""
    every = sorted(nodes, key=lambda node: node.metadata.name)
    judgings = {cloud: Judging(every, each.snapshot, each.owns) for cloud, each in listings.items()}

    def owning(provider_id: str) -> list[str]:
        return [cloud for cloud, each in listings.items() if each.owns(provider_id)]

    whose = owners(every, judgings, owning, declarations)
    matches = []
    for node in every:
        owner = whose[node.metadata.name]
        if isinstance(owner, Owned):
            matches.append(structs.replace(_judge(node, judgings[owner.cloud]), cloud=owner.cloud))
        else:
            reason = "CloudNotAvailable" if isinstance(owner, Undecided) else owner.reason
            matches.append(Match(node.metadata.name, VERDICTS.get(reason, "mismatched"), reason=owner.message))
    return matches


def _judge(node: Node, judging: Judging) -> Match:
    name, provider_id = node.metadata.name, node.spec.provider_id
    if provider_id and not judging.owns(provider_id):
        return Match(name, "foreign", reason=f"its providerID {provider_id} is not one of this provider's")
    instance = judging.listed(node)
    if isinstance(instance, NotFound):
        return Match(name, "mismatched", reason=f"{instance}: {REGISTER if provider_id else RENAME}")
    if isinstance(instance, CloudError):
        return Match(name, "unknown" if isinstance(instance, Transient) else "mismatched", reason=str(instance))
    if wrong := judging.contradiction(node, instance):
        return Match(name, "mismatched", instance.provider_id, reason=wrong.message)
    return _described(node, instance)


def _described(node: Node, instance: Instance) -> Match:
    """Return the verdict on a Node that has this instance: `ok` if the instance has what the Node needs. A Node needs
    more for its initialisation than for a refresh."""
    name = node.metadata.name
    initialised = node.spec.provider_id and not node_rules.is_uninitialized(node)
    try:
        addresses = node_rules.node_addresses(node, instance.addresses)
        if not initialised:
            node_rules.plan_initialisation(node, instance)
    except node_rules.NodeRuleError as error:
        return Match(name, "mismatched", reason=str(error))
    if instance.incomplete:
        return Match(name, "unknown", instance.provider_id, reason=instance.incomplete)
    now = node_rules.primary_addresses(node.status.addresses)
    after = node_rules.primary_addresses(addresses) or now
    return Match(name, "ok", instance.provider_id, primary=now, primary_after=after)


def table(matches: Sequence[Match]) -> list[str]:
    """Return lines of text, safe for a terminal."""
    if any(each.cloud for each in matches):
        whose = ((each.name, each.cloud or "-", each.verdict, each.instance or "-", each.reason) for each in matches)
        return answers.table(("NODE", "CLOUD", "VERDICT", "INSTANCE", "REASON"), whose)
    rows = ((each.name, each.verdict, each.instance or "-", each.reason) for each in matches)
    return answers.table(("NODE", "VERDICT", "INSTANCE", "REASON"), rows)

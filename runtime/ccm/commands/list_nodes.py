# SPDX-License-Identifier: Apache-2.0
"""`ccm nodes`: the instance of each Node, and what prevents its initialisation or refresh. Reads only.

It applies the controllers' own rules before any of them acts: a migration runs it before it taints a Node.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from ccm.cloud import CloudError, ConfigError, InstanceRef, NotFound, ProviderConfig, Transient, registry
from ccm.controllers import node_rules
from ccm.engine.client import ApiError, KubeClient, KubeConfigError
from ccm.engine.objects import Node
from ccm.gateway.instance_directory import InstanceDirectory
from ccm.gateway.instance_snapshot import Snapshot

from . import answers
from .question_flags import default_kubeconfig
from .reading import ReadingClient, ReadingGateway


class Match(Struct, frozen=True):
    """A Node, and what the cloud says about it."""

    name: Annotated[str, Meta(description="The Node's name.")]
    verdict: Annotated[
        str,
        Meta(
            description="`ok`, `foreign` (of another provider), `mismatched` (Node and cloud disagree), or `unknown` "
            "(the cloud cannot say)."
        ),
    ]
    instance: Annotated[str, Meta(description="The providerID of its instance; empty if there is none.")] = ""
    reason: Annotated[str, Meta(description="Why the verdict is not `ok`; empty otherwise.")] = ""


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 done, 1 no answer from the cloud or the API server, 2 invalid command line or configuration."""
    args = arguments().parse_args(argv)
    try:
        client = ReadingClient.from_config(kubeconfig=args.kubeconfig or default_kubeconfig())
        matches = asyncio.run(_ask(client, args.cloud_provider, args.cloud_config))
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
    print(json.dumps(to_builtins(matches)) if args.output == "json" else "\n".join(table(matches)))
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ccm nodes", description="List the instance of each Node, and mismatches.")
    parser.add_argument("--cloud-provider", required=True, help="use this provider, like the controller")
    parser.add_argument("--cloud-config", default="", help="read this provider configuration, like the controller")
    parser.add_argument("--kubeconfig", default="", help="use this kubeconfig; default: as kubectl, or in-cluster")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    return parser


async def _ask(client: KubeClient, provider: str, path: str) -> list[Match]:
    """Raises CloudError, ApiError."""
    try:
        nodes, _ = await client.list("/api/v1/nodes", Node)
    finally:
        await client.close()
    gateway = ReadingGateway(registry.create(provider, _config(path)))
    try:
        await gateway.call("cloud.start", gateway.cloud.start)
        if gateway.cloud.instances is None:
            raise ConfigError([f"provider {provider!r} has no instances: there is nothing to compare Nodes with"])
        directory = InstanceDirectory(gateway.cloud.instances, gateway.call)
        return match(nodes, await directory.list(not_before=time.monotonic()), directory.owns)
    finally:
        await gateway.close()


def _config(path: str) -> ProviderConfig:
    """Raises ConfigError."""
    if not path:
        return ProviderConfig("", "(no --cloud-config)")
    try:
        return ProviderConfig(Path(path).read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError([f"cannot read --cloud-config {path}: {reason}"]) from None


def match(nodes: Iterable[Node], snapshot: Snapshot, owns: Callable[[str], bool]) -> list[Match]:
    """Compare every Node with its instance. Pure."""
    return [_judge(node, snapshot, owns) for node in sorted(nodes, key=lambda node: node.metadata.name)]


def _judge(node: Node, snapshot: Snapshot, owns: Callable[[str], bool]) -> Match:
    name, provider_id = node.metadata.name, node.spec.provider_id
    if provider_id and not owns(provider_id):
        return Match(name, "foreign", reason=f"its providerID {provider_id} is not one of this provider's")
    try:
        instance = snapshot.find(InstanceRef(name, provider_id or None))
        if problem := node_rules.other_machine(node, instance, snapshot.by_name.get(name, ())):
            return Match(name, "mismatched", instance.provider_id, problem)
        node_rules.node_addresses(node, instance.addresses)
    except NotFound as error:
        way_out = (
            "if its machine was replaced, delete the Node and restart its kubelet, so that it registers again"
            if provider_id
            else "rename the Node or the instance, so that both have the same name"
        )
        return Match(name, "mismatched", reason=f"{error}: {way_out}")
    except node_rules.NodeRuleError as error:
        return Match(name, "mismatched", reason=str(error))
    except Transient as error:
        return Match(name, "unknown", reason=str(error))
    except CloudError as error:
        return Match(name, "mismatched", reason=str(error))
    return Match(name, "ok", instance.provider_id)


def table(matches: Sequence[Match]) -> list[str]:
    """Lines of text, safe for a terminal."""
    rows = ((each.name, each.verdict, each.instance or "-", each.reason) for each in matches)
    return answers.table(("NODE", "VERDICT", "INSTANCE", "REASON"), rows)

# SPDX-License-Identifier: Apache-2.0
"""Judges for tests of rules that need verdicts about Nodes."""

from collections.abc import Callable

from ccm.cloud import Instance
from ccm.controllers.nodes.vouching_rules import Judge, Reason, Refused, Verdict, judge
from ccm.engine.objects import Node


def believing(owns: Callable[[str], bool]) -> Judge:
    """Return a judge that vouches for every Node whose providerID the cloud owns; it returns None for others."""

    def verdict(node: Node) -> Verdict | None:
        provider_id = node.spec.provider_id
        return judge(node, Instance(provider_id, node.metadata.name), (), ()) if owns(provider_id) else None

    return verdict


def refusing(*names: str, judge: Judge, reason: Reason = Reason.OTHER_MACHINE) -> Judge:
    """Return a judge that refuses these Nodes for `reason` and judges the others as `judge`."""
    return lambda node: Refused(reason, "not its machine") if node.metadata.name in names else judge(node)

# SPDX-License-Identifier: Apache-2.0
"""Verdicts for tests of rules that ask for one."""

from collections.abc import Callable

from ccm.cloud import Instance
from ccm.controllers.nodes.vouching_rules import Judge, Reason, Refused, Verdict, judge
from ccm.engine.objects import Node


def believing(owns: Callable[[str], bool]) -> Judge:
    """The cloud names no addresses and knows every instance of these: each Node is what it says."""

    def verdict(node: Node) -> Verdict | None:
        provider_id = node.spec.provider_id
        return judge(node, Instance(provider_id, node.metadata.name), (), ()) if owns(provider_id) else None

    return verdict


def refusing(*names: str, judge: Judge, reason: Reason = Reason.OTHER_MACHINE) -> Judge:
    """As `judge`, but not for these Nodes."""
    return lambda node: Refused(reason, "not its machine") if node.metadata.name in names else judge(node)

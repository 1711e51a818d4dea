# SPDX-License-Identifier: Apache-2.0
"""Decides which rules of a firewall or security group to create and to delete. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Desired = TypeVar("Desired")
Present = TypeVar("Present")


def rule_changes(
    desired: Sequence[Desired],
    present: Iterable[Present],
    key: Callable[[Desired | Present], Hashable],
) -> tuple[list[Desired], list[Present]]:
    """Return rules to create, and existing rules to delete. `key`: two rules with the same key are the same, however
    the cloud spells them."""
    keyed = [(key(row), row) for row in present]
    present_keys, desired_keys = {each for each, _ in keyed}, {key(rule) for rule in desired}
    missing = [rule for rule in desired if key(rule) not in present_keys]
    return missing, [row for each, row in keyed if each not in desired_keys]

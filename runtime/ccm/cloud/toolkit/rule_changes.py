# SPDX-License-Identifier: Apache-2.0
"""Decides which rules of a firewall or security group to create and to delete. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Wanted = TypeVar("Wanted")
Present = TypeVar("Present")


def rule_changes(
    wanted: Sequence[Wanted],
    present: Iterable[Present],
    key: Callable[[Wanted | Present], Hashable],
) -> tuple[list[Wanted], list[Present]]:
    """Return rules to create, and existing rules to delete. `key`: two rules with the same key are the same, however
    the cloud spells them."""
    there = [(key(row), row) for row in present]
    known, keys = {each for each, _ in there}, {key(rule) for rule in wanted}
    return [rule for rule in wanted if key(rule) not in known], [row for each, row in there if each not in keys]

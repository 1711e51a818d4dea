# SPDX-License-Identifier: Apache-2.0
"""Decide whether what one cloud does makes a process unready. No I/O.

A rollout asks this: may it go on to the next Pod? A configuration that the cloud refuses must stop it. A cloud that is
silent must not: of several, it would hold up what the others need. If none works, the process is of no use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ccm.serving.health import Tolerated


@dataclass(frozen=True, slots=True)
class Standing:
    """`reason`: why the cloud does not work, "" if it does. `is_silent`: it was asked, and gave no answer. So it has
    not refused the configuration."""

    reason: str = ""
    is_silent: bool = False


def verdict(cloud: Standing, others: Iterable[Standing]) -> str | Tolerated | None:
    """Return the result of the check of a cloud. `others`: the other clouds of the process."""
    if not cloud.reason:
        return None
    if cloud.is_silent and any(not each.reason for each in others):
        return Tolerated(cloud.reason)
    return cloud.reason

# SPDX-License-Identifier: Apache-2.0
"""Decides whether the state of one cloud makes a process unready. No I/O.

Readiness decides whether a rollout goes on to the next Pod. A configuration that the cloud refuses must stop the
rollout. A silent cloud must not stop it while another cloud works, because that one may need the new Pod. If no
cloud works, the process is not ready.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ccm.serving.health import Tolerated


class Standing(msgspec.Struct, frozen=True):
    """Whether a cloud works. `reason`: why the cloud does not work, "" if it does. `is_silent`: the cloud was called
    and gave no answer, so it has not refused the configuration."""

    reason: str = ""
    is_silent: bool = False


def verdict(cloud: Standing, others: Iterable[Standing]) -> str | Tolerated | None:
    """Return None if the cloud works, otherwise why not. The reason is tolerated if the cloud is silent and one of the
    `others`, the other clouds of the process, works."""
    if not cloud.reason:
        return None
    if cloud.is_silent and any(not other.reason for other in others):
        return Tolerated(cloud.reason)
    return cloud.reason

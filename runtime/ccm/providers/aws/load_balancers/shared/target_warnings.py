# SPDX-License-Identifier: Apache-2.0
"""Warnings about the targets of a load balancer of either type. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ccm.cloud import Backend
from ccm.cloud.toolkit.service_checks import nobody_serves

from ...annotations import PREFIX
from .target_rules import Selecting, ids


def no_targets(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the warning that there are no targets although there are Nodes, () otherwise."""
    selector = f"annotation {PREFIX}target-node-labels" if desired.nodes else ""
    return nobody_serves(backends, ids(desired, backends), selector)


def of(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return all warnings about the targets."""
    return (*no_targets(desired, backends), *above_limit(desired, backends))


def above_limit(desired: Selecting, backends: Sequence[Backend]) -> tuple[str, ...]:
    """Return the warning about more targets than MaxTargets allows, () otherwise."""
    number = len(ids(desired, backends))
    if not 0 < desired.most < number:
        return ()
    return (
        f"it has {number} instances as targets, and MaxTargets in cloud.conf allows {desired.most}. With "
        "externalTrafficPolicy Local each may have the only Pod, so none is left out",
    )

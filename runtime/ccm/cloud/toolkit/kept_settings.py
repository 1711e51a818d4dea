# SPDX-License-Identifier: Apache-2.0
"""Settings that a cloud cannot apply to what exists: sentences for `LoadBalancer.warnings`. Pure.

A provider compares such settings in every `ensure` and puts the sentences into its answer. The framework reports each
sentence once. The fingerprint must cover the settings: otherwise `ensure` does not run when a setting changes later,
and nobody learns that the change has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Setting(NamedTuple):
    """A setting that has an effect only when a load balancer is created. `desired`: "" if it is not set; `present`:
    what the load balancer has, "" for nothing. Both are compared and shown as they are: convert them to one
    spelling."""

    desired: str
    present: str


def differences(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return the settings that the load balancer was not created with: key -> the desired and the present value."""
    return {
        key: f"{desired} ({'it has ' + present if present else 'it has none'})"
        for key, (desired, present) in settings.items()
        if desired and desired != present
    }


def only_for_new(unapplied: Mapping[str, str]) -> tuple[str, ...]:
    """Return the warning about `differences`, () if there are none. The keys are names that a user finds: of an
    annotation, of a field, or of the configuration."""
    if not unapplied:
        return ()
    changes = ", ".join(f"{key} {what}" for key, what in unapplied.items())
    return (
        "settings for new load balancers do not change this one until the Service is deleted and created again: "
        f"{changes}",
    )


def without_effect(keys: Iterable[str], reason: str) -> tuple[str, ...]:
    """Return the warning about settings that another one overrules, () without keys. `reason`: a clause that names the
    other setting."""
    names = ", ".join(sorted(keys))
    return (f"{names}: no effect, because {reason}",) if names else ()

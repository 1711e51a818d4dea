# SPDX-License-Identifier: Apache-2.0
"""Warnings about settings that have no effect on an existing load balancer, for `LoadBalancer.warnings`. Pure.

A provider compares such settings in every `ensure` and returns the warnings. The framework reports each warning once.
The fingerprint must cover the settings: otherwise `ensure` does not run when a setting changes later, and no warning
says that the change has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Setting(NamedTuple):
    """A setting that has an effect only when a load balancer is created. `desired`: the user's value, "" if not set.
    `present`: the load balancer's value, "" if it has none. Both are compared and shown literally, so callers pass
    them in the same spelling."""

    desired: str
    present: str


def differences(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return, by key, the desired and the present value of each setting that is set and that the load balancer does not
    have."""
    return {
        key: f"{desired} ({'it has ' + present if present else 'it has none'})"
        for key, (desired, present) in settings.items()
        if desired and desired != present
    }


def only_for_new(unapplied: Mapping[str, str]) -> tuple[str, ...]:
    """Return the warning about `differences`, () if there are none. The keys are names that a user knows: those of
    annotations, of fields, or of the configuration."""
    if not unapplied:
        return ()
    changes = ", ".join(f"{key} {what}" for key, what in unapplied.items())
    return (
        "settings for new load balancers do not change this one until the Service is deleted and created again: "
        f"{changes}",
    )


def without_effect(keys: Iterable[str], reason: str) -> tuple[str, ...]:
    """Return the warning about settings that another setting overrides, () if there are no keys. `reason`: a clause
    that names the other setting."""
    names = ", ".join(sorted(keys))
    return (f"{names}: no effect, because {reason}",) if names else ()

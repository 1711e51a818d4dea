# SPDX-License-Identifier: Apache-2.0
"""Who leads, and when the cloud last answered the leader, for people. No I/O."""

from __future__ import annotations

import datetime

from ccm.engine.objects import Lease, parse_time


def leader_lines(lease: Lease | None, name: str, now: datetime.datetime) -> list[str]:
    """Return sentences about who leads, and when the cloud last answered the leader. `name`: the Lease's,
    NAMESPACE/NAME."""
    if lease is None:
        return [f"No controller has ever led: the Lease {name} is missing. Deploy the cloud-controller-manager."]
    spec = lease.spec
    if not spec.holder_identity:
        return [f"No controller leads: the Lease {name} was released, {ago(spec.renew_time, now)}."]
    if not is_led(lease, now):
        return [
            f"No controller leads: {spec.holder_identity} renewed the Lease {name} {ago(spec.renew_time, now)}, "
            f"which is valid for {spec.lease_duration_seconds or 0} s. See the logs of its Pod."
        ]
    facts = leader_facts(lease)
    answered = facts.get("last-cloud-success")
    if "cloud-provider" not in facts:
        return [
            f"Controller: {spec.holder_identity}, which renewed the Lease {name} {ago(spec.renew_time, now)}",
            "  it does not describe itself in the Lease, so it is another cloud-controller-manager",
        ]
    return [
        f"Controller: {spec.holder_identity}, which renewed the Lease {name} {ago(spec.renew_time, now)}",
        f"  provider {facts.get('cloud-provider', 'unknown')}; the cloud last answered it "
        + (ago(answered, now) if answered else "never, or it does not report it"),
        *_clouds(facts, now),
    ]


def _clouds(facts: dict[str, str], now: datetime.datetime) -> list[str]:
    """Return when each of several clouds last answered; [] for one cloud."""
    names = facts.get("cloud-provider", "").split(",")
    answered = {name.strip(): facts.get(f"last-cloud-success.{name.strip()}") for name in names}
    if len(answered) < 2:
        return []
    return [f"  cloud {name} last answered {ago(when, now) if when else 'never'}" for name, when in answered.items()]


def is_led(lease: Lease | None, now: datetime.datetime) -> bool:
    """Return whether somebody holds the Lease and it is still valid."""
    if lease is None or not lease.spec.holder_identity:
        return False
    renewed = seconds_since(lease.spec.renew_time, now)
    return renewed is not None and renewed <= (lease.spec.lease_duration_seconds or 0)


def leader_facts(lease: Lease | None) -> dict[str, str]:
    """Return what the leader says of itself in the annotations of its Lease: name without prefix -> value; {} without a
    Lease."""
    annotations = lease.metadata.annotations if lease is not None else {}
    prefix = "ccm.outoftree.dev/"
    return {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}


def running(lease: Lease | None) -> list[str] | None:
    """Return the controllers that the leader runs; None if it does not say."""
    names = leader_facts(lease).get("controllers")
    return None if names is None else [name for name in names.split(",") if name]


def seconds_since(text: str | None, now: datetime.datetime) -> float | None:
    """Return the seconds since a time; None for no time, and for text that is not an RFC 3339 time with a zone."""
    try:
        return (now - parse_time(text)).total_seconds() if text else None
    except (ValueError, TypeError, OverflowError):
        return None


def ago(text: str | None, now: datetime.datetime) -> str:
    seconds = seconds_since(text, now)
    if seconds is None:
        return "at an unknown time"
    for length, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"

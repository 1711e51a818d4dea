# SPDX-License-Identifier: Apache-2.0
"""`--feature-gates`: upstream's gates that concern a cloud-controller-manager."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client import Gauge

from .upstream_gates import UPSTREAM

log = logging.getLogger(__name__)
#: The values that upstream accepts (strconv.ParseBool), in upper or lower case.
_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class Gate(NamedTuple):
    stage: str
    default: bool
    help: str


WEBHOOK = "CloudControllerManagerWebhook"
KNOWN: Mapping[str, Gate] = {
    "CloudControllerManagerWatchBasedRoutesReconciliation": Gate(
        "ALPHA", True, "routes always follow watches, whatever the gate is set to"
    ),
    WEBHOOK: Gate("ALPHA", False, "serve the provider's admission webhooks"),
    "ControllerManagerReleaseLeaderElectionLockOnExit": Gate(
        "ALPHA", True, "the process always releases its Lease when it stops, whatever the gate is set to"
    ),
}

ENABLED = Gauge("kubernetes_feature_enabled", "Whether a feature gate is enabled.", ["name", "stage"])


def parse(text: str) -> dict[str, bool]:
    """Return the gates in a text such as "A=true,B=false". Raises ValueError with all problems."""
    gates: dict[str, object] = {}
    for item in (part.strip() for part in text.split(",")):
        if item:
            name, _, value = item.partition("=")
            gates[name.strip()] = _BOOLEANS.get(value.strip().lower(), value)
    return check(gates)


def check(gates: object) -> dict[str, bool]:
    """Check a mapping of gates, as in a configuration file, and return it. Raises ValueError with all problems."""
    if not isinstance(gates, dict):
        raise ValueError(f"{gates!r} is not a mapping of gates to true or false")
    problems = [f"unknown gate {name!r}" for name in gates if name not in KNOWN and name not in UPSTREAM]
    if problems:
        problems[-1] += f": known gates are {', '.join(KNOWN)}"
    problems += [
        f"{name}={value!s}: is neither true nor false" for name, value in gates.items() if type(value) is not bool
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return dict(gates)


def enabled(gates: Mapping[str, bool], name: str) -> bool:
    return gates.get(name, KNOWN[name].default)


def export(gates: Mapping[str, bool]) -> None:
    """Set `kubernetes_feature_enabled`, and warn of gates of upstream that have no meaning here."""
    if useless := sorted(gates.keys() & UPSTREAM):
        log.warning("feature gates without effect here: %s", ", ".join(useless))
    for name, gate in KNOWN.items():
        ENABLED.labels(name, gate.stage).set(enabled(gates, name))

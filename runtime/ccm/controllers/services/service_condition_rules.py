# SPDX-License-Identifier: Apache-2.0
"""Decide what the condition LoadBalancerWaiting of a Service says, and when it is written. No I/O.

A Service has no generation, so its condition has no observedGeneration.
"""

from __future__ import annotations

import re
from typing import Any

from ccm.base.text import printable, shorten
from ccm.engine.objects import Service, ServiceCondition

WAITING = "LoadBalancerWaiting"
#: Maximum characters of a message; the API server allows 32,768.
LONGEST = 1000
#: This sentence gives no exact time, because each try would then have to write the condition again.
NEXT_TRY = "The controller tries again by itself, within 5 minutes or when the cloud allows it."
#: Numbers, IDs, times and addresses: a message that differs only in these is no news.
_VARIABLE = re.compile(r"\S*\d\S*")


def shown(service: Service) -> ServiceCondition | None:
    """Return the condition `WAITING` of a Service, None if it has none."""
    return next((each for each in service.status.conditions if each.type == WAITING), None)


def appears(old: Service, new: Service) -> bool:
    """Return whether a change of a Service adds the condition `WAITING`."""
    return shown(old) is None and shown(new) is not None


def is_left_behind(service: Service) -> bool:
    """Return whether a Service has this condition, wants no load balancer any more, and is not being deleted.

    A Service with a class does not count, because the controller of the class may write a condition of the same name.
    """
    return (
        service.spec.type != "LoadBalancer"
        and not service.spec.load_balancer_class
        and service.metadata.deletion_timestamp is None
        and shown(service) is not None
    )


def is_news(before: ServiceCondition | None, after: ServiceCondition) -> bool:
    """Return whether the condition says something new to people."""
    if before is None or (before.status, before.reason) != (after.status, after.reason):
        return True
    return _VARIABLE.sub("#", before.message) != _VARIABLE.sub("#", after.message)


def waiting(before: ServiceCondition | None, reason: str, text: str, now: str) -> ServiceCondition:
    """Return the condition of a Service that waits: since `now`, or for as long as it has waited already."""
    since = before.last_transition_time if before is not None and before.status == "True" else None
    message = f"{printable(shorten(text, LONGEST)).rstrip('.')}. {NEXT_TRY}"
    return ServiceCondition(WAITING, "True", reason, message, since or now)


def set_patch(condition: ServiceCondition) -> dict[str, Any]:
    """Return the strategic merge patch that writes `condition` and no other one."""
    wire = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.last_transition_time,
    }
    return {"status": {"conditions": [wire]}}


def removal_patch() -> dict[str, Any]:
    """Return the strategic merge patch that removes the condition `WAITING` and no other one."""
    return {"status": {"conditions": [{"$patch": "delete", "type": WAITING}]}}

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Lease that allows one run at a time: who holds it, and whether another run may take it.

A run is an ansible-playbook process. It renews the Lease before each step that may take long. A Lease that was not renewed for its
duration is stale. If its process no longer exists on the same machine, the Lease is free at once, so that a killed run can be restarted.

Pure and stdlib-only: it takes the Lease as a dict from the API, and the API server's time.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.health import parse_time

NAME = "outoftree-ccm-run"

#: Annotation of the Lease with the machine, the process and its start as JSON. The same machine can check whether that run still exists.
ANNOTATION = "ccm.outoftree.dev/run"

CREATE, RENEW, TAKE, REFUSE = "create", "renew", "take", "refuse"


def decide(lease: Optional[Dict[str, Any]], holder: str, now: datetime, ended: str = "") -> str:
    """Return what a run may do with the Lease. C(ended) is the holder whose process is known to have ended, '' if there is none."""
    if lease is None:
        return CREATE
    current = holder_of(lease)
    if current == holder:
        return RENEW
    end = stale_at(lease)
    return TAKE if current in ("", ended) or end is None or now >= end else REFUSE


def holder_of(lease: Dict[str, Any]) -> str:
    return (lease.get("spec") or {}).get("holderIdentity") or ""


def stale_at(lease: Dict[str, Any]) -> Optional[datetime]:
    """Return when the Lease becomes stale, None if its renew time or its duration is missing."""
    spec = lease.get("spec") or {}
    renewed, duration = parse_time(spec.get("renewTime")), spec.get("leaseDurationSeconds")
    return renewed + timedelta(seconds=duration) if renewed and duration else None


def process_of(lease: Dict[str, Any]) -> Dict[str, Any]:
    """Return C(machine), C(pid) and C(start) of the holder's process, {} if the Lease does not have them."""
    noted = ((lease.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    try:
        process = json.loads(noted or "{}")
    except ValueError:
        return {}
    return process if isinstance(process, dict) else {}


def written(lease: Optional[Dict[str, Any]], action: str, holder: str, process: Dict[str, Any], duration: int, now: datetime) -> Dict[str, Any]:
    """Return the Lease to create, or the merge patch that renews or takes it."""
    spec: Dict[str, Any] = {"holderIdentity": holder, "renewTime": _micro(now), "leaseDurationSeconds": duration}
    metadata: Dict[str, Any] = {"annotations": {ANNOTATION: json.dumps(process, sort_keys=True)}}
    if action != RENEW:
        spec["acquireTime"] = _micro(now)
    if lease is not None:
        metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        if action == TAKE:
            spec["leaseTransitions"] = ((lease.get("spec") or {}).get("leaseTransitions") or 0) + 1
    return {"metadata": metadata, "spec": spec}


def refusal(lease: Dict[str, Any], name: str, now: datetime) -> str:
    """Return a message about who is changing the cluster, since when, and what to do."""
    spec = lease["spec"]
    end = stale_at(lease) or now
    renewed = parse_time(spec.get("renewTime")) or now
    return ("Nothing was changed: another run, {0}, has been changing this cluster since {1}. It renewed its Lease {2:.0f} s ago. Wait until it "
            "ends. If it no longer runs, remove its Lease ('kubectl -n kube-system delete lease {3}'), or wait until {4}, when the Lease "
            "is stale".format(holder_of(lease), _second(parse_time(spec.get("acquireTime")) or renewed),
                              max(0.0, (now - renewed).total_seconds()), name, _second(end)))


def _micro(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _second(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

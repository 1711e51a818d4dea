# SPDX-License-Identifier: Apache-2.0
"""Record holder and named controllers of each Lease in kube-system: watch_leases.py KUBECONFIG RESULT STOP

Looks four times a second until the file STOP exists, at most for half an hour. RESULT gets
{"ended": "asked to" or "time", "seen": [...]}. `seen` has an entry for each state of a Lease: {"lease": NAME,
"holder": ID, "controllers": TEXT, "acquired": TIME, "first": TIME, "last": TIME}. Times are seconds since 1970 by the
holder's clock; `last` is the last renewal.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from kubernetes import client, config

INTERVAL, LONGEST = 0.25, 1800.0
ANNOTATION = "ccm.outoftree.dev/controllers"


def seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0


def note(seen: list[dict[str, Any]], lease: Any) -> None:
    """Add a new state of a Lease; a renewal of a known state only moves the end of that state."""
    fact = {
        "lease": lease.metadata.name,
        "holder": lease.spec.holder_identity or "",
        "controllers": (lease.metadata.annotations or {}).get(ANNOTATION, ""),
        "acquired": seconds(lease.spec.acquire_time),
    }
    renewed = seconds(lease.spec.renew_time)
    known = next((item for item in reversed(seen) if item["lease"] == fact["lease"]), None)
    if known is None or any(known[key] != value for key, value in fact.items()):
        seen.append({**fact, "first": renewed, "last": renewed})
    else:
        known["last"] = max(known["last"], renewed)


def main(kubeconfig: str, result: str, stop: str) -> None:
    config.load_kube_config(kubeconfig)
    api = client.CoordinationV1Api()
    seen: list[dict[str, Any]] = []
    begun = time.monotonic()
    while not Path(stop).exists() and time.monotonic() - begun < LONGEST:
        try:
            for lease in api.list_namespaced_lease("kube-system", _request_timeout=3).items:
                note(seen, lease)
        except Exception as error:  # the API server restarts, too
            print(f"{time.time():.1f} {type(error).__name__}: {error}"[:200], file=sys.stderr)
        time.sleep(INTERVAL)
    ended = "asked to" if Path(stop).exists() else "time"
    Path(result).write_text(json.dumps({"ended": ended, "seen": seen}, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

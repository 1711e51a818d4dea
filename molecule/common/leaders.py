# SPDX-License-Identifier: Apache-2.0
"""Record who leads, and when two lead at a time: leaders.py RESULT STOP_FILE KUBECONFIG OLD NEW

OLD and NEW are the names of two workloads. The Lease of NEW is `cloud-controller-manager`. The Lease of OLD must be
named OLD, or be the same one. The recording ends when STOP_FILE exists, at the latest after half an hour. RESULT gets
{"looks": N, "ended": "asked to" or "time", "both": [time, ...], "holders": {LEASE: [holder, ...]}}.

`both`: when both Leases were held while Pods of both workloads ran; always empty if OLD and NEW share a Lease.
`holders`: who held each Lease, in order.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from load import api_server

INTERVAL, LONGEST = 0.5, 1800.0


def running(pods: list[dict[str, Any]], workload: str) -> bool:
    return any(
        pod["metadata"]["name"].startswith(workload + "-")
        and any((status.get("state") or {}).get("running") for status in pod["status"].get("containerStatuses") or [])
        for pod in pods
    )


def held(lease: dict[str, Any]) -> bool:
    spec = lease["spec"]
    if not spec.get("holderIdentity"):
        return False
    renewed = datetime.datetime.strptime(spec["renewTime"], "%Y-%m-%dT%H:%M:%S.%f%z")
    return (datetime.datetime.now(datetime.UTC) - renewed).total_seconds() < spec["leaseDurationSeconds"]


def main(result: Path, stop: Path, kubeconfig: Path, old: str, new: str) -> None:
    server, context = api_server(kubeconfig)

    def items(path: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(server + path, timeout=5, context=context) as answer:
            found: list[dict[str, Any]] = json.load(answer)["items"]
            return found

    looks, both = 0, []
    holders: dict[str, list[str]] = {}
    started = time.monotonic()
    while not stop.exists() and time.monotonic() - started < LONGEST:
        try:
            leases = items("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
            pods = items("/api/v1/namespaces/kube-system/pods")
        except (OSError, urllib.error.URLError):
            continue
        live = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in leases if held(lease)}
        for name in {old, "cloud-controller-manager"} & live.keys():
            if live[name] not in holders.setdefault(name, [])[-1:]:
                holders[name].append(live[name])
        if {old, "cloud-controller-manager"} <= live.keys() and running(pods, old) and running(pods, new):
            both.append(time.strftime("%H:%M:%S"))
        looks += 1
        time.sleep(INTERVAL)
    ended = "asked to" if stop.exists() else "time"
    report = {"looks": looks, "ended": ended, "both": both, "holders": holders}
    result.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5])

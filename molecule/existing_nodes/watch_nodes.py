# SPDX-License-Identifier: Apache-2.0
"""Record in which order Nodes get and lose the taint "uninitialized": watch_nodes.py RESULT STOP_FILE KUBECONFIG

Uses a watch, so that it misses no change. Ends when STOP_FILE exists, at most after half an hour. RESULT gets
{"most_at_once": N, "ended": "asked to" or "time", "history": [["NODE", "tainted" or "free"], ...]}.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))

from load import api_server

TAINT = "node.cloudprovider.kubernetes.io/uninitialized"
LONGEST, STRETCH = 1800.0, 2


class Record:
    def __init__(self) -> None:
        self.tainted: set[str] = set()
        self.most = 0
        self.history: list[tuple[str, str]] = []

    def see(self, kind: str, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        now = kind != "DELETED" and any(taint["key"] == TAINT for taint in node["spec"].get("taints") or [])
        if now != (name in self.tainted):
            self.history.append((name, "tainted" if now else "free"))
        (self.tainted.add if now else self.tainted.discard)(name)
        self.most = max(self.most, len(self.tainted))


def main(result: Path, stop: Path, kubeconfig: Path) -> None:
    server, context = api_server(kubeconfig)
    nodes = f"{server}/api/v1/nodes"
    record = Record()
    with urllib.request.urlopen(nodes, timeout=10, context=context) as answer:
        listing = json.load(answer)
    version = listing["metadata"]["resourceVersion"]
    for node in listing["items"]:
        record.see("ADDED", node)
    started = time.monotonic()
    while not stop.exists() and time.monotonic() - started < LONGEST:
        # The server closes each watch after STRETCH seconds, so that no event is cut in two.
        url = f"{nodes}?watch=true&allowWatchBookmarks=true&timeoutSeconds={STRETCH}&resourceVersion={version}"
        with urllib.request.urlopen(url, timeout=STRETCH + 30, context=context) as events:
            for line in events:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise SystemExit(f"the watch has a gap: {event['object']}")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    record.see(event["type"], event["object"])
    ended = "asked to" if stop.exists() else "time"
    report = {"most_at_once": record.most, "ended": ended, "history": record.history}
    result.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))

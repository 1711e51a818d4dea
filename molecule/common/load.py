# SPDX-License-Identifier: Apache-2.0
"""Send requests to an address all the time, and count failures: load.py URL RESULT STOP_FILE [KUBECONFIG]

Sends ten requests a second, each on a new connection, until STOP_FILE exists, at most for half an hour. With a
KUBECONFIG, the URL is a path of the API server, and requests have that file's client certificate. RESULT gets
{"requests": N, "seconds": S, "ended": "asked to" or "time", "failures": [...], "by_node": {...}}; `by_node` counts the
answers by the last part of their text, "node=NAME". "time" means that the half hour was over before STOP_FILE existed.
"""

from __future__ import annotations

import base64
import collections
import json
import ssl
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

INTERVAL, TIMEOUT, LONGEST = 0.1, 3.0, 1800.0


def api_server(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """Return the API server's address, and a TLS context with the client certificate of the kubeconfig."""
    import yaml

    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    return cluster["server"], context


def main(url: str, result: Path, stop: Path, kubeconfig: Path | None) -> None:
    context = None
    if kubeconfig is not None:
        server, context = api_server(kubeconfig)
        url = server + url
    started = time.monotonic()
    requests, failures = 0, []
    by_node: collections.Counter[str] = collections.Counter()
    while not stop.exists() and time.monotonic() - started < LONGEST:
        begun = time.monotonic()
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT, context=context) as answer:
                by_node[answer.read().decode().rpartition("node=")[2].strip()[:63]] += 1
        except OSError as error:
            failures.append(f"{time.strftime('%H:%M:%S')} {error}")
        requests += 1
        time.sleep(max(0.0, INTERVAL - (time.monotonic() - begun)))
    seconds, ended = round(time.monotonic() - started), "asked to" if stop.exists() else "time"
    report = {"requests": requests, "seconds": seconds, "ended": ended, "failures": failures, "by_node": by_node}
    result.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]) if len(sys.argv) > 4 else None)

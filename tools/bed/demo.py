# SPDX-License-Identifier: Apache-2.0
"""`make demo`: migrates a live cluster without cloud integration to an external cloud provider, while you watch.

It starts a cluster of the test bed with leftovers of an old integration, runs `site.yml` against it, puts a small app
behind a Service of type LoadBalancer, and shows what changed. `make demo-down` removes everything.
"""

from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAME = "demo"
STATE = ROOT / "build" / "bed" / NAME
REQUESTS = 40
STARTED = time.monotonic()


def say(text: str) -> None:
    print(
        f"\n\033[1m== {text}\033[0m  ({time.monotonic() - STARTED:.0f} s)"
        if sys.stdout.isatty()
        else f"\n== {text}  ({time.monotonic() - STARTED:.0f} s)",
        flush=True,
    )


def bed(*arguments: str, quiet: bool = False) -> str:
    """Run a command of the bed. If `quiet`, return its standard output; otherwise show that, and return ""."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools" / "bed")}
    done = subprocess.run(
        [sys.executable, "-m", "bed", *arguments],
        check=True,
        env=environment,
        text=True,
        stdout=subprocess.PIPE if quiet else None,
    )
    return (done.stdout or "").strip()


class Cluster:
    def __init__(self) -> None:
        self.state: dict[str, Any] = json.loads((STATE / "state.json").read_text())
        self.kubectl_path = f"{bed('binaries', quiet=True)}/kubectl"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        command = [self.kubectl_path, "--kubeconfig", str(STATE / "kubeconfig"), *arguments]
        return subprocess.run(command, check=True, input=stdin, capture_output=True, text=True).stdout

    def nodes(self) -> str:
        """Return a table of what a cloud-controller-manager fills in, one line for each Node."""
        rows = [("NODE", "READY", "CLOUD TAINT", "PROVIDER ID", "ADDRESSES", "ZONE", "REGION", "TYPE")]
        for node in json.loads(self.kubectl("get", "nodes", "-o", "json"))["items"]:
            labels = node["metadata"]["labels"]
            taints = [taint["key"] for taint in node["spec"].get("taints", [])]
            rows.append(
                (
                    node["metadata"]["name"],
                    next((c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"), "Unknown"),
                    "uninitialized" if "node.cloudprovider.kubernetes.io/uninitialized" in taints else "-",
                    node["spec"].get("providerID", "-"),
                    ",".join(a["address"] for a in node["status"].get("addresses", []) if a["type"] != "Hostname"),
                    labels.get("topology.kubernetes.io/zone", "-"),
                    labels.get("topology.kubernetes.io/region", "-"),
                    labels.get("node.kubernetes.io/instance-type", "-"),
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )

    def wait_for_address(self, service: str, seconds: float = 60) -> str:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            address = self.kubectl(
                "get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}"
            ).strip()
            if address:
                return address
            time.sleep(0.5)
        raise SystemExit(
            f"Service {service} got no external address within {seconds:.0f} s: see kubectl describe service"
        )


def get(url: str, timeout: float = 5) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        return str(answer.read().decode())


def first_answer(url: str, seconds: float = 30) -> None:
    """Wait until the URL answers: load balancers are ready before every target has passed its first health check.
    Raises the last error after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            get(url)
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def main() -> int:
    say("A cluster without cloud integration, with leftovers of an old one")
    bed("down", "--name", NAME)  # a bed from an earlier run has been migrated already
    bed("up", "--name", NAME, "--leftovers")
    cluster = Cluster()
    before = cluster.nodes()
    print(before)

    say("ansible-playbook site.yml")
    inventory = str(STATE / "inventory.yml")
    playbook = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", inventory, "site.yml"]
    print("$", "ansible-playbook -i", os.path.relpath(inventory, ROOT), "site.yml", flush=True)
    subprocess.run(playbook, check=True, cwd=ROOT)

    say("An app behind a Service of type LoadBalancer")
    cluster.kubectl("apply", "-f", "-", stdin=(ROOT / "tools" / "bed" / "app.yaml").read_text())
    cluster.kubectl("rollout", "status", "deployment/hello", "--timeout=90s")
    address = cluster.wait_for_address("hello")
    url = f"http://{address}/"
    first_answer(url)
    print("$ curl", url)
    print(get(url).strip())
    by_node = collections.Counter(get(url).rpartition("node=")[2].strip() for _ in range(REQUESTS))
    print(
        f"{REQUESTS} requests to {address} were answered by: "
        + ", ".join(f"{n} x {k}" for k, n in sorted(by_node.items()))
    )

    say("Nodes before")
    print(before)
    say("Nodes after")
    print(cluster.nodes())

    say("Calls to the cloud's API since the cluster was raised")
    summary = json.loads(get(f"{cluster.state['cloud_endpoint']}/admin/journal/summary"))
    for operation, count in sorted(summary["operations"].items()):
        print(f"  {operation:<28}{count:>5}")
    if len(by_node) < 2:
        print("the answers came from one node only, although the app runs on both", file=sys.stderr)
        return 1
    say("Done")
    kubeconfig = os.path.relpath(STATE / "kubeconfig", ROOT)
    kubectl = cluster.kubectl_path.replace(f"{Path.home()}/", "~/")
    print(f"{kubectl} --kubeconfig {kubeconfig} get nodes")
    print("make demo-down                                 removes everything")
    return 0


if __name__ == "__main__":
    sys.exit(main())

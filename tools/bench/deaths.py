# SPDX-License-Identifier: Apache-2.0
"""How long a Pod with a volume takes to run elsewhere after its machine has died, step by step.

Needs the cluster of `molecule/dead_machines` after its playbook `shut_down.yml`:

    molecule converge --scenario-name dead_machines
    molecule side-effect --scenario-name dead_machines
    python3 -m tools.bench.deaths --deaths 5

Each death kills the Pod's machine without a warning, and the cloud reports the machine as shut down. The machine comes
back before the next death.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubernetes import client, config

BED = Path(__file__).parents[2] / "build/bed/molecule-dead"
DRIVER = "volumes.bed.outoftree.dev"
TAINT = "node.kubernetes.io/out-of-service"
#: Each step ends when its predicate holds. The order is that of the events.
STEPS = ("NotReady", "taint", "Pod deleted by its taint", "Pod gone", "detached", "attached", "Ready elsewhere")
#: Seconds between two looks at the API server, and until a step counts as failed.
LOOK, DEADLINE = 0.1, 600.0


class Bed:
    def __init__(self) -> None:
        self.state = json.loads((BED / "state.json").read_text())
        config.load_kube_config(str(BED / "kubeconfig"))
        self.core, self.storage = client.CoreV1Api(), client.StorageV1Api()

    def cloud(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self.state['cloud_endpoint']}/v1/projects/demo/instances{path}"
        headers = {"Authorization": "Bearer demo-token", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=10) as answer:
            return json.load(answer)

    def pod(self) -> Any:
        """Return the Pod, or None while there is none."""
        return next(iter(self.core.list_namespaced_pod("default", field_selector="metadata.name=ledger-0").items), None)

    def attachments(self) -> dict[str, bool]:
        """Return, for each machine that has the volume, whether it is attached."""
        found = self.storage.list_volume_attachment().items
        return {each.spec.node_name: bool(each.status and each.status.attached) for each in found}

    def is_fenced(self, machine: str) -> bool:
        return any(taint.key == TAINT for taint in self.core.read_node(machine).spec.taints or [])


def is_ready(thing: Any) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in (thing and thing.status.conditions) or [])


def wait(condition: Callable[[], bool]) -> float:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("a step took more than ten minutes")
        time.sleep(LOOK)
    return time.monotonic()


def die(bed: Bed) -> tuple[str, list[float]]:
    """End the Pod's machine. Return its name, and for each step the seconds since the death."""
    old = bed.pod()
    machine, uid = old.spec.node_name, old.metadata.uid
    (instance,) = bed.cloud("GET", f"?name={machine}")["items"]
    subprocess.run(["podman", "kill", machine], check=True, capture_output=True)
    died = time.monotonic()
    bed.cloud("PATCH", f"/{instance['id']}", {"state": "stopped"})

    def is_new(pod: Any) -> bool:
        return pod is not None and pod.metadata.uid != uid

    steps: list[Callable[[], bool]] = [
        lambda: not is_ready(bed.core.read_node(machine)),
        lambda: bed.is_fenced(machine),
        lambda: (pod := bed.pod()) is None or is_new(pod) or pod.metadata.deletion_timestamp is not None,
        lambda: (pod := bed.pod()) is None or is_new(pod),
        lambda: machine not in bed.attachments(),
        lambda: any(bed.attachments().values()),
        lambda: is_new(pod := bed.pod()) and is_ready(pod),
    ]
    return machine, [wait(step) - died for step in steps]


def come_back(bed: Bed, machine: str) -> None:
    (instance,) = bed.cloud("GET", f"?name={machine}")["items"]
    subprocess.run(["podman", "start", machine], check=True, capture_output=True)
    bed.cloud("PATCH", f"/{instance['id']}", {"state": "running"})
    plugins = "/var/lib/kubelet/plugins"
    command = f"/usr/local/bin/csi-driver --node={machine} --socket={plugins}/{DRIVER}/csi.sock"
    registers = f"--registers={plugins}_registry/{DRIVER}-reg.sock"
    wait(lambda: is_ready(bed.core.read_node(machine)))
    run = ["podman", "exec", machine, "systemd-run", "--unit=csi-driver", *command.split(), registers]
    subprocess.run(run, check=True, capture_output=True)
    wait(lambda: not bed.is_fenced(machine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=int, default=5)
    bed = Bed()
    deaths = []
    for _ in range(parser.parse_args().deaths):
        wait(lambda: is_ready(bed.pod()))
        machine, moments = die(bed)
        deaths.append(moments)
        print(machine, " ".join(f"{moment:.1f}" for moment in moments), flush=True)
        come_back(bed, machine)
    print(f"\n{'seconds':28} {'min':>6} {'median':>6} {'max':>6}")
    for number, step in enumerate(STEPS):
        took = [moments[number] - (moments[number - 1] if number else 0.0) for moments in deaths]
        print(f"{step:28} {min(took):6.1f} {statistics.median(took):6.1f} {max(took):6.1f}")
    whole = [moments[-1] for moments in deaths]
    print(f"{'the whole':28} {min(whole):6.1f} {statistics.median(whole):6.1f} {max(whole):6.1f}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""`make demo-faults`: breaks the cluster of `make demo` in ten ways, one after the other, and runs `ccm` each time.

For each fault it prints what `ccm explain`, `doctor` and `plan` and the controller's status page say, checks that these
contain the words that docs/how-to/answers.md quotes, applies the fix, and waits until `ccm plan` has nothing to do.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo import NAME, ROOT, STATE, Cluster, say

PAGE = ROOT / "docs/how-to/answers.md"
CCM = Path(sys.executable).parent / "ccm"
ASKED = ("explain", "doctor", "plan", "page")
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
#: (fault, command) -> the texts that the command shows on the demo's cluster instead of those that
#: docs/how-to/answers.md quotes: in the demo, the controller already runs when the fault happens.
OTHERWISE = {
    ("Wrong credentials", "page"): ["! The cloud has failed for", "401 unauthorized"],
    ("Quota", "plan"): ["create  default/web  a load balancer is created, with 2 Nodes behind it"],
    ("Half-made load balancer", "explain"): [
        "failed in the cloud",
        "a load balancer that failed in the cloud is replaced",
    ],
    # The controller notices the failed load balancer at the next audit, or when the Service or a Node changes.
    ("Half-made load balancer", "page"): ["Everything is as it should be."],
    ("Another controller", "explain"): ["status.addresses: InternalIP 192.0.2.9 -> "],
}


class Fault(Exception):
    """The fault could not be made or fixed."""


class Demo(Cluster):
    """The cluster of `make demo`, its cloud, and the commands of a person on call."""

    def __init__(self) -> None:
        if not (STATE / "state.json").exists():
            raise SystemExit("there is no demo: run `make demo` first")
        super().__init__()
        worker = next(node for node in self.state["plan"]["nodes"] if not node["control_plane"])
        self.worker, self.zone = worker["name"], worker["zone"]
        self.about = ("node", self.worker)
        self.conf = STATE / "on-call.conf"
        settings = {"endpoint": self.state["cloud_endpoint"], "project": "demo", "token": "demo-token"}
        settings["request_timeout"] = 5
        self.conf.write_text(json.dumps(settings))

    def cloud(self, method: str, path: str, body: Any = None) -> Any:
        """Call the simulated cloud, or its admin API, and return the decoded answer; None if it is empty."""
        headers = {"Authorization": "Bearer demo-token", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.state['cloud_endpoint']}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def instances(self, name: str = "") -> list[dict[str, Any]]:
        return list(self.cloud("GET", f"/v1/projects/demo/instances?name={name}")["items"])

    def change_instance(self, instance: str, **fields: Any) -> None:
        self.cloud("PATCH", f"/v1/projects/demo/instances/{instance}", fields)

    def fault(self, **rule: Any) -> None:
        self.cloud("POST", "/admin/faults", [rule])

    def ask(self, *command: str) -> str:
        """Return what a `ccm` command prints, and its exit status."""
        flags = [
            "--cloud-provider=sim",
            f"--cloud-config={self.conf}",
            f"--kubeconfig={STATE / 'kubeconfig'}",
            "--cluster-cidr=10.244.0.0/16",
            f"--cluster-name={NAME}",
        ]
        done = subprocess.run([CCM, *command, *flags], capture_output=True, text=True, timeout=120)
        return f"{done.stdout}{done.stderr}exit status {done.returncode}"

    def answers(self) -> dict[str, str]:
        commands = {"explain": ("explain", *self.about), "doctor": ("doctor",), "plan": ("plan",), "page": ("status",)}
        return {name: self.ask(*command) for name, command in commands.items()}

    def nothing_is_left(self) -> bool:
        return "exit status 0" in self.ask("plan")

    def register_again(self, provider_id: str = "") -> None:
        """Create the worker's Node again, as when its machine joins: with the taint, and `provider_id` if given."""
        self.kubectl("delete", "node", self.worker)
        if provider_id:
            spec = {"providerID": provider_id, "taints": [TAINT]}
            labels = {"kubernetes.io/hostname": self.worker}
            node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.worker, "labels": labels},
                "spec": spec,
            }
            self.kubectl("create", "-f", "-", stdin=json.dumps(node))
        subprocess.run(["podman", "exec", self.worker, "systemctl", "restart", "kubelet"], check=True)
        self.kubectl("wait", "--for=create", f"node/{self.worker}", "--timeout=60s")
        self.kubectl("wait", "--for=condition=Ready", f"node/{self.worker}", "--timeout=90s")

    def service(self) -> None:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "hello"}}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        self.about = ("service", "default/web")


@contextmanager
def no_instance(demo: Demo) -> Iterator[None]:
    (instance,) = demo.instances(demo.worker)
    demo.change_instance(instance["id"], name=demo.worker.replace("worker-1", "worker-01"))
    demo.register_again()
    yield
    demo.change_instance(instance["id"], name=demo.worker)


@contextmanager
def two_of_one_name(demo: Demo) -> Iterator[None]:
    made = demo.cloud("POST", "/v1/projects/demo/instances", {"name": demo.worker, "type": "small", "zone": demo.zone})
    demo.register_again()
    yield
    demo.cloud("DELETE", f"/v1/projects/demo/instances/{made['id']}")


@contextmanager
def wrong_zone_label(demo: Demo) -> Iterator[None]:
    (instance,) = demo.instances(demo.worker)
    demo.change_instance(instance["id"], zone="north-b" if demo.zone == "north-a" else "north-a")
    yield
    demo.change_instance(instance["id"], zone=demo.zone)


@contextmanager
def foreign_provider_id(demo: Demo) -> Iterator[None]:
    demo.register_again("k3s://worker-1")
    yield
    demo.register_again()


@contextmanager
def quota(demo: Demo) -> Iterator[None]:
    made = len(demo.cloud("GET", "/v1/projects/demo/load-balancers")["items"])
    demo.cloud("PATCH", "/admin/quotas", {"load_balancers": made})
    demo.service()
    yield
    demo.cloud("PATCH", "/admin/quotas", {"load_balancers": None})


@contextmanager
def wrong_credentials(demo: Demo) -> Iterator[None]:
    demo.cloud("PUT", "/admin/projects/demo/token", {"token": "tomorrows-token"})
    demo.cloud("DELETE", "/admin/tokens")
    demo.register_again()
    yield
    demo.cloud("PUT", "/admin/projects/demo/token", {"token": "demo-token"})


@contextmanager
def cloud_away(demo: Demo) -> Iterator[None]:
    demo.fault(action="hang_up")
    demo.register_again()
    yield
    demo.cloud("DELETE", "/admin/faults")


@contextmanager
def throttled(demo: Demo) -> Iterator[None]:
    listings = {"operation": "instances.*"}
    demo.fault(action="rate_limit", per_second=0.001, burst=1, retry_after=20, match=listings)
    demo.instances()  # somebody else's call
    demo.register_again()
    yield
    demo.cloud("DELETE", "/admin/faults")


@contextmanager
def half_made_load_balancer(demo: Demo) -> Iterator[None]:
    demo.service()
    demo.wait_for_address("web")
    balancers = demo.cloud("GET", "/v1/projects/demo/load-balancers")["items"]
    uid = demo.kubectl("get", "service", "web", "-o", "jsonpath={.metadata.uid}")
    (mine,) = [each["id"] for each in balancers if uid in json.dumps(each)]
    demo.cloud("POST", f"/admin/projects/demo/load-balancers/{mine}/break")
    yield
    demo.kubectl("patch", "service", "web", '--patch={"spec": {"ports": [{"port": 80, "name": "http"}]}}')


@contextmanager
def another_controller(demo: Demo) -> Iterator[None]:
    name = "openstack-cloud-controller-manager"
    container = {"name": "c", "image": f"registry.k8s.io/provider-os/{name}:v1.33.0"}
    labels = {"app": name}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeSelector": labels}},
    }
    meta = {"name": name, "namespace": "kube-system"}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": spec}
    demo.kubectl("create", "-f", "-", stdin=json.dumps(body))
    wrong = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}
    patch = ("patch", "node", demo.worker, "--subresource=status", "--type=merge", f"--patch={json.dumps(wrong)}")
    time.sleep(2)  # times of managedFields are whole seconds
    demo.kubectl(*patch, f"--field-manager={name}")
    yield
    demo.kubectl("delete", "daemonset", name, "--namespace=kube-system")
    demo.register_again()


FAULTS: dict[str, Callable[[Demo], Any]] = {
    "No instance": no_instance,
    "Two instances of one name": two_of_one_name,
    "Wrong zone label": wrong_zone_label,
    "Foreign providerID": foreign_provider_id,
    "Quota": quota,
    "Wrong credentials": wrong_credentials,
    "Cloud away": cloud_away,
    "Throttled": throttled,
    "Half-made load balancer": half_made_load_balancer,
    "Another controller": another_controller,
}


def quoted(demo: Demo, fault: str) -> dict[str, list[str]]:
    """Return what the page quotes of each command's output, with the names of this cluster."""
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {fault} |")]
    cells = line.strip("|").split(" | ")[1:5]
    words = {name: re.findall(r"`([^`]+)`", cell) for name, cell in zip(ASKED, cells, strict=True)}
    words |= {name: text for (about, name), text in OTHERWISE.items() if about == fault}
    other = "north-b" if demo.zone == "north-a" else "north-a"

    def here(text: str) -> str:
        text = re.sub(r"(?<!://)worker-", demo.worker.removesuffix("1"), text)
        text = text.replace("zone is 'north-a'", f"zone is '{demo.zone}'")
        return text.replace("value is 'north-b'", f"value is '{other}'")

    return {name: [here(text) for text in texts] for name, texts in words.items()}


def eventually(check: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise Fault(f"not within {seconds:.0f} s: {what}")
        time.sleep(1)


def missing(demo: Demo, fault: str, seconds: float = 45) -> tuple[dict[str, str], list[str]]:
    """Wait until the commands say what the page quotes; return their output, and the quotes that are still missing."""
    deadline = time.monotonic() + seconds
    while True:
        said = demo.answers()
        # The width of a column depends on the names in it: compare with two spaces between columns, as on the page.
        flat = {name: re.sub(r" {2,}", "  ", text) for name, text in said.items()}
        words = [(name, text) for name, texts in quoted(demo, fault).items() for text in texts]
        absent = [f"{name}: {text}" for name, text in words if text not in flat[name]]
        if not absent or time.monotonic() > deadline:
            return said, absent
        time.sleep(2)


def main(chosen: list[str]) -> int:
    if unknown := set(chosen) - set(FAULTS):
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}. There are: {', '.join(FAULTS)}")
    demo = Demo()
    eventually(demo.nothing_is_left, 60, "ccm plan has nothing to do")
    failed = []
    for fault, make in FAULTS.items():
        if chosen and fault not in chosen:
            continue
        say(fault)
        demo.about = ("node", demo.worker)
        with make(demo):
            said, absent = missing(demo, fault)
        for name, text in said.items():
            print(f"\n--- {' '.join(('ccm', name, *(demo.about if name == 'explain' else ())))}\n{text}")
        for line in absent:
            print(f"NOT SAID  {line}")
        eventually(demo.nothing_is_left, 120, f"{fault}: ccm plan has nothing left to do after the fix")
        failed += [fault] if absent else []
        demo.kubectl("delete", "service", "web", "--ignore-not-found")
    say("Done")
    of = len(chosen or FAULTS)
    print(f"{of - len(failed)} of {of} faults: every word of docs/how-to/answers.md was said")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

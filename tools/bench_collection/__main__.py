# SPDX-License-Identifier: Apache-2.0
"""`make bench-collection`: preflight, site, a second site and a rollback over many hosts, with what each costs.

The playbooks, roles, modules and filters are real, and so are kube-apiserver and etcd. Workers are simulated
(`farm.py`), and so are kubelets and the programs that run in the cluster (`simulator.py`). `--checkout` measures
another checkout, for a comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.integration.cluster import ApiServer
from tests.integration.collection.machine import Machine
from tools.packaging import environments

from . import farm, page
from .simulator import Simulator, inventory

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "tests" / "unit" / "plugins" / "fixtures"
#: How the header of the play that initialises the Nodes begins.
ADOPTION = "PLAY [Adopt "
#: The Python on which --core measures. Every supported ansible-core runs on it.
PYTHON = "3.12"
STEPS = tuple((step, step.removeprefix("second ")) for step in page.ORDER)


def worker_files(port: int) -> dict[str, str]:
    """Return the files of a kubeadm worker whose kubelet serves its health on this port."""
    units = "/usr/lib/systemd/system/"
    return {
        f"{units}kubelet.service": (FIXTURES / "kubelet" / "kubelet.service").read_text(),
        f"{units}kubelet.service.d/10-kubeadm.conf": (FIXTURES / "kubelet" / "10-kubeadm.conf").read_text(),
        "/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1"\n',
        "/var/lib/kubelet/config.yaml": f"kind: KubeletConfiguration\nhealthzPort: {port}\n",
        "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--cloud-provider=\n",
    }


def control_plane_files() -> dict[str, str]:
    root = FIXTURES / "systemd" / "control-plane"
    return {f"/{path.relative_to(root)}": path.read_text() for path in root.rglob("*") if path.is_file()}


def start_farm(folder: Path, checkout: Path, ansible: Path) -> subprocess.Popen[bytes]:
    """Start the process that answers for the workers below `folder`, with the checkout's modules.

    That process imports once, for all workers, what modules need from ansible-core, so it must use the same
    ansible-core that sends the modules.
    """
    collections = checkout / "build" / "collections"
    started = subprocess.Popen(
        [ansible / "python", "-m", "tools.bench_collection.farm", str(folder), str(collections)],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
    )
    if started.stdout is None or started.stdout.readline() != b"ready\n":
        raise RuntimeError("the farm did not start")
    return started


def version_of(ansible: Path) -> str:
    """Return the version of the Python in this folder, such as 3.12."""
    asked = [ansible / "python", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


async def play(
    ansible: Path, checkout: Path, book: str, inventory_file: Path, values: dict[str, Any], forks: int, log: Path
) -> dict[str, Any]:
    """Run a playbook as a person would; return its seconds, CPU seconds, lines and exit status, and the seconds of
    adoption if it adopts Nodes. `ansible`: the folder that has ansible-playbook."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_"))}
    environment |= {
        "ANSIBLE_CONFIG": str(checkout / "ansible.cfg"),
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "PYTHONPYCACHEPREFIX": str(REPOSITORY / "build" / "pycache"),
    }
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    plays: list[tuple[str, float]] = []
    lines = 0
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            ansible / "ansible-playbook",
            f"playbooks/{book}.yml",
            "-i",
            str(inventory_file),
            "--forks",
            str(forks),
            "-e",
            json.dumps(values),
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            limit=1 << 24,
        )
        assert process.stdout is not None
        async for line in process.stdout:
            out.write(line)
            lines += 1
            if line.startswith(b"PLAY "):
                plays.append((line.decode(), time.monotonic()))
        status = await process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = round(time.monotonic() - begun, 1)
    found = {"seconds": seconds, "cpu": round(cpu, 1), "lines": lines, "status": status}
    for (name, start), (_, end) in itertools.pairwise(plays):
        if name.startswith(ADOPTION):
            found["adoption"] = round(end - start, 1)
    return found


async def measure(ansible: Path, checkout: Path, count: int, steps: list[str], forks: int) -> list[dict[str, Any]]:
    """Run the steps over one control plane and `count` workers."""
    folder = Path(tempfile.mkdtemp(prefix="bench-collection-"))
    logs = REPOSITORY / "build" / "bench-collection"
    logs.mkdir(parents=True, exist_ok=True)
    health = farm.health_server()
    (folder / "api").mkdir()
    server = ApiServer(folder / "api")
    hosts = None
    results = []
    try:
        workers = {
            name: farm.build(folder / name, name, worker_files(health.server_port), folder / "farm")
            for name in (f"w-{number:04}" for number in range(1, count + 1))
        }
        plane = Machine(folder / "cp-1", control_plane_files())
        hosts = start_farm(folder, checkout, ansible)
        async with Simulator(server, folder) as simulator:
            for name in ("cp-1", *workers):
                await simulator.create_node(name)
            simulator.start()
            path = inventory(folder, str(plane.folder / "python"), workers)
            values = {
                "ccm_install_kubeconfig": str(server.kubeconfig()),
                "ccm_install_provider_id_prefix": "sim://",
                "ccm_runtime_cloud_provider": "sim",
                "ccm_runtime_image": "bench",
                "ccm_runtime_command": ["/bin/ccm"],
                "ccm_install_summary_file": str(folder / "summary.json"),
                "ccm_install_report_file": str(folder / "report.html"),
            }
            for step, book in STEPS:
                if step not in steps:
                    continue
                log = logs / f"{step.replace(' ', '-')}-{count}.log"
                found = await play(ansible, checkout, book, path, values, forks, log)
                results.append({"step": step, "hosts": count, **found})
                print(
                    f"{step} over {count} workers: {found['seconds']} s, {found['cpu']} s CPU, {found['lines']} lines"
                )
                if (folder / "report.html").exists():
                    shutil.copy(folder / "report.html", log.with_suffix(".html"))
                if found["status"]:
                    raise SystemExit(f"{step} failed with exit status {found['status']}: see {log}")
    finally:
        if hosts is not None:
            hosts.kill()
            hosts.wait()
        server.close()
        health.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench-collection", description="Measure the playbooks over many hosts.")
    parser.add_argument("--hosts", default="50,200,1000", help="Numbers of workers, with commas between them.")
    parser.add_argument("--steps", default=",".join(step for step, _ in STEPS), help="Which of the steps to run.")
    parser.add_argument("--checkout", default=str(REPOSITORY), help="Checkout whose playbooks are measured.")
    parser.add_argument("--keep", default="", help="Name under which the figures are kept for the page.")
    parser.add_argument("--forks", type=int, default=10, help="Number of hosts at a time, as Ansible's forks.")
    parser.add_argument(
        "--core", default="", help=f"Release of ansible-core to measure with, such as 2.18, on Python {PYTHON}."
    )
    options = parser.parse_args()
    ansible = environments.environment(options.core, PYTHON) / "bin" if options.core else Path(sys.executable).parent
    load = os.getloadavg()[0]
    runs: list[dict[str, Any]] = []
    for count in options.hosts.split(","):
        runs += asyncio.run(
            measure(ansible, Path(options.checkout).resolve(), int(count), options.steps.split(","), options.forks)
        )
    if options.keep:
        machine = f"{os.cpu_count()} cores, {options.forks} forks and Python {version_of(ansible)}"
        page.keep(options.keep, runs, machine, load)
        page.write()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Starts, describes and removes the rig: all OpenStack services of `make openstack`."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace

from bed import paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from rig import beds, environment, mariadb, places, schema
from rig.places import DATA, LOOPBACK, SERVICES, Record
from rig.processes import Processes, answers
from rig.settings import PASSWORD, REGION, Settings

MODULES = {
    "identity": "keystone.wsgi.api",
    "placement": "placement.wsgi.api",
    "network": "neutron.wsgi.api",
    "image": "glance.wsgi.api",
    "load-balancer": "octavia.wsgi.api",
    "compute": "nova.wsgi.osapi_compute+rig_drivers.compute",
    "block-storage": "cinder.wsgi.api+rig_drivers.volumes",
}
ARGUMENTS = {"load-balancer": "octavia", "block-storage": "cinder"}  # these get their configuration on the command line
COMPUTE = ("placement", "image", "compute", "block-storage")  # what servers need, and load balancers do not


def up(port: int | None, with_compute: bool, progress: Progress, bed: str = "") -> None:
    """Start the services that do not run yet. A rig that was stopped, or only partly started, keeps its data.

    With `bed`, the services are the cloud of that test bed: see `rig.beds`.
    """
    progress.say("OpenStack services on loopback" + (f", for the bed {bed}" if bed else ""))
    plan = beds.plan_of(bed) if bed else None
    venv = environment.ensure(progress)
    root = mariadb.ensure(progress)
    processes = Processes(DATA)
    ports = _record(port, bed, plan.bridge if plan else LOOPBACK, processes).ports
    if plan:
        beds.WIRES.mkdir(parents=True, exist_ok=True)
    settings = Settings(DATA, venv, ports)
    settings.write()
    services = [name for name in SERVICES if with_compute or name not in COMPUTE]
    database = mariadb.Database(root, DATA, ports.database, processes)
    if not processes.running("mariadb"):
        schema.ensure(settings, database, processes, progress)
    with progress.step("keystone"):
        if not processes.running("identity"):
            _bootstrap(settings)
        _start(settings, processes, "identity")
    first = [name for name in services if name not in ("identity", "compute")]  # nova needs placement when it starts
    with progress.step(f"Projects, users, catalog; {', '.join(first)}"):
        for service in first:
            _start(settings, processes, service, wait=False)
        _proxy(settings, processes)
        _world(settings, "identity")
        for service in first:
            _wait(settings, processes, service)
    if with_compute:
        with progress.step("nova: API, conductor, scheduler and three fake computes"):
            _start(settings, processes, "compute")
    with progress.step("Networks, router, security groups" + (", image, flavor, zones" if with_compute else "")):
        _world(settings, "network", *(["compute"] if with_compute else []))
    if plan:
        names = ", ".join(node.name for node in plan.nodes)
        with progress.step(f"{plan.fabric_name}, which forwards; servers {names}"):
            beds.start_fabric(plan)
            _world(settings, "machines")
    progress.say(f"clouds.yaml and cloud.conf are in {DATA}")


def down(purge: bool, progress: Progress) -> None:
    """Stop every process and remove the data, and the container that forwards for a test bed. `purge` also removes the
    rig's files in the cache.
    """
    if DATA.exists():
        with progress.step("Ending the services, removing their data"):
            if (DATA / "rig.json").exists() and (bed := places.recorded().bed):
                beds.end_fabric(bed)
            Processes(DATA).end_all()
            shutil.rmtree(DATA)
    if purge:
        shutil.rmtree(paths.cache() / "openstack", ignore_errors=True)


def status() -> str:
    """Return a line for each service. Raises BedError if there is no rig."""
    processes, ports = Processes(DATA), places.recorded().ports
    lines = [
        f"{name:14} {'running' if processes.running(name) else 'not running':12} {ports.public_url(name)}"
        for name in SERVICES
    ]
    return "\n".join(lines)


def running_database() -> mariadb.Database:
    """Return the database of the running rig. Raises BedError if none runs."""
    processes = Processes(DATA)
    if not processes.running("mariadb"):
        raise BedError("the rig does not run: `make openstack`")
    return mariadb.Database(paths.cache() / "openstack" / "mariadb", DATA, places.recorded().ports.database, processes)


def _record(wanted: int | None, bed: str, address: str, processes: Processes) -> Record:
    """Return the existing record while processes of the rig run; otherwise write a new one. Raises BedError if the
    running rig has other ports or another bed than the requested ones, or if no ports are free.
    """
    running = [file.stem for file in (DATA / "run").glob("*.pid") if processes.running(file.stem)]
    if running:
        record = places.recorded()
        if wanted not in (None, record.ports.base):
            raise BedError(f"the rig runs on ports {record.ports.base} and up: `make openstack-down` first")
        if bed != record.bed:
            whose = f"the cloud of the bed {record.bed}" if record.bed else "no bed's cloud"
            raise BedError(f"the rig that runs is {whose}: end it first, or name another folder by OUTOFTREE_RIG")
        return record
    record = Record(replace(places.free_ports(wanted), address=address), bed)
    record.save()
    return record


def _bootstrap(settings: Settings) -> None:
    """Create the admin, and set keystone's current addresses in its catalog."""
    public, internal = settings.ports.public_url("identity"), settings.ports.internal_url("identity")
    command = [f"{settings.venv}/bin/keystone-manage", "--config-file", str(settings.file("keystone")), "bootstrap"]
    command += ["--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION]
    command += ["--bootstrap-public-url", public, "--bootstrap-internal-url", internal]
    run(*command, env=environment.variables())


def _start(settings: Settings, processes: Processes, service: str, wait: bool = True) -> None:
    if not processes.running(service):
        file = ARGUMENTS.get(service)
        arguments = ["--config-file", str(settings.file(file))] if file else []
        port = str(settings.ports.behind(service))
        command = [f"{settings.venv}/bin/python", "-m", "rig_drivers.serve", MODULES[service], port, *arguments]
        processes.start(service, command, env=settings.environment(service))
    if wait:
        _wait(settings, processes, service)


def _wait(settings: Settings, processes: Processes, service: str) -> None:
    processes.wait(service, lambda: answers(settings.ports.internal_url(service)))


def _proxy(settings: Settings, processes: Processes) -> None:
    if not processes.running("proxy"):
        processes.start("proxy", [sys.executable, "-m", "rig.proxy"], env=_python_path())
    processes.wait("proxy", lambda: answers(f"http://127.0.0.1:{settings.ports.control}/"))


def _world(settings: Settings, *parts: str) -> None:
    run(f"{settings.venv}/bin/python", "-m", "rig.world", *parts, env=_python_path())


def _python_path() -> dict[str, str]:
    path = os.pathsep.join(map(str, [paths.BED, places.RIG]))
    return environment.variables() | {"PYTHONPATH": path, "OUTOFTREE_RIG": str(DATA)}

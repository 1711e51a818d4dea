# SPDX-License-Identifier: Apache-2.0
"""The whole rig: raise it, tell what it is, remove it."""

from __future__ import annotations

import json
import os
import shutil
import sys

from bed import paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from rig import environment, mariadb, places, schema
from rig.places import DATA, SERVICES, Ports
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
ARGUMENTS = {"load-balancer": "octavia", "block-storage": "cinder"}  # who is told of its file on the command line
COMPUTE = ("placement", "image", "compute", "block-storage")  # what servers need, and load balancers do not


def up(port: int | None, with_compute: bool, progress: Progress) -> None:
    """Raise what does not run yet. A rig that was ended, or half raised, goes on with the data that it has."""
    progress.say("OpenStack services on loopback")
    venv = environment.ensure(progress)
    root = mariadb.ensure(progress)
    processes = Processes(DATA)
    ports = _ports(port, processes)
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
    first = [name for name in services if name not in ("identity", "compute")]  # nova asks for placement as it starts
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
    progress.say(f"clouds.yaml and cloud.conf are in {DATA}")


def down(purge: bool, progress: Progress) -> None:
    """End every process and remove the data; `purge` removes what the cache holds of it, too."""
    if DATA.exists():
        with progress.step("Ending the services, removing their data"):
            Processes(DATA).end_all()
            shutil.rmtree(DATA)
    if purge:
        shutil.rmtree(paths.cache() / "openstack", ignore_errors=True)


def status() -> str:
    """A line for each service."""
    if not (DATA / "rig.json").exists():
        raise BedError("there is no rig: run `make openstack`")
    processes, ports = Processes(DATA), _recorded()
    lines = [
        f"{name:14} {'running' if processes.running(name) else 'not running':12} {ports.public_url(name)}"
        for name in SERVICES
    ]
    return "\n".join(lines)


def running_database() -> mariadb.Database:
    """The database of a rig that runs. Raises BedError when none does."""
    processes = Processes(DATA)
    if not processes.running("mariadb"):
        raise BedError("the rig does not run: `make openstack`")
    return mariadb.Database(paths.cache() / "openstack" / "mariadb", DATA, _recorded().database, processes)


def _ports(wanted: int | None, processes: Processes) -> Ports:
    """Those of before as long as something listens on them; otherwise new ones."""
    running = [file.stem for file in (DATA / "run").glob("*.pid") if processes.running(file.stem)]
    if running:
        ports = _recorded()
        if wanted not in (None, ports.base):
            raise BedError(f"the rig runs on ports {ports.base} and up: `make openstack-down` first")
        return ports
    ports = places.free_ports(wanted)
    (DATA / "rig.json").write_text(json.dumps({"ports": ports.base}))
    return ports


def _recorded() -> Ports:
    return Ports(json.loads((DATA / "rig.json").read_text())["ports"])


def _bootstrap(settings: Settings) -> None:
    """The admin, and keystone's own addresses in its catalog: those of today."""
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
        processes.start("proxy", [sys.executable, "-m", "rig.proxy", str(settings.ports.base)], env=_python_path())
    processes.wait("proxy", lambda: answers(f"http://127.0.0.1:{settings.ports.control}/"))


def _world(settings: Settings, *parts: str) -> None:
    run(f"{settings.venv}/bin/python", "-m", "rig.world", str(settings.ports.base), *parts, env=_python_path())


def _python_path() -> dict[str, str]:
    return environment.variables() | {"PYTHONPATH": os.pathsep.join(map(str, [paths.BED, places.RIG]))}

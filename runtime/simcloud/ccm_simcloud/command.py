# SPDX-License-Identifier: Apache-2.0
"""The command line of the simulator (`ccm sim`)."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from functools import partial
from pathlib import Path

from aiohttp import web

from . import config as configuration
from .config import Config
from .fabric import Fabric, decide
from .kernel import KernelError, NetlinkKernel
from .server import Server
from .storage import StorageError
from .strict import Invalid

log = logging.getLogger("ccm_simcloud")


class Failure(Exception):
    """A user error, or an operation that the machine refuses; the message describes it."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="ccm sim",
        description="Run a simulated cloud: instances, load balancers, routes and volumes over HTTP, with faults and a "
        "journal of calls under /admin (which requires no credentials). For tests and demonstrations only.",
    )
    made.add_argument("--listen", default="127.0.0.1:9440", metavar="HOST:PORT", help="default: %(default)s")
    made.add_argument("--config", type=Path, metavar="FILE", help="read this YAML: projects, limits, timing, faults")
    made.add_argument("--state", metavar="FILE", help="keep the state in this SQLite file; default: memory only")
    made.add_argument("--fabric", action="store_true", help="also be the network of the cloud (Linux, root, NET_ADMIN)")
    made.add_argument(
        "--fabric-interface", default="eth0", metavar="NAME", help="use this interface, default: %(default)s"
    )
    made.add_argument("--fabric-project", metavar="NAME", help="serve this project; default: the first one")
    made.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return made


def main(argv: list[str]) -> int:
    """Run the simulator. Return 0 after SIGTERM or SIGINT, 1 if it cannot run, 2 for an invalid command line or
    configuration."""
    try:
        options = parser().parse_args(argv)
    except SystemExit as exit_:
        return int(exit_.code or 0)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        host, port = listen_address(options.listen)
        config = read_config(options.config)
        asyncio.run(run(config, host, port, options))
    except Invalid as invalid:
        for problem in invalid.problems:
            print(f"ccm sim: {options.config or '--listen'}: {problem}", file=sys.stderr)
        return 2
    except (Failure, KernelError, StorageError) as failure:
        print(f"ccm sim: {failure}", file=sys.stderr)
        return 1
    return 0


def listen_address(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT or [IPv6]:PORT. Raises Invalid for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise Invalid([f"{text!r} is not HOST:PORT, such as 127.0.0.1:9440"])
    return host.strip("[]"), int(port)


def read_config(path: Path | None) -> Config:
    if path is None:
        return configuration.from_data(configuration.DEFAULT)
    try:
        return configuration.parse(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid([f"cannot be read: {getattr(error, 'strerror', None) or error}"]) from None


async def run(config: Config, host: str, port: int, options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT. Raises Failure, KernelError or StorageError."""
    server = Server(config, options.state)
    fabric = made_fabric(server, options) if options.fabric else None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(server.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        if fabric is not None:
            await fabric.start()
        try:
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            raise Failure(f"cannot listen on {host}:{port}: {error.strerror}; choose another --listen") from None
        projects = ", ".join(server.world.projects)
        log.info("the simulated cloud answers on http://%s:%d for projects %s", host, port, projects)
        await stop.wait()
    finally:
        if fabric is not None:
            await fabric.close()
        await runner.cleanup()


def made_fabric(server: Server, options: argparse.Namespace) -> Fabric:
    """Return the network of the selected project. Raises Failure if there is no such project."""
    projects = server.world.projects
    name = options.fabric_project or next(iter(projects))
    if name not in projects:
        raise Failure(f"project {name!r} does not exist; choose --fabric-project from {', '.join(projects)}")
    fabric = Fabric(partial(decide, projects[name]), NetlinkKernel(options.fabric_interface))
    server.world.subscribe(fabric.changed)
    return fabric

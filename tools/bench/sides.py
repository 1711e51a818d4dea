# SPDX-License-Identifier: Apache-2.0
"""The two programs that are compared, called sides: the peer, a controller on Kubernetes' own framework
(tools/bench/peer), and our runtime. They run as processes with the same surroundings.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bed import go_programs, paths
from bed.progress import Progress
from ccm.engine.encodings import JSON, PROTOBUF

from . import measure

REPOSITORY = Path(__file__).resolve().parents[2]

#: Our runtime runs as it is installed: with compiled modules, which are stored apart from the sources.
OURS_ENVIRONMENT = {"PYTHONPYCACHEPREFIX": str(REPOSITORY / "build" / "bench" / "pycache")}

#: A program that runs our runtime with patches in JSON. It shows what reading in protobuf gains without writing in
#: protobuf.
PATCHING = """
import sys
from ccm.engine import encodings
encodings.IN_PROTOBUF = {**encodings.IN_PROTOBUF, "Node": encodings.IN_PROTOBUF["Node"] - {"PUT"}}
from ccm.cli import main
sys.exit(main())
"""


class BenchError(Exception):
    """The benchmark cannot run; the message says why."""


@dataclass(frozen=True)
class Side:
    """A program to measure. `wire`: the encoding of its watches. The bench watches in the same encoding, so that the
    API server encodes each object only once. `form`: the encodings of reads and writes, if our runtime is compared with
    itself."""

    name: str
    command: tuple[str, ...]
    wire: str
    environment: Mapping[str, str]
    form: str = ""


def ours() -> Side:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment |= OURS_ENVIRONMENT
    command = (sys.executable, "-m", "ccm.cli")
    subprocess.run([*command, "--help"], env=environment, stdout=subprocess.DEVNULL, check=True)  # compiles
    return Side("ours", command, PROTOBUF, environment)


def encodings(side: Side) -> tuple[Side, ...]:
    """Return three forms of our runtime: all in JSON; reads in protobuf and patches in JSON; and as it usually is."""
    in_json = (*side.command, f"--kube-api-content-type={JSON}")
    return (
        replace(side, command=in_json, wire=JSON, form="JSON"),
        replace(side, command=(sys.executable, "-c", PATCHING), form="read in protobuf, patched in JSON"),
        replace(side, form="protobuf"),
    )


def peer(progress: Progress) -> Side:
    return Side("peer", (str(go_programs.ensure("peer", progress)),), PROTOBUF, dict(os.environ))


class Process:
    """A running program. `started` is monotonic seconds."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("wb") as output:
            self.started = time.monotonic()
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def usage(self) -> measure.Usage:
        self.check()
        return measure.usage(self.pid)

    def check(self) -> None:
        """Raise BenchError if the process has ended."""
        if self._popen.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise BenchError(f"{self.log.stem} ended with {self._popen.returncode}; its last lines:\n{tail}")

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def stop(self) -> None:
        """Stop the process; kill it if it does not end within 10 s."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                await asyncio.to_thread(self._popen.wait, 10)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                await asyncio.to_thread(self._popen.wait)


def flags(values: Mapping[str, Any]) -> list[str]:
    """Return values such as {"secure_port": 1, "leader_elect": True} as flags of a command line."""
    return [f"--{name.replace('_', '-')}={_text(value)}" for name, value in values.items()]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


def machine() -> dict[str, str]:
    """Return what the figures depend on, without anything that identifies the machine."""
    versions = {name: _version(name) for name in ("aiohttp", "msgspec", "uvloop")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "processor": _processor(),
        "Python": platform.python_version(),
        "cloud-provider": _framework(),
        **{name: version for name, version in versions.items() if version},
    }


def _framework() -> str:
    """Return the version of the upstream framework that the peer is linked to."""
    text = (paths.REPOSITORY / "tools/bench/peer/go.mod").read_text()
    return next(line.split()[1] for line in text.splitlines() if line.startswith("\tk8s.io/cloud-provider "))


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()

# SPDX-License-Identifier: Apache-2.0
"""The collection as a user runs it: the real `ansible-playbook`, on this host, against the API server of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .interpreter import interpreter

REPOSITORY = Path(__file__).resolve().parents[3]
# tools/packaging/cores.py runs these tests with the programs of other releases of ansible-core.
PROGRAM = Path(os.environ.get("OUTOFTREE_ANSIBLE") or Path(sys.executable).parent) / "ansible-playbook"
COLLECTION = "outoftree.ccm"
#: Runs ansible-playbook with another Python for modules on the implicit host `localhost`.
FASTER = """
import sys
sys.argv[0], sys.executable = "ansible-playbook", sys.argv.pop(1)
from ansible.cli.playbook import main
main()
"""


@dataclass
class Run:
    """The run of a playbook: exit status, all its output, and each task's result."""

    status: int
    output: str
    results: list[dict[str, Any]]
    #: The result on the last host, by the name of the task.
    named: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: All results with the names of their tasks.
    tasks: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.results)

    @property
    def failures(self) -> list[str]:
        """Return the messages of failed tasks, each on one line."""
        return [" ".join(result["msg"].split()) for result in self.results if result.get("failed")]


def task(module: str, /, *, check: bool = False, diff: bool = False, **arguments: Any) -> dict[str, Any]:
    """Return a task that calls a module of the collection. The tasks after it run even if it fails."""
    return {
        "name": module,
        f"{COLLECTION}.{module}": arguments,
        "check_mode": check,
        "diff": diff,
        "ignore_errors": True,
    }


async def call(kubeconfig: Any, *tasks: dict[str, Any]) -> Run:
    """Call modules one after the other in one playbook, because each start of Ansible takes more than a second."""
    module_defaults = {f"group/{COLLECTION}.api": {"kubeconfig": kubeconfig}}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "module_defaults": module_defaults,
        "tasks": list(tasks),
    }
    return await playbook("/dev/stdin", stdin=json.dumps([play]))


def program() -> list[str]:
    """Return the command of ansible-playbook. By default, it is that of build/venv, with an interpreter that starts
    modules faster."""
    return [str(PROGRAM)] if "OUTOFTREE_ANSIBLE" in os.environ else [sys.executable, "-c", FASTER, interpreter()]


async def playbook(
    path: str, *arguments: str, stdin: str = "", seconds: float = 480, settings: dict[str, str] | None = None
) -> Run:
    """Run a playbook of the checkout, within `seconds`. `stdin`: the text of /dev/stdin. `settings`: Ansible's
    environment variables, which override ansible.cfg."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_"))}
    for name in ("KUBECONFIG", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    environment |= {
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
        "COLUMNS": "10000",  # tests search for sentences, which a narrower terminal would break
        # A module spends most of its time on importing the library 'kubernetes'; compiled, that takes half as long.
        "PYTHONPYCACHEPREFIX": str(REPOSITORY / "build" / "pycache"),
    } | (settings or {})
    process = await asyncio.create_subprocess_exec(
        *program(),
        path,
        *arguments,
        cwd=REPOSITORY,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, error = (text.decode() for text in await asyncio.wait_for(process.communicate(stdin.encode()), seconds))
    except BaseException:
        process.kill()
        await process.wait()
        raise
    said = out + error
    start = out.find("{\n")
    if start < 0:
        raise AssertionError(f"{PROGRAM.name} {path} ended with {process.returncode} and reported no results:\n{said}")
    report, _ = json.JSONDecoder().raw_decode(out[start:])
    tasks = [
        (item["task"]["name"], result)
        for play in report["plays"]
        for item in play["tasks"]
        for result in item["hosts"].values()
    ]
    return Run(process.returncode or 0, said, [result for _, result in tasks], dict(tasks), tasks)

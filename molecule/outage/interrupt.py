# SPDX-License-Identifier: Apache-2.0
"""Start a run of Ansible and kill it with SIGKILL at a task: interrupt.py HOW AFTER TASK SECONDS NODES COMMAND ...

The kill comes SECONDS after Ansible has announced the TASK (a part of the line that announces it), or, if AFTER is
`module`, after the first module of that task has begun on one of NODES (names of containers with commas between them).
If HOW is `controller`, ansible-playbook alone dies, as when the machine is short of memory, and its modules continue.
If HOW is `everything`, its workers and the modules that run on NODES die, too, as when somebody pulls the plug.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Maximum number of seconds between the announcement of a task and the start of its first module.
PATIENCE = 60.0


def modules(nodes: list[str]) -> list[int]:
    """Return the PIDs of modules on NODES. They are processes of this machine, too, and nodes run no other Python."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            python = (place / "cmdline").read_bytes().startswith(b"/usr/bin/python3")
            if python and (place / "root/etc/hostname").read_text().strip() in nodes:
                found.append(int(place.name))
        except OSError:
            continue
    return found


def wait_for_module(nodes: list[str], run: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while not modules(nodes) and run.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def descendants(parent: int) -> list[int]:
    """Return all descendants of a process, the nearest first."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(place.name))
    found = [parent]
    for process in found:
        found += children.get(process, [])
    return found[1:]


def kill(run: subprocess.Popen[str], how: str, nodes: list[str]) -> str:
    below = descendants(run.pid) if how == "everything" else []
    for process in [run.pid, *below]:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    on_nodes = modules(nodes) if how == "everything" else []
    for process in on_nodes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return f"{1 + len(below)} processes here and {len(on_nodes)} modules on nodes"


def main(how: str, after: str, task: str, seconds: float, nodes: list[str], command: list[str]) -> int:
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    said = []
    for line in run.stdout:
        said.append(line)
        if line.startswith("TASK [") and task in line:
            if after == "module":
                wait_for_module(nodes, run)
            time.sleep(seconds)
            if run.poll() is not None:
                break
            print(f"killed {seconds} s into '{line.split('*')[0].strip()}': {kill(run, how, nodes)}")
            run.wait()
            return 0
    print("".join(said[-60:]), f"It ended with {run.wait()} before it could be killed at '{task}'.", sep="\n")
    return 1


if __name__ == "__main__":
    how, after, task, seconds, nodes, *command = sys.argv[1:]
    sys.exit(main(how, after, task, float(seconds), nodes.split(","), command))

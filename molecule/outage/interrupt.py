# SPDX-License-Identifier: Apache-2.0
"""Start a run of Ansible and kill it with SIGKILL at some task: interrupt.py HOW TASK SECONDS NODES COMMAND ...

The kill comes SECONDS after Ansible has announced the TASK (a part of its line). HOW is `controller`: ansible-playbook
alone dies, as when the machine is short of memory, and its modules go on; or `everything`: its workers die with it, and
the modules that run on NODES (names of containers with commas between them) as well, as when somebody pulls the plug.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

#: A module on a node is the interpreter with a file of Ansible's, or none when it came by a pipe; nodes run no other Python.
MODULES = """for place in /proc/[0-9]*; do
  case "$(tr '\\0' ' ' < $place/cmdline 2>/dev/null)" in
    /usr/bin/python3*) kill -9 "${place#/proc/}" && echo "${place#/proc/}" ;;
  esac
done"""


def descendants(parent: int) -> list[int]:
    """Every process below one, the nearest first."""
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
    modules = 0
    for node in nodes if how == "everything" else []:
        done = subprocess.run(["podman", "exec", node, "sh", "-c", MODULES], capture_output=True, text=True, check=True)
        modules += len(done.stdout.split())
    return f"{1 + len(below)} processes here and {modules} modules on nodes"


def main(how: str, task: str, seconds: float, nodes: list[str], command: list[str]) -> int:
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    said = []
    for line in run.stdout:
        said.append(line)
        if line.startswith("TASK [") and task in line:
            time.sleep(seconds)
            if run.poll() is not None:
                break
            print(f"killed {seconds} s into '{line.split('*')[0].strip()}': {kill(run, how, nodes)}")
            run.wait()
            return 0
    print("".join(said[-60:]), f"It ended with {run.wait()} before it could be killed at '{task}'.", sep="\n")
    return 1


if __name__ == "__main__":
    how, task, seconds, nodes, *command = sys.argv[1:]
    sys.exit(main(how, task, float(seconds), nodes.split(","), command))

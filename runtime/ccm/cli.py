# SPDX-License-Identifier: Apache-2.0
"""The `ccm` command. Without a subcommand it runs a cloud-controller-manager, with upstream's arguments."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from .base.lasting_imports import lasting_imports
from .base.late_certificates import late_certificates

NO_SIMULATOR = (
    "ccm sim: the simulated cloud is not installed. It is a separate package, outoftree-ccm-simcloud: install "
    "runtime/simcloud of this version's sources beside ccm, or use its image (runtime/simcloud/Containerfile)"
)


@dataclass(frozen=True)
class Command:
    """A subcommand. `module`: imported when the command runs; its `main(argv)` returns the exit status."""

    module: str
    summary: str


COMMANDS: Mapping[str, Command] = {
    "explain": Command("ccm.commands.explain.explain", "explain the state of one Node, Service or PersistentVolume"),
    "plan": Command("ccm.commands.plan", "report what the controller would do now, and change nothing"),
    "doctor": Command("ccm.commands.doctor.doctor", "check what the controller needs, from rights to certificates"),
    "status": Command(
        "ccm.commands.status.status", "show what the controller is doing: work, cloud calls, held deletions"
    ),
    "nodes": Command("ccm.commands.list_nodes", "list the instance of each Node, and contradictions"),
    "check-provider": Command("ccm.conformance.command", "run the conformance cases against a provider"),
    "completion": Command("ccm.commands.completion", "print a script that completes commands and flags in a shell"),
    "sim": Command("ccm_simcloud", "run the simulated cloud, if it is installed"),
}


#: The exit status that a shell reports for a program that SIGPIPE terminated.
PIPE_CLOSED = 128 + 13
#: The commands that only read the cluster and the cloud: all of `ccm.commands` except `completion`, which prints a
#: script.
READING = tuple(
    name for name, command in COMMANDS.items() if command.module.startswith("ccm.commands.") and name != "completion"
)


def list_of_commands(prog: str = "ccm", names: Iterable[str] = COMMANDS) -> str:
    """Return the list of subcommands that `--help` shows."""
    calls = {name: f"{prog} {name}" for name in names}
    width = max(map(len, calls.values()))
    lines = [f"  {call.ljust(width)}  {COMMANDS[name].summary}" for name, call in calls.items()]
    return "\n".join(["commands, each with a --help of its own:", *lines])


def main(argv: list[str] | None = None) -> int:
    """Run a command line. Return the exit status: 0 success, 1 failure, 2 invalid command line. Some subcommands give
    these numbers another meaning: see their `main`."""
    args = list(sys.argv[1:] if argv is None else argv)
    return _printing(lambda: _main(args))


def _main(args: list[str]) -> int:
    if args and args[0] in COMMANDS:
        return run(args[0], args[1:])
    with lasting_imports():
        with late_certificates():
            import aiohttp  # noqa: F401 -- imported here first, before another module imports it
        from .manager import logs
        from .manager import process as app
        from .options import command_line

    try:
        parsed = command_line.parse(args, command_line.parser(epilog=list_of_commands()))
    except command_line.OptionsError as error:
        for problem in error.problems:
            print(f"ccm: {problem}", file=sys.stderr)
        print("ccm: see ccm --help", file=sys.stderr)
        return 2
    logs.configure(parsed.logging_format, parsed.v)
    return app.start(parsed)


def kubectl(argv: list[str] | None = None) -> int:
    """Run `kubectl ccm`, which kubectl finds as the program `kubectl-ccm`. It has the commands that only read, and does
    not run a controller. Return the exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    return _printing(lambda: _kubectl(args))


def _kubectl(args: list[str]) -> int:
    if args and args[0] in READING:
        return run(args[0], args[1:])
    asked = args in ([], ["-h"], ["--help"])
    text = f"usage: kubectl ccm COMMAND [FLAG ...]\n\n{list_of_commands('kubectl ccm', READING)}"
    print(text, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


def run(name: str, argv: list[str]) -> int:
    """Run a subcommand. Return its exit status, 1 if it needs the simulator, which is not installed."""
    if name == "sim" and importlib.util.find_spec("ccm_simcloud") is None:
        print(NO_SIMULATOR, file=sys.stderr)
        return 1
    status: int = importlib.import_module(COMMANDS[name].module).main(argv)
    return status


def _printing(work: Callable[[], int]) -> int:
    """Return the exit status of `work`. If the reader of its output closes the pipe, as `head` does, return
    `PIPE_CLOSED` without a traceback."""
    try:
        try:
            return work()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
        return PIPE_CLOSED


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`ccm completion SHELL`: a script for a shell. It needs the package shtab, which the extra `completion` installs."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from ccm.cloud import registry
from ccm.options import command_line

NOT_INSTALLED = (
    "ccm completion: the package shtab is not installed. Install the extra: pip install 'outoftree-ccm[completion]'"
)
SHELLS = ("bash", "zsh", "tcsh")
#: The commands whose flags are completed: their modules have `arguments()`.
COMMANDS = {
    "explain": "explain.explain",
    "plan": "plan",
    "doctor": "doctor.doctor",
    "status": "status.status",
    "nodes": "list_nodes",
    "completion": "completion",
}
#: The flags that name a file.
FILES = ("--cloud-config", "--kubeconfig", "--config", "--leader-migration-config", "--url-ca-file")


def main(argv: Sequence[str]) -> int:
    """Print the completion script. Return the exit status: 0 printed, 1 if shtab is not installed. For an invalid
    command line, the process exits with 2."""
    shell = arguments().parse_args(argv).shell
    if importlib.util.find_spec("shtab") is None:
        print(NOT_INSTALLED, file=sys.stderr)
        return 1
    import shtab

    print(shtab.complete(tree(shtab.FILE), shell=shell))
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ccm completion", description="Print a script that completes ccm in a shell.")
    parser.add_argument("shell", choices=SHELLS)
    return parser


def tree(file: Any) -> argparse.ArgumentParser:
    """Return the parser of `ccm` with all its commands. `file`: the value that marks arguments that name a file."""
    root = command_line.parser()
    commands = root.add_subparsers(parser_class=argparse.ArgumentParser)
    for name, module in COMMANDS.items():
        parser = importlib.import_module(f"{__package__}.{module}").arguments()
        commands.add_parser(name, help=parser.description, parents=[parser], add_help=False)
        _mark(parser, file)
    _mark(root, file)
    return root


def _mark(parser: argparse.ArgumentParser, file: Any) -> None:
    for action in parser._actions:
        if set(action.option_strings) & set(FILES):
            action.complete = file  # type: ignore[attr-defined]
        if "--cloud-provider" in action.option_strings:
            action.choices = registry.names()

# SPDX-License-Identifier: Apache-2.0
"""The flags of the commands that answer questions: the controller's own, so that a manifest's arguments can be pasted.

Inside the controller's Pod no flag is needed: process 1 is the controller, and its arguments are the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, TypeVar

from ccm.options import command_line
from ccm.options.command_line import Options
from ccm.options.declaration import flags_of, option
from ccm.options.values import TEXT

#: The group of flags that only commands have.
GROUP = "this command"
#: Groups of flags that mean nothing to a command. They are accepted, but `--help` does not show them.
HIDDEN = ("serving", "access to what is served", "webhooks", "general", "accepted and ignored")
#: The arguments of the process that a container starts.
PROCESS_1 = Path("/proc/1/cmdline")


def _output(text: str) -> None:
    if text not in ("text", "json"):
        raise ValueError(f"must be text or json, not {text!r}")


@dataclass(frozen=True)
class Questions(Options):
    """The flags of one command. Subclasses add positional arguments, such as the name of an object, as fields without
    `option`."""

    requires_provider: ClassVar[bool] = False
    #: The help of `--cloud-provider` where it is not required.
    provider_help: ClassVar[str] = "use the controller's provider, to ask the cloud as well"

    output: str = option(GROUP, TEXT, "text", "print text for people, or json for programs", check=_output)


Q = TypeVar("Q", bound=Questions)


def parse(kind: type[Q], argv: Sequence[str], parser: command_line.Parser) -> Q:
    """Return the options. Without --cloud-provider, they include the flags of the controller in whose Pod the command
    runs; without --kubeconfig and --master, kubectl's kubeconfig counts. Raises OptionsError with all problems."""
    arguments = list(argv)
    if not any(text.startswith("--cloud-provider") for text in arguments):
        arguments = [*own_arguments(), *arguments]
    flags = command_line.parse_as(kind, arguments, parser)
    if flags.kubeconfig or flags.master:
        return flags
    return replace(flags, kubeconfig=default_kubeconfig())


def parser(kind: type[Questions], prog: str, description: str, epilog: str = "") -> command_line.Parser:
    """Return the argument parser of one command, with the flags of `kind`. The command itself adds its positional
    arguments, such as the name of an object."""
    parser_ = command_line.parser(
        flags_of(kind), prog=prog, usage="%(prog)s [FLAG ...]", description=description, epilog=epilog, hidden=HIDDEN
    )
    if not kind.requires_provider:
        provider = next(action for action in parser_._actions if "--cloud-provider" in action.option_strings)
        provider.help = kind.provider_help
    return parser_


def own_arguments(process: Path = PROCESS_1) -> list[str]:
    """Return the flags of the controller in whose Pod this command runs; [] elsewhere, and if process 1 has no
    `--cloud-provider=`."""
    try:
        arguments = process.read_bytes().decode().split("\0")
    except (OSError, UnicodeDecodeError):
        return []
    if not any(text.startswith("--cloud-provider=") for text in arguments):
        return []
    ours = [number for number, text in enumerate(arguments) if Path(text).name == "ccm"]
    return [text for text in arguments[ours[0] + 1 :] if text] if ours else []


def default_kubeconfig() -> str:
    """Return the first file of KUBECONFIG that exists, else the first that it names. Without KUBECONFIG, return
    ~/.kube/config, or "" if that file does not exist, which means in-cluster."""
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    candidates = named or [str(Path.home() / ".kube" / "config")]
    return next((path for path in candidates if Path(path).is_file()), named[0] if named else "")

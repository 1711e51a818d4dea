# SPDX-License-Identifier: Apache-2.0
"""Runs a command that answers a question: parses its flags, prints the answer as text or JSON, and each error on one
line."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from ccm.base.start_error import StartError
from ccm.cloud import CloudError, ConfigError
from ccm.engine.client import ApiError, KubeConfigError
from ccm.options.command_line import OptionsError, Parser

from .answers import NOT_ANSWERED, fitted, one_line
from .question_flags import Questions, parse


class Answer(Protocol):
    @property
    def status(self) -> int:
        """The exit status."""
        ...


A = TypeVar("A", bound=Answer)
Q = TypeVar("Q", bound=Questions)


def answer(
    kind: type[Q],
    argv: Sequence[str],
    parser: Parser,
    ask: Callable[[Q], Awaitable[A]],
    render: Callable[[A, datetime.datetime], list[str]],
) -> int:
    """Print what `ask` returns: as lines from `render`, or as JSON. Return the exit status, 2 if there is no answer."""
    try:
        options = parse(kind, argv, parser)
    except OptionsError as error:
        return _complain([*error.problems, f"see {parser.prog} --help"])
    try:
        with _quiet():
            result = asyncio.run(_run(ask, options))
    except ConfigError as error:
        return _complain(error.problems)
    except CloudError as error:
        return _complain([f"the cloud gave no answer: {error}"])
    except (ApiError, KubeConfigError, StartError) as error:
        return _complain([str(error)])
    if options.output == "json":
        print(msgspec.json.encode(result).decode())
    else:
        show(render(result, datetime.datetime.now(datetime.UTC)))
    return result.status


def show(lines: Sequence[str]) -> None:
    """Print lines for people, fitted to the terminal. Without a terminal, print each line as it is, for other
    programs."""
    if sys.stdout.isatty():
        lines = fitted(lines, shutil.get_terminal_size().columns)
    print("\n".join(lines))


async def _run(ask: Callable[[Q], Awaitable[A]], options: Q) -> A:
    return await ask(options)


def _complain(problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"ccm: {one_line(problem)}", file=sys.stderr)
    return NOT_ANSWERED


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing while the context lasts, because the answer says what the controllers would log."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(disabled)

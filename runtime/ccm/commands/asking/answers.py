# SPDX-License-Identifier: Apache-2.0
"""The commands' answers as plain data, which is also their JSON output (docs/reference/commands.md). No I/O.

The descriptions of the fields are the documentation of the JSON: `make docs` writes them into that page.
"""

from __future__ import annotations

import enum
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from ccm.base.text import printable, shorten

#: The exit statuses of the commands that answer questions.
NOTHING_TO_DO, FINDINGS, NOT_ANSWERED = 0, 1, 2
#: The maximum length of a line, in characters, because users and kubelets write text of any length.
LONGEST_LINE = 2000


#: What a person does when the cloud gives no answer.
ASK_DOCTOR = "ccm doctor, with the same flags, says whether credentials or the network are the reason"


class Action(enum.StrEnum):
    """What happens to one object. The values are in the JSON."""

    NOTHING = "nothing"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    #: Nothing yet; it changes without help.
    WAIT = "wait"
    #: Nothing, until a person changes something.
    BLOCKED = "blocked"
    #: A question got no answer, so nobody knows.
    UNKNOWN = "unknown"


class Unasked(Struct, frozen=True, rename="camel"):
    """A question that got no answer."""

    question: Annotated[str, Meta(description="The question, and to whom it was put.")]
    why: Annotated[str, Meta(description="The error, with the missing right if there is one.")]


class Outlook(Struct, frozen=True, rename="camel", kw_only=True):
    """What the runtime would do with one object now, and why."""

    kind: Annotated[str, Meta(description="`Node`, `LoadBalancer`, `Route` or `PersistentVolume`.")]
    name: Annotated[
        str,
        Meta(
            description="The object's name. A load balancer has the name of its Service, NAMESPACE/NAME; a route has "
            "its destination."
        ),
    ]
    action: Annotated[
        Action,
        Meta(
            description="`nothing`, `create`, `update`, `delete`, `wait` (it changes later, without help), `blocked` "
            "(until a person changes something), or `unknown` (a question got no answer)."
        ),
    ]
    changes: Annotated[list[str], Meta(description="What would be written, one sentence for each change.")] = []
    reason: Annotated[str, Meta(description="The reason as a word, as in Events; empty if there is none.")] = ""
    because: Annotated[str, Meta(description="The reason as a sentence.")] = ""
    rule: Annotated[str, Meta(description="The rule that applies.")] = ""
    flag: Annotated[str, Meta(description="The flags that change the rule, with their present values.")] = ""
    when: Annotated[
        str, Meta(description="When it happens, counted from the moment when the runtime starts to lead.")
    ] = ""
    to_do: Annotated[str, Meta(description="What a person should do; empty if there is nothing to do.")] = ""
    notes: Annotated[list[str], Meta(description="Facts that change nothing now, one sentence each.")] = []
    cloud: Annotated[
        str,
        Meta(description="The object's cloud, if there are several clouds; empty if it belongs to none of them."),
    ] = ""

    @property
    def is_finding(self) -> bool:
        return self.action not in (Action.NOTHING, Action.UNKNOWN)


def status_of(outlooks: Iterable[Outlook], unasked: Sequence[Unasked]) -> int:
    """Return the exit status. A question without an answer counts more than findings, which may be incomplete then."""
    every = list(outlooks)
    if unasked or any(each.action is Action.UNKNOWN for each in every):
        return NOT_ANSWERED
    return FINDINGS if any(each.is_finding for each in every) else NOTHING_TO_DO


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; the last column may have any width."""
    every = [tuple(head), *(tuple(map(one_line, row)) for row in rows)]
    widths = [max(len(row[column]) for row in every) for column in range(len(head) - 1)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in every
    ]


def fitted(lines: Iterable[str], columns: int) -> list[str]:
    """Return the lines, broken between words to fit into the columns of a terminal. A row of a table continues below
    the start of its last cell if there is room, otherwise indented."""
    return [part for line in lines for part in (_fitted(line, columns) if len(line) > columns else [line])]


def _fitted(line: str, columns: int) -> list[str]:
    cells = [cell.end() for cell in re.finditer(r"\S  +(?=\S)", line)]
    own = len(line) - len(line.lstrip()) + 2
    last = cells[-1] if cells and cells[-1] <= columns // 2 else own
    longest = max(map(len, line[last:].split()), default=0)
    indent = " " * (last if last + longest <= columns else own)
    return textwrap.wrap(line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def one_line(text: str) -> str:
    """Return the text on one line and shortened, safe for a terminal, because strangers may have written it."""
    return printable(shorten(text, LONGEST_LINE))


def counted(count: int, noun: str) -> str:
    """Return the count with the noun, such as 1 Node or 2 Nodes."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading with indented lines below it; [] without lines."""
    texts = [f"  {one_line(line)}" for line in lines]
    return ["", title, *texts] if texts else []

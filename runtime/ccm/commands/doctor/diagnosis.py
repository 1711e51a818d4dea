# SPDX-License-Identifier: Apache-2.0
"""The answer of `ccm doctor`: checks, each with its result and what to do. No I/O."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from ..asking.answers import FINDINGS, NOT_ANSWERED, NOTHING_TO_DO, Unasked, one_line, section, table


class State(enum.StrEnum):
    """The result of a check. The values are in the JSON."""

    OK = "ok"
    #: A fact that is neither right nor wrong.
    NOTE = "note"
    #: It works now, and may fail later.
    WARNING = "warning"
    PROBLEM = "problem"
    #: A question got no answer.
    UNKNOWN = "unknown"


class Check(Struct, frozen=True, rename="camel"):
    """One result of a check."""

    check: Annotated[str, Meta(description="The check's name, such as `rights` or `clocks`.")]
    state: Annotated[
        State,
        Meta(
            description="`ok`, `note` (a fact), `warning` (works now, but may fail later), `problem`, or `unknown` (a "
            "question got no answer)."
        ),
    ]
    said: Annotated[str, Meta(description="What was found, as a sentence.")]
    to_do: Annotated[str, Meta(description="What a person should do; empty if there is nothing to do.")] = ""


class Diagnosis(Struct, frozen=True, rename="camel", tag_field="answer", tag="diagnosis"):
    """The answer of `ccm doctor`."""

    server: Annotated[str, Meta(description="The API server's URL.")]
    checks: Annotated[list[Check], Meta(description="The results, in the order of the checks.")]
    unasked: Annotated[list[Unasked], Meta(description="Questions that got no answer.")]

    @property
    def status(self) -> int:
        states = {each.state for each in self.checks}
        if self.unasked or State.UNKNOWN in states:
            return NOT_ANSWERED
        return FINDINGS if states & {State.WARNING, State.PROBLEM} else NOTHING_TO_DO


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first names, and how many there are if that is not all."""
    every = sorted(names)
    return ", ".join(every[:most]) + (f", ... ({len(every)} in all)" if len(every) > most else "")


def render(diagnosis: Diagnosis, now: datetime.datetime) -> list[str]:
    """Return lines of text, safe for a terminal."""
    rows: list[tuple[str, str, str]] = []
    before = ""
    for check in diagnosis.checks:
        rows.append((check.check if check.check != before else "", check.state.value, check.said))
        before = check.check
        if check.to_do:
            rows.append(("", "", f"do: {check.to_do}"))
    lines = [one_line(f"Checks of the cluster of {diagnosis.server}"), "", *table(("CHECK", "STATE", "WHAT"), rows)]
    lines += section("NOT ANSWERED", (f"{each.question}: {each.why}" for each in diagnosis.unasked))
    counts = {state: sum(1 for each in diagnosis.checks if each.state is state) for state in State}
    states = {"problems": State.PROBLEM, "warnings": State.WARNING, "unknown": State.UNKNOWN}
    parts = [f"{word}: {counts[state]}" for word, state in states.items() if counts[state]]
    if diagnosis.unasked:
        parts.append(f"questions without an answer: {len(diagnosis.unasked)}")
    return [*lines, "", ", ".join(parts) or "Nothing to do."]

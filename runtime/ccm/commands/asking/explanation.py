# SPDX-License-Identifier: Apache-2.0
"""The answer of `ccm explain`: what was looked up about an object, what the runtime would do, and what a person should
do. No I/O."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from .answers import Outlook, Unasked, one_line, section, status_of, table
from .leading import ago

#: How many of the latest Events are shown.
SHOWN = 8


class Looked(Struct, frozen=True, rename="camel"):
    """One thing that was looked up."""

    what: Annotated[str, Meta(description="What was looked up.")]
    where: Annotated[str, Meta(description="The API server, or the provider and its configuration.")]
    answer: Annotated[str, Meta(description="The answer.")]


class Source(Struct, frozen=True):
    component: str = ""


class About(Struct, frozen=True):
    uid: str = ""


class Event(Struct, frozen=True, rename="camel"):
    """An Event, as the API server has it."""

    reason: str = ""
    message: str = ""
    type: str = ""
    count: int | None = None
    last_timestamp: str | None = None
    source: Source = Source()
    involved_object: About = About()


class Told(Struct, frozen=True, rename="camel"):
    """An Event that a controller sent about the object."""

    reason: Annotated[str, Meta(description="The Event's reason.")]
    message: Annotated[str, Meta(description="The Event's message.")]
    component: Annotated[str, Meta(description="The controller that sent the Event.")]
    last: Annotated[str | None, Meta(description="When it was last sent, RFC 3339.")] = None
    count: Annotated[int, Meta(description="How many times it was sent.")] = 1


class Explanation(Struct, frozen=True, rename="camel", tag_field="answer", tag="explanation", kw_only=True):
    """The answer of `ccm explain`."""

    kind: Annotated[str, Meta(description="`Node`, `Service` or `PersistentVolume`.")]
    name: Annotated[str, Meta(description="The object's name; for a Service, NAMESPACE/NAME.")]
    state: Annotated[list[str], Meta(description="The object's state, in sentences.")]
    looked_up: Annotated[list[Looked], Meta(description="What was looked up, and the answers.")] = field(
        default_factory=list
    )
    nearest: Annotated[list[str], Meta(description="Names in the cloud that are similar to the object's name.")] = (
        field(default_factory=list)
    )
    outlooks: Annotated[
        list[Outlook],
        Meta(description="What the runtime would do with the object now; empty without `--cloud-provider`."),
    ] = field(default_factory=list)
    leader: Annotated[list[str], Meta(description="Which process leads now, in sentences.")] = field(
        default_factory=list
    )
    events: Annotated[list[Told], Meta(description="The controllers' Events about the object, the latest last.")] = (
        field(default_factory=list)
    )
    unasked: Annotated[list[Unasked], Meta(description="Questions that got no answer.")] = field(default_factory=list)
    waits: Annotated[bool, Meta(description="Whether the object's state alone shows that something is left to do.")] = (
        False
    )

    @property
    def status(self) -> int:
        """The exit status; at least 1 if the state alone shows that something is left to do (`waits`)."""
        return max(status_of(self.outlooks, self.unasked), 1 if self.waits else 0)


def told_by(events: Iterable[Event], components: Sequence[str], uid: str) -> list[Told]:
    """Return the Events of these components about the object with this UID, the latest last. Other objects may have had
    its name."""
    relevant = [event for event in events if event.source.component in components and event.involved_object.uid == uid]
    relevant.sort(key=lambda each: each.last_timestamp or "")
    return [
        Told(each.reason, each.message, each.source.component, each.last_timestamp, each.count or 1)
        for each in relevant
    ]


def together(clouds: Sequence[str], parts: Sequence[Explanation]) -> Explanation:
    """Join the explanations of one object from several clouds: `looked_up` and `outlooks` from all of them, everything
    else from the first. `clouds`: the clouds' names, "" for the only cloud."""
    outlooks = [
        msgspec.structs.replace(outlook, cloud=cloud)
        for cloud, part in zip(clouds, parts, strict=True)
        for outlook in part.outlooks
    ]
    looked_up = [row for part in parts for row in part.looked_up]
    return msgspec.structs.replace(parts[0], looked_up=looked_up, outlooks=outlooks)


def event_line(event: Told, now: datetime.datetime) -> str:
    times = f", {event.count} times" if event.count > 1 else ""
    return f"{event.reason} ({ago(event.last, now)}{times}): {event.message}"


def render(explanation: Explanation, now: datetime.datetime) -> list[str]:
    """Return lines of text, safe for a terminal."""
    lines = [one_line(line) for line in explanation.state]
    if explanation.looked_up:
        rows = [(each.what, each.where, each.answer) for each in explanation.looked_up]
        lines += ["", "LOOKED UP", *(f"  {row}" for row in table(("WHAT", "WHERE", "ANSWER"), rows))]
    if explanation.nearest:
        lines += section("SIMILAR NAMES IN THE CLOUD", [", ".join(explanation.nearest)])
    lines += section("NEXT", _next(explanation.outlooks))
    lines += section("RULE", dict.fromkeys(_rules(explanation.outlooks)))
    lines += section("DO", dict.fromkeys(outlook.to_do for outlook in explanation.outlooks if outlook.to_do))
    lines += section("NOTES", (note for outlook in explanation.outlooks for note in outlook.notes))
    lines += ["", *map(one_line, explanation.leader)] if explanation.leader else []
    lines += section(
        "Events about it, the latest last:", (event_line(event, now) for event in explanation.events[-SHOWN:])
    )
    lines += section("NOT ANSWERED", (f"{each.question}: {each.why}" for each in explanation.unasked))
    return lines


def _next(outlooks: Iterable[Outlook]) -> Iterable[str]:
    for outlook in outlooks:
        when = f" ({outlook.when})" if outlook.when else ""
        reason = f"{outlook.reason}: " if outlook.reason else ""
        yield f"{outlook.action.value}{when}: {reason}{outlook.because}"
        yield from (f"  {change}" for change in outlook.changes)


def _rules(outlooks: Iterable[Outlook]) -> Iterable[str]:
    for outlook in outlooks:
        if outlook.rule:
            yield f"{outlook.rule} ({outlook.flag})" if outlook.flag else outlook.rule

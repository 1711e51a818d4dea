# SPDX-License-Identifier: Apache-2.0
"""`ccm plan`: what the runtime would do now to Nodes, load balancers, routes and volumes if it led. Reads only."""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from ccm.options.command_line import Parser

from .asking.answers import Action, Outlook, Unasked, one_line, section, status_of, table
from .asking.asking import answer
from .asking.leading import leader_lines
from .asking.question_flags import Questions, parser
from .asking.reading import open_clouds, open_cluster
from .outlooks.gathering import (
    Survey,
    all_routes,
    all_volumes,
    balancer_outlooks,
    gather,
)
from .outlooks.node_outlook import one_each

DESCRIPTION = """Report what the runtime would do now to Nodes, load balancers, routes and volumes if it led.

It reads the cluster and the cloud, and writes to neither. It takes the flags of the controller. Run it before the
runtime takes over from another controller."""
#: Kind of object -> the heading of its table.
HEADINGS = {"Node": "NODES", "LoadBalancer": "LOAD BALANCERS", "Route": "ROUTES", "PersistentVolume": "VOLUMES"}


class PlanAnswer(Struct, frozen=True, rename="camel", tag_field="answer", tag="plan"):
    """The answer of `ccm plan`."""

    server: Annotated[str, Meta(description="The API server's URL.")]
    provider: Annotated[str, Meta(description="`--cloud-provider`.")]
    cluster: Annotated[str, Meta(description="The cluster's name in the cloud, `--cluster-name`.")]
    leader: Annotated[list[str], Meta(description="Which process leads now, in sentences.")]
    controllers: Annotated[list[str], Meta(description="The controllers that would run.")]
    not_run: Annotated[dict[str, str], Meta(description="The controllers that would not run, with the reason.")]
    counts: Annotated[dict[str, dict[str, int]], Meta(description="The number of objects by kind and action.")]
    outlooks: Annotated[list[Outlook], Meta(description="Every object whose action is not `nothing`.")]
    unasked: Annotated[list[Unasked], Meta(description="Questions that got no answer.")]

    @property
    def status(self) -> int:
        return status_of(self.outlooks, self.unasked)


@dataclass(frozen=True)
class PlanFlags(Questions):
    requires_provider: ClassVar[bool] = True


def main(argv: Sequence[str]) -> int:
    """Run `ccm plan`. Return the exit status: 0 nothing to do, 1 something to do, 2 a question got no answer."""
    return answer(PlanFlags, argv, arguments(), _ask, render)


def arguments() -> Parser:
    return parser(PlanFlags, "ccm plan", DESCRIPTION)


async def _ask(options: PlanFlags) -> PlanAnswer:
    async with open_cluster(options) as cluster, open_clouds(options) as clouds:
        return await plan_of(await gather(options, cluster, clouds))


async def plan_of(survey: Survey) -> PlanAnswer:
    """Return the plan for what was gathered."""
    nodes = survey.node_outlooks()
    others = await asyncio.gather(*map(survey.outlooks, (balancer_outlooks, all_routes, all_volumes)))
    every = one_each([*nodes, *(outlook for outlooks in others for outlook in outlooks)])
    options = survey.options
    lease_name = f"{options.leader_elect_resource_namespace}/{options.leader_elect_resource_name}"
    counts = {kind: Counter(each.action.value for each in every if each.kind == kind) for kind in HEADINGS}
    return PlanAnswer(
        server=survey.cluster.client.server,
        provider=options.cloud_provider,
        cluster=options.cluster_name,
        leader=leader_lines(survey.first.lease, lease_name, survey.first.now),
        controllers=survey.usable,
        not_run=survey.not_run,
        counts={kind: dict(count) for kind, count in counts.items() if count},
        outlooks=[each for each in every if each.action is not Action.NOTHING],
        unasked=survey.cluster.unasked,
    )


def render(plan: PlanAnswer, now: datetime.datetime) -> list[str]:
    """Return lines of text, safe for a terminal."""
    lines = [
        one_line(f"Plan of provider {plan.provider}, cluster {plan.cluster}, for the API server {plan.server}"),
        *map(one_line, plan.leader),
        f"If it led, it would run: {', '.join(plan.controllers) or 'no controller'}",
        *(f"  not {name}: {one_line(why)}" for name, why in plan.not_run.items()),
    ]
    for kind, heading in HEADINGS.items():
        if kind in plan.counts:
            lines += ["", _counted(heading, plan.counts[kind])]
            lines += _rows(outlook for outlook in plan.outlooks if outlook.kind == kind)
    lines += section("NOT ANSWERED", (f"{each.question}: {each.why}" for each in plan.unasked))
    return [*lines, "", _summary(plan)]


def _counted(heading: str, count: dict[str, int]) -> str:
    parts = [f"{count[action]} {action}" for action in Action if action in count]
    return f"{heading}: {sum(count.values())}, of which {', '.join(parts)}"


def _rows(outlooks: Iterable[Outlook]) -> list[str]:
    every = list(outlooks)
    several = any(each.cloud for each in every)
    rows = []
    for outlook in every:
        reasons = [f"{outlook.reason}: {outlook.because}" if outlook.reason else outlook.because]
        lines = [*outlook.changes, *(reasons if not outlook.changes or outlook.action is Action.BLOCKED else [])]
        lines += [f"when: {outlook.when}"] if outlook.when and outlook.action in (Action.WAIT, Action.DELETE) else []
        lines += [f"do: {outlook.to_do}"] if outlook.to_do and outlook.to_do != "see the reason" else []
        for number, line in enumerate([*lines, *outlook.notes]):
            own = (outlook.action.value, *([outlook.cloud or "none"] if several else []), outlook.name)
            rows.append((*(own if number == 0 else [""] * len(own)), line))
    head = ("ACTION", *(["CLOUD"] if several else []), "NAME", "WHAT")
    return [f"  {row}" for row in table(head, rows)] if rows else []


def _summary(plan: PlanAnswer) -> str:
    if plan.status == 0:
        return "Nothing would change."
    counts = Counter(outlook.action for outlook in plan.outlooks)
    changes = sum(counts[action] for action in (Action.CREATE, Action.UPDATE, Action.DELETE))
    parts = [
        ("to change", changes),
        ("waiting", counts[Action.WAIT]),
        ("for a person", counts[Action.BLOCKED]),
        ("unknown", counts[Action.UNKNOWN]),
        ("questions without an answer", len(plan.unasked)),
    ]
    return ", ".join(f"{what}: {count}" for what, count in parts if count)

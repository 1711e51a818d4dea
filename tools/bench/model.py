# SPDX-License-Identifier: Apache-2.0
"""Estimates the costs of clusters that are larger than any that was measured. Pure: figures in, text out.

Each cost is a straight line through the medians of `growth` (100 to 5,000 Nodes). The line is checked against `large`
(15,000 Nodes), whose figures were not used to draw it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import linear_regression
from typing import Any

from . import table

Run = Mapping[str, Any]

CHECKED, ASKED = 15_000, (50_000, 100_000)
#: Instances on a page of the simulated cloud, and the calls that are not for pages: for the token and the project.
PAGE, OTHER_CALLS = 1000, 2
#: The longest time between two writes of a Node's status by its kubelet, in seconds (`nodeStatusReportFrequency`).
REPORT = 300
#: (the key of the figure in a run, the head of its column in the table, the format of its values)
COSTS = (
    ("seconds_leading", "seconds", "{:,.0f}"),
    ("api_cpu", "API server CPU s", "{:,.0f}"),
    ("cpu", "runtime CPU s", "{:,.0f}"),
    ("peak", "peak MiB", "{:,.0f}"),
)


def text(runs: Mapping[str, Sequence[Run]]) -> str:
    grown = [run for run in table.medians(runs["growth"]) if run["side"] == "ours"]
    measured = table.pick(runs["large"], "ours", tuning="tuned", size=CHECKED)
    lines = {
        key: linear_regression(*zip(*((run["size"], run[key]) for run in grown), strict=True)) for key, *_ in COSTS
    }
    header = ["Nodes", *(head for _, head, _ in COSTS), "cloud calls"]
    rows: list[Sequence[str]] = [header, ["---:"] * len(header)]
    for size in (CHECKED, *ASKED):
        guessed = [how.format(_at(lines[key], size)) for key, _, how in COSTS]
        rows.append([f"{size:,}, by the model", *guessed, str(math.ceil(size / PAGE) + OTHER_CALLS)])
    found = [how.format(measured[key]) for key, _, how in COSTS]
    rows.insert(3, [f"{CHECKED:,}, measured", *found, str(measured["cloud_calls"])])
    errors = [f"{_at(lines[key], CHECKED) / measured[key] - 1:+.0%}" for key, *_ in COSTS]
    rows.insert(4, ["error of the model", *errors, ""])
    each = lines["cpu"].slope * 1000
    return TEXT.format(
        table="\n".join(f"| {' | '.join(row)} |" for row in rows),
        each=f"{each:.2g}",
        most=f"{1000 / each:,.0f}",
        memory=f"{lines['peak'].slope * 1024:.1f}",
        writes=f"{2 / lines['seconds_leading'].slope:,.0f}",
        reports=f"{ASKED[-1] / REPORT:,.0f}",
    )


def _at(line: Any, size: int) -> float:
    return float(line.intercept + line.slope * size)


TEXT = """\
Every cost grows linearly with the number of Nodes, so a line through the medians from 100 to 5,000 Nodes predicts what
more Nodes cost. 15,000 Nodes were measured to check the line (`make bench BENCH=large`):

{table}

On this machine, API server, etcd, runtime and cloud share two cores, and the API server takes about {writes} writes a
second. Larger clusters have more cores for the API server. Then these limit the runtime, in this order:

1. **The API server's writes.** Each new Node needs two. The runtime is no limit until the API server takes more writes
   than one Python process can send: {each} ms of CPU a Node, so at most {most} Nodes a second.
2. **Memory**: {memory} KiB for each Node. Raise `memory` in `ccm_runtime_resources` before the cluster grows.
3. **Status reports of kubelets.** Each writes its Node at least every five minutes, which for 100,000 Nodes is
   {reports} watch events a second while nothing changes.
4. **The cloud's pages.** A refresh every five minutes needs one call for each page. With pages of 1,000, 100,000 Nodes
   need 100 calls, one every three seconds. A cloud with pages of 100 needs ten times as many, and
   `--node-status-update-frequency` should grow.

Kubernetes itself supports 5,000 Nodes a cluster. If one process is not enough, the Nodes could be divided into shards
by a hash of the Node's name, with one Lease each, so that every replica leads some shards. Each shard would need its
own watch, because the API server cannot select by a hash, unless the kubelets register with a label that has it. Each
shard would also list all instances, unless the cloud can list a part of them. Services and routes would stay with one
leader.
No cluster that was measured needs shards, so they are not implemented."""

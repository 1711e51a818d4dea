# SPDX-License-Identifier: Apache-2.0
"""docs/reference/nodes.md names exactly the Events and metrics of the node controllers."""

import re
from pathlib import Path

import prometheus_client

from ccm.controllers.nodes import (
    instance_warnings,
    node,
    node_fencing,
    node_lifecycle,
    node_lifecycle_metrics,
    node_lifecycle_rules,
    owners,
    ownership_rules,
    vouching,
    vouching_rules,
)
from ccm.controllers.shared import event_budget
from ccm.gateway import instance_directory

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "reference" / "nodes.md").read_text()
MODULES = (
    instance_warnings,
    node,
    node_fencing,
    node_lifecycle,
    node_lifecycle_rules,
    owners,
    ownership_rules,
    vouching,
    vouching_rules,
)
SOURCE = "".join(Path(module.__file__).read_text() for module in MODULES)
#: Strings that look like reasons in the code but are neither an Event's reason nor a metric's label.
OTHER = {"NoSchedule"}


def first_cells(title):
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_reason_is_explained():
    words = set(re.findall(r'"([A-Z][a-z]+(?:[A-Z][A-Za-z]*)+|Synced|Unconfirmed)"', SOURCE)) - OTHER
    assert first_cells("Events") <= words
    assert words - set(re.findall(r"`(\w+)`", PAGE)) == set()


def test_every_metric_is_explained():
    kinds = (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
    names = {instance_directory.PARTIAL._name}
    for module in (event_budget, node, node_lifecycle, node_lifecycle_metrics, vouching):
        for found in vars(module).values():
            if isinstance(found, kinds) and found._name.startswith("ccm_"):
                names.add(found._name + ("_total" if isinstance(found, prometheus_client.Counter) else ""))
    documented = first_cells("Metrics")
    assert {name for name in documented if name.startswith("ccm_")} == names

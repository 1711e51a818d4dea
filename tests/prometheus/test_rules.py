# SPDX-License-Identifier: Apache-2.0
"""Tests the alerts of ccm_runtime with Prometheus' own tool: in each situation, exactly its alerts fire."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from . import situations as table
from .situations import SITUATIONS, Situation

RULES = Path(__file__).parents[2] / "roles/ccm_runtime/files/monitoring/rules.yml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
}
NAMED = set(re.findall(r"\b(?:ccm|workqueue|leader_election)_\w+", " ".join(rule["expr"] for rule in ALERTS.values())))
#: Series of another component that the same Prometheus scrapes, with metrics of the same names.
OTHER = [
    'leader_election_master_status{instance="other",name="kube-scheduler"}',
    'workqueue_depth{instance="other",name="jobs"}',
    'workqueue_longest_running_processor_seconds{instance="other",name="jobs"}',
]
#: The value of each series in each minute; None if the series is not exposed.
Story = dict[str, list[float | None]]


def minutes(alert: str) -> int:
    """Return the minutes for which a rule waits."""
    number, unit = re.fullmatch(r"(\d+)([mh])", ALERTS[alert]["for"]).groups()  # type: ignore[union-attr]
    return int(number) * (60 if unit == "h" else 1)


def every_situation() -> list[Situation]:
    briefly = [table.brief(each, minutes(next(iter(each.alerts))) - 1) for each in table.of_gauges()]
    return [*SITUATIONS, *briefly]


EVERY = every_situation()


def lived(number: int, leads: bool) -> Story:
    """Return what a process exposes in a situation. Call it in a separate process: metrics keep their values."""
    situation = EVERY[number]
    exposed = REGISTRY.restricted_registry(NAMED)
    story: Story = defaultdict(lambda: [None] * table.END)
    for minute in range(table.END):
        faulty = 0 <= minute - table.START < situation.lasts
        if faulty and not situation.runs:
            continue
        table.healthy(minute, leads=leads, cloud=situation.cloud or not faulty)
        if faulty and leads:
            situation.fault(minute - table.START)
        for sample in (each for family in exposed.collect() for each in family.samples):
            labels = {"instance": "leader" if leads else "standby", **sample.labels}
            shown = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
            story[f"{sample.name}{{{shown}}}"][minute] = sample.value
    return dict(story)


def values(story: list[float | None]) -> str:
    """Return the values in promtool's notation. A series that a scrape no longer has is stale at once."""
    shown, before = [], None
    for value in story:
        shown.append(str(value) if value is not None else "stale" if before is not None else "_")
        before = value
    return " ".join(shown)


def switched(situation: Situation) -> str:
    """Return the values, in promtool's notation, of a series that is 1 during the fault, else 0."""
    after = table.END - table.START - situation.lasts
    return f"0x{table.START - 1} 1x{situation.lasts - 1} 0x{after - 1}"


def firing(alert: str, labels: Any) -> dict[str, Any]:
    rule = ALERTS[alert]
    summary = rule["annotations"]["summary"]
    for name, value in labels.items():
        summary = summary.replace(f"{{{{ $labels.{name} }}}}", value)
    return {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": {**rule["annotations"], "summary": summary},
    }


def checks(situation: Situation) -> list[dict[str, Any]]:
    """Return promtool's checks of which alerts fire at certain minutes. An alert fires only after its rule's wait, and
    has ended in the last minute."""
    found = []

    def check(minute: int, alert: str, fires: bool) -> None:
        expected = [firing(alert, situation.alerts[alert])] if fires else []
        found.append({"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected})

    for alert in ALERTS:
        if alert in situation.alerts:
            check(table.START + minutes(alert) - 1, alert, False)
            check(table.START + (situation.fires or minutes(alert) + 1), alert, True)
        else:
            for minute in range(table.START, table.END, 5):
                check(minute, alert, False)
        check(table.END - 1, alert, False)
    return found


def test_the_table_has_every_alert():
    assert {alert for each in SITUATIONS for alert in each.alerts} == set(ALERTS)


def test_prometheus_accepts_the_rules(promtool: Path):
    done = subprocess.run([promtool, "check", "rules", "--lint=all", RULES], capture_output=True, text=True)
    assert done.returncode == 0 and f"SUCCESS: {len(ALERTS)} rules found" in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module")
def stories() -> dict[str, Story]:
    """Return what a leader and a standby expose in each situation. The fault hits only the leader, except that in a
    situation without running processes both are gone."""
    restarted = [number for number, each in enumerate(EVERY) if not each.runs]
    with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        leaders = pool.starmap(lived, [(number, True) for number in range(len(EVERY))], chunksize=1)
        quiet, *others = pool.starmap(lived, [(number, False) for number in (0, *restarted)], chunksize=1)
    standbys = dict(zip(restarted, others, strict=True))
    return {each.name: leaders[number] | standbys.get(number, quiet) for number, each in enumerate(EVERY)}


def test_the_situations_have_every_metric_that_a_rule_names(stories: dict[str, Story]):
    exposed = {series.partition("{")[0] for story in stories.values() for series in story}
    assert exposed == NAMED


@pytest.mark.parametrize("situation", EVERY, ids=lambda each: each.name)
def test_what_fires(situation: Situation, stories: dict[str, Story], promtool: Path, tmp_path: Path):
    story = stories[situation.name]
    series = [{"series": name, "values": values(each)} for name, each in story.items()]
    series += [{"series": name, "values": f"5000x{table.END}"} for name in OTHER]
    series += [{"series": name, "values": switched(situation)} for name in situation.elsewhere]
    test = {"name": situation.name, "interval": "1m", "input_series": series, "alert_rule_test": checks(situation)}
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(json.dumps(document))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

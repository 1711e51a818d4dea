# SPDX-License-Identifier: Apache-2.0
"""The rulebooks of extensions/eda name existing things; their filter and their source do what they document."""

from __future__ import annotations

import logging
import re
import runpy
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from .test_awx_files import options

ROOT = Path(__file__).parents[2]
EDA = ROOT / "extensions/eda"
GROUPS = yaml.safe_load((ROOT / "roles/ccm_runtime/files/monitoring/rules.yml").read_text())["groups"]
ALERTS = {rule["alert"] for group in GROUPS for rule in group["rules"]}
BOOKS = {path.stem: yaml.safe_load(path.read_text())[0] for path in sorted((EDA / "rulebooks").glob("*.yml"))}
FILTER = runpy.run_path(str(EDA / "plugins/event_filter/alerts.py"))
SOURCE = runpy.run_path(str(EDA / "plugins/event_source/drift.py"))
PAGE = (ROOT / "docs/how-to/event-driven.md").read_text()
#: Alerts that the event source reports, not Prometheus.
OF_THE_SOURCE = set(re.findall(r'\("(Ccm\w+)"', (EDA / "plugins/event_source/drift.py").read_text()))
each_book = pytest.mark.parametrize("name", BOOKS)


def answers(name: str) -> dict[str, list[str]]:
    (source,) = BOOKS[name]["sources"]
    (only,) = source["filters"]
    return only["outoftree.ccm.alerts"]


@each_book
def test_every_alert_exists_and_is_on_the_page(name: str):
    named = {alert for alerts in answers(name).values() for alert in alerts}
    assert named <= (OF_THE_SOURCE if name == "drift" else ALERTS)
    assert all(f"`{alert}`" in PAGE for alert in named)


#: The name and the alerts of each rule that starts a playbook, by rulebook and answer.
TITLES = {
    ("alerts", "worker"): ("A worker joined without the flag", {"CcmNodeUnmanaged"}),
    ("alerts", "cluster"): ("Controllers run, and none leads", {"CcmNoLeader"}),
    ("drift", "worker"): ("A worker joined without the flag", {"CcmNodeUnmanaged"}),
    ("drift", "cluster"): (
        "No controller works, or a control plane was reverted",
        {"CcmNotRunning", "CcmControlPlaneReverted"},
    ),
    ("drift", "report"): (
        "The controller was removed, or a deletion is held",
        {"CcmControllerRemoved", "CcmNodeDeletionHeld"},
    ),
}


@each_book
def test_a_rule_names_what_its_own_alerts_see(name: str):
    titles = {rule["condition"].split('"')[1]: rule["name"] for rule in BOOKS[name]["rules"]}
    assert set(titles) == set(answers(name))
    for answer, alerts in answers(name).items():
        expected = TITLES.get((name, answer), ("A person decides what is done", set(alerts)))
        assert (titles[answer], set(alerts)) == expected


def test_everything_that_the_source_reports_is_answered():
    assert {alert for alerts in answers("drift").values() for alert in alerts} == OF_THE_SOURCE


@each_book
@pytest.mark.parametrize("heal", [None, False, "false", "", True, "true"])
def test_every_playbook_exists_and_only_healing_changes_something(name: str, heal: Any):
    variables = {} if heal is None else {"ccm_eda_heal": heal}
    books = []
    for rule in BOOKS[name]["rules"]:
        (action,) = rule["action"].items()
        assert action[0] == "run_playbook" and set(action[1]) == {"name"}, "nothing of an event becomes a variable"
        books.append(jinja2.Template(action[1]["name"]).render(variables))
    healed = "outoftree.ccm.site" if heal in (True, "true") else "outoftree.ccm.verify"
    assert books == [healed, healed, "outoftree.ccm.verify"]
    assert all((ROOT / "playbooks" / f"{book.rpartition('.')[2]}.yml").is_file() for book in books)


@each_book
def test_every_variable_is_described(name: str):
    used = set(re.findall(r"\bccm_\w+", (EDA / "rulebooks" / f"{name}.yml").read_text()))
    used -= {path.name for path in (ROOT / "roles").iterdir()}
    own = {variable for variable in used if variable.startswith("ccm_eda_")}
    assert used - own <= set(options())
    assert all(f"`{variable}`" in PAGE for variable in own)


def test_both_rulebooks_have_the_same_rules_and_each_waits_before_it_acts_again():
    alerts, drift = ([{**rule, "name": ""} for rule in BOOKS[name]["rules"]] for name in ("alerts", "drift"))
    assert alerts == drift
    for wait in (rule["throttle"] for rule in BOOKS["alerts"]["rules"]):
        assert wait["once_within"] == "30 minutes" and "event.alert" in wait["group_by_attributes"]
    assert {rule["condition"] for rule in BOOKS["alerts"]["rules"]} == {
        f'event.answer == "{answer}"' for answer in answers("alerts")
    }
    # A rulebook's `all` does not include localhost, where the playbooks validate the inventory.
    assert all(book["hosts"] == "localhost,all" for book in BOOKS.values())


def test_galaxy_lists_the_plugins():
    listed = yaml.safe_load((ROOT / "meta/extensions.yml").read_text())["extensions"]
    assert {each["args"]["ext_dir"] for each in listed} == {
        str(path.parent.relative_to(EDA.parent)) for path in EDA.rglob("*.py")
    }


def alert(name: Any = "One", status: str = "firing", **labels: Any) -> dict[str, Any]:
    return {"status": status, "labels": {"alertname": name, **labels}, "annotations": {"text": "{{ 1 }}"}}


def answered(*alerts: Any) -> list[dict[str, Any]]:
    event = {"payload": {"alerts": list(alerts)}, "meta": {"headers": {"User-Agent": "{{ 1 }}"}}}
    return FILTER["main"](event, worker=["One"], cluster=["All"], report=["Held"], most_workers=2)


def test_an_answer_has_nothing_of_the_message_but_names():
    limited = {"hosts": ["localhost", "kube_control_plane", "w-1.example.com"]}
    assert answered(alert(node="w-1.example.com"), alert("All", node="w-2"), alert("Held")) == [
        {"alert": "One", "answer": "worker", "node": "w-1.example.com", "meta": limited},
        {"alert": "All", "answer": "cluster", "node": ""},
        {"alert": "Held", "answer": "report", "node": ""},
    ]


@pytest.mark.parametrize(
    "node",
    [
        "", "w_1", "W-1", "-w", "w-", "w 1", "w-1\n", "w-1,w-2", "w-1:w-2", "!w-1", "@/etc/passwd", "~.*", "*",
        "w[1:9]", "$(id)", "`id`", "{{ 1 }}", "--extra-vars", "a" * 254, "all", "ungrouped", "localhost", 7, None,
        ["w-1"], {},
    ],
)  # fmt: skip
def test_no_other_text_becomes_a_host(node: Any, caplog: pytest.LogCaptureFixture):
    assert answered(alert(node=node)) == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and record.getMessage().startswith("the alert One was dropped: ")
    assert "\n" not in record.getMessage() and len(record.getMessage()) < 200


@pytest.mark.parametrize(
    "event",
    [{}, [], None, "text", {"payload": 7}, {"payload": []}, {"payload": {}}, {"payload": {"alerts": {"labels": {}}}},
     {"payload": {"alerts": [7, None, {}, {"labels": []}, {"status": "firing", "labels": 1}]}}],
)  # fmt: skip
def test_what_is_no_message_is_dropped_and_said(event: Any, caplog: pytest.LogCaptureFixture):
    assert FILTER["main"](event, worker=["One"]) == []
    assert caplog.records and all("dropped" in record.getMessage() for record in caplog.records)


def test_what_is_over_or_has_no_answer_starts_nothing(caplog: pytest.LogCaptureFixture):
    assert answered(alert("All", status="resolved"), alert("Other"), alert(["One"]), alert(None)) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"the alert {name} was dropped: the rulebook has no answer to it" for name in ("'Other'", "['One']", "None")
    ]


def test_many_nodes_at_once_are_reported_and_not_healed():
    few = [alert(node="w-1"), alert(node="w-1"), alert(node="w-2")]
    assert {each["answer"] for each in answered(*few)} == {"worker"}
    assert answered(*few, alert("All"), alert(node="w-3")) == [
        {"alert": "All", "answer": "cluster", "node": ""},
        {"alert": "One", "answer": "report", "node": ""},
    ]


def node(name: str, taint: str = "", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec | ({"taints": [{"key": taint}]} if taint else {})}


def pod(*words: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"command": ["kube-controller-manager", *words]}]}}


def held(ready: str, uid: str = "1") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"metadata": {"name": "w-1", "uid": uid}, "spec": {"providerID": "sim://1"}, "status": status}


RUNNING = {"status": {"numberReady": 1}}
REVERTED = {("CcmControlPlaneReverted", "")}
HEALTHY = [node("cp-1", providerID="sim://1"), node("new", SOURCE["TAINT"])]
HOLDS = [{"reason": "DeletionHeld", "involvedObject": {"kind": "Node", "name": "w-1", "uid": "1"}}]


@pytest.mark.parametrize(
    ("nodes", "pods", "events", "daemonset", "expected"),
    [
        (HEALTHY, [pod("--cloud-provider=external"), pod("--cloud-provider=")], [], RUNNING, set()),
        ([], [pod("--cluster-name=a")], [], RUNNING, set()),
        (
            [node("w-1"), node("w-2", "dedicated")],
            [],
            [],
            RUNNING,
            {("CcmNodeUnmanaged", name) for name in ("w-1", "w-2")},
        ),
        ([{"metadata": {"name": "w-1", "deletionTimestamp": "now"}}], [], [], RUNNING, set()),
        (HEALTHY, [pod("--cloud-provider=external"), pod("--cloud-provider=aws")], [], RUNNING, REVERTED),
        ([], [pod("--cloud-provider=aws", "--cloud-provider=external")], [], RUNNING, set()),
        ([node("w-1")], [pod("--cloud-provider=aws")], HOLDS, None, {("CcmControllerRemoved", "")}),
        ([], [], [], {}, {("CcmNotRunning", "")}),
        ([], [], [], {"status": {"numberReady": 0}}, {("CcmNotRunning", "")}),
        ([held("Unknown")], [], HOLDS, RUNNING, {("CcmNodeDeletionHeld", "")}),
        ([held("False")], [], HOLDS, RUNNING, {("CcmNodeDeletionHeld", "")}),
        ([held("False")], [], [], RUNNING, set()),
        ([held("True")], [], HOLDS, RUNNING, set()),
        ([held("False", uid="2")], [], HOLDS, RUNNING, set()),
        (HEALTHY, [], HOLDS, RUNNING, set()),
        ([held("False")], [], [{"involvedObject": None}, {}], RUNNING, set()),
    ],
)
def test_what_differs_is_named(nodes: Any, pods: Any, events: Any, daemonset: Any, expected: set[tuple[str, str]]):
    assert SOURCE["drifts"](nodes, pods, events, daemonset) == expected


def test_the_source_sends_what_the_filter_reads():
    sent = SOURCE["message"]({("CcmNodeUnmanaged", "w-1"), ("CcmNotRunning", "")})
    found = FILTER["main"](sent, **answers("drift"))
    assert [(each["alert"], each["answer"], each["node"]) for each in found] == [
        ("CcmNodeUnmanaged", "worker", "w-1"),
        ("CcmNotRunning", "cluster", ""),
    ]


async def test_only_what_two_looks_see_is_sent(monkeypatch: pytest.MonkeyPatch):
    """The cluster is healthy, has a drift that passes, and then a drift that lasts. One read of the latter fails."""
    looks: list[Any] = [
        (HEALTHY, [], [], RUNNING), (HEALTHY, [], [], {}), (HEALTHY, [], [], RUNNING), (HEALTHY, [], [], {}),
        OSError("away"), (HEALTHY, [], [], {}), (HEALTHY, [], [], {}), KeyboardInterrupt(),
    ]  # fmt: skip
    sent = []

    def look() -> Any:
        seen = looks.pop(0)
        if isinstance(seen, BaseException):
            raise seen
        return seen

    class Queue:
        async def put(self, event: Any) -> None:
            sent.append((event, len(looks)))

    async def at_once(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    scope = SOURCE["main"].__globals__
    monkeypatch.setitem(scope, "_reader", lambda arguments: look)
    monkeypatch.setattr(scope["asyncio"], "to_thread", at_once)
    with pytest.raises(KeyboardInterrupt):
        await SOURCE["main"](Queue(), {"interval": 0.001})
    assert sent == [(SOURCE["message"]({("CcmNotRunning", "")}), 1)]

# SPDX-License-Identifier: Apache-2.0
"""The suite for any controller: its catalogue, the result of one behaviour, and results that a run resumes from."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from ccm_suite import behaviour, command, report, rights, runner
from ccm_suite.behaviour import Behaviour, Disturbance, Level, Steps, catalogue
from ccm_suite.behaviours import load_balancers
from ccm_suite.behaviours import rights as rights_behaviours
from ccm_suite.cloud import Cloud, Fault, LoadBalancer, Settings
from ccm_suite.controller import command_of
from ccm_suite.errors import Failed, SuiteError, Unsupported
from ccm_suite.kube import MARK
from ccm_suite.report import Results
from ccm_suite.runner import Result, Run, _Attempt
from ccm_suite.trial import Trial, World
from ccm_suite.turn import Turn
from kubernetes.client import ApiException

from tools import suite

SOURCE = "https://example.com/"


def attempt(function: Any, when: behaviour.When = Disturbance.NONE) -> tuple[_Attempt, list[Result]]:
    """Return an attempt that was not advanced yet, and the list that gets its result."""
    results: list[Result] = []
    world = cast(World, type("World", (), {"kube": None, "cloud": None, "run": "1", "stopped": threading.Event()})())
    about = Behaviour("x.y", Level.MUST, "It is so.", SOURCE, when, function)
    return _Attempt(about, Trial(world, "x.y"), results.append), results


def test_the_catalogue_has_what_each_behaviour_needs() -> None:
    known = catalogue()
    assert len(known) >= 120
    assert {each.level for each in known.values()} == set(Level)
    assert {each.when for each in known.values()} == {*Disturbance, *Fault}
    assert len({each.sentence for each in known.values()}) == len(known)


@pytest.mark.parametrize(
    ("id", "sentence", "source"),
    [
        ("node.taint", "It is so.", SOURCE),
        ("node", "It is so.", SOURCE),
        ("x.z", "it is so", SOURCE),
        ("x.z", "It is so.", "a book"),
    ],
)
def test_a_behaviour_that_no_report_can_name_is_refused(id: str, sentence: str, source: str) -> None:
    catalogue()
    with pytest.raises(ValueError, match=id):
        behaviour.behaviour(id, Level.MUST, sentence, source)


def test_a_behaviour_with_a_disturbance_has_to_yield() -> None:
    with pytest.raises(ValueError, match="yields before and after"):
        behaviour.behaviour("x.z", Level.MUST, "It is so.", SOURCE, Disturbance.KILLED)(lambda trial: None)


def test_outcomes_name_their_reason() -> None:
    def fails(trial: Trial) -> None:
        raise Failed("the Node n1 is gone")

    def is_unsupported(trial: Trial) -> None:
        raise Unsupported("routes")

    def breaks(trial: Trial) -> None:
        raise KeyError("port")

    for function, outcome, reason in (
        (lambda trial: None, "passed", ""),
        (fails, "failed", "the Node n1 is gone"),
        (is_unsupported, "skipped", "not possible here: routes"),
        (breaks, "failed", "the suite failed"),
    ):
        tried, results = attempt(function)
        tried.advance()
        assert [(each.outcome, each.reason[: len(reason)]) for each in results] == [(outcome, reason)]


def test_a_behaviour_with_a_disturbance_ends_after_its_third_part() -> None:
    parts: list[str] = []

    def steps(trial: Trial) -> Steps:
        parts.append("before")
        yield
        parts.append("while")
        yield
        parts.append("after")

    tried, results = attempt(steps, Fault.TIMEOUT)
    for count in (1, 2):
        tried.advance()
        assert (len(parts), tried.has_ended, results) == (count, False, [])
    tried.advance()
    assert parts == ["before", "while", "after"]
    assert tried.has_ended and results[0].outcome == "passed"


def test_a_run_that_is_stopped_has_no_verdict_on_what_was_waiting() -> None:
    tried, results = attempt(lambda trial: World.wait(trial.world, 600))
    tried._trial.world.stopped.set()
    with pytest.raises(SuiteError, match="stopped"):
        tried.advance()
    assert results == []


def run_of(
    monkeypatch: pytest.MonkeyPatch, *behaviours: Behaviour, turn: Turn | None = None, **replaced: Callable[..., Any]
) -> tuple[list[Result], list[str]]:
    """Run these behaviours without a cluster. Return results, and what was done to the controller."""
    monkeypatch.setattr(runner, "FLEET", 0)
    monkeypatch.setattr(runner, "FEW", 1)
    monkeypatch.setattr(Run, "_lead", lambda _: None)
    for name in ("clean_up", "delete_machines"):
        own = replaced.get(name, lambda _: None)
        monkeypatch.setattr(Trial, name, lambda trial, own=own: trial.id == "suite.fleet" or own(trial))
    results, calls = list[Result](), list[str]()
    process = {"stop": lambda *_: calls.append("stop"), "start": lambda _: calls.append("start")}
    controller = cast(Any, type("Controller", (), process)())
    broken = replaced.get("broken", lambda _: contextlib.nullcontext())
    cloud = cast(Any, type("Cloud", (), {"broken": lambda _, fault: broken(fault)})())
    world = World(cast(Any, None), cloud, "1")
    monkeypatch.setattr(world, "wait", lambda _: None)
    Run(world, controller, controller, None, lambda _: None, turn or Turn(None)).all(behaviours, results.append)
    assert calls.pop(0) == "start"
    return results, calls


def test_nothing_is_prepared_for_a_fault_that_a_cloud_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(trial: Trial) -> Iterator[None]:
        pytest.fail("it was prepared")
        yield

    def broken(fault: Fault) -> contextlib.AbstractContextManager[None]:
        raise Unsupported(f"the fault {fault}")

    asked = Behaviour("fault.x", Level.MUST, "It is so.", SOURCE, Fault.TIMEOUT, steps)
    results, calls = run_of(monkeypatch, asked, broken=broken)
    assert [(each.outcome, each.reason) for each in results] == [("skipped", "not possible here: the fault timeout")]
    assert calls == []


def disturbances(turn: Turn, *which: behaviour.When) -> Iterator[behaviour.When]:
    """Return the disturbances of a run in the order in which it takes them."""
    nothing = cast(Any, None)
    behaviours = [Behaviour("x.y", Level.MUST, "It is so.", SOURCE, when, nothing) for when in which]
    return Run(nothing, nothing, nothing, None, nothing, turn)._disturbances(behaviours)


def test_the_busiest_behaviours_run_as_soon_as_no_other_run_has_its_turn(tmp_path: Path) -> None:
    other = Turn(tmp_path / "turn")
    assert other.take(wait=False)
    order = disturbances(Turn(tmp_path / "turn"), Disturbance.NONE, Fault.TIMEOUT, Fault.EMPTY_LISTING)
    assert next(order) is Fault.TIMEOUT
    other.end()
    assert next(order) is Disturbance.NONE
    assert not other.take(wait=False)
    assert next(order) is Fault.EMPTY_LISTING
    assert other.take(wait=False)
    assert list(order) == []


def test_the_busiest_behaviours_wait_if_nothing_else_is_left(tmp_path: Path) -> None:
    other = Turn(tmp_path / "turn")
    assert other.take(wait=False)
    order = disturbances(Turn(tmp_path / "turn"), Disturbance.API_AWAY, Disturbance.NONE, Fault.TIMEOUT)
    assert next(order) is Fault.TIMEOUT
    with ThreadPoolExecutor(1) as pool:
        last = pool.submit(next, order)
        other.end()
        assert last.result() is Disturbance.NONE
    assert list(order) == [Disturbance.API_AWAY]


def test_a_run_that_shares_no_turn_begins_with_the_busiest_behaviours() -> None:
    assert list(disturbances(Turn(None), Fault.TIMEOUT, Disturbance.NONE)) == [Disturbance.NONE, Fault.TIMEOUT]


@pytest.mark.parametrize("passes_again", [True, False])
def test_what_fails_beside_others_is_asked_again(passes_again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()

    def steps(trial: Trial) -> None:
        tried.append(trial.id)
        if trial.id != "x.good" and not (passes_again and trial.id.endswith(".again")):
            raise Failed("it is served: not within 60 s")

    behaviours = [
        Behaviour(id, Level.MUST, "It is so.", SOURCE, Disturbance.NONE, steps) for id in ("x.a", "x.b", "x.good")
    ]
    cleaned = list[str]()
    results, _ = run_of(monkeypatch, *behaviours, clean_up=lambda trial: cleaned.append(trial.id))
    assert sorted(tried[:3]) == ["x.a", "x.b", "x.good"] and tried[3:] == ["x.a.again", "x.b.again"]
    assert {"x.a.again", "x.b.again"} <= set(cleaned)
    assert {each.id: each.outcome for each in results} == {
        **dict.fromkeys(("x.a", "x.b"), "passed" if passes_again else "failed"),
        "x.good": "passed",
    }


def test_another_run_has_its_turn_while_failures_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, takes = Turn(tmp_path / "turn"), list[bool]()

    def steps(trial: Trial) -> None:
        takes.append(other.take(wait=False))
        raise Failed("it is served: not within 60 s")

    behaviours = [Behaviour(id, Level.MUST, "It is so.", SOURCE, Disturbance.NONE, steps) for id in ("x.a", "x.b")]
    run_of(monkeypatch, *behaviours, turn=Turn(tmp_path / "turn"))
    assert takes == [False, False, True, True]


@pytest.mark.parametrize(("recovers", "calls"), [(True, []), (False, ["stop", "start"])])
def test_a_controller_that_does_not_recover_is_restarted(
    recovers: bool, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(trial: Trial) -> Steps:
        yield
        yield
        if not recovers:
            raise Failed("the Node is initialised: not within 120 s")

    results, seen = run_of(monkeypatch, Behaviour("x.y", Level.MUST, "It is so.", SOURCE, Fault.TIMEOUT, steps))
    assert ([each.outcome for each in results], seen) == (["passed" if recovers else "failed"], calls)


def test_the_next_behaviours_begin_while_the_last_ones_are_cleaned_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines are deleted later, when nothing that needs a load balancer begins."""
    begins, order = threading.Event(), list[str]()

    def first(trial: Trial) -> Steps:
        yield
        yield

    def second(trial: Trial) -> Steps:
        begins.set()
        order.append("begins")
        yield
        order.append("is disturbed")
        yield

    def clean_up(trial: Trial) -> None:
        assert begins.wait(30), "the next one does not begin until this one is cleaned up"

    results, _ = run_of(
        monkeypatch,
        Behaviour("x.first", Level.MUST, "It is so.", SOURCE, Fault.TIMEOUT, first),
        Behaviour("x.second", Level.MUST, "It is so.", SOURCE, Fault.INTERNAL, second),
        clean_up=clean_up,
        delete_machines=lambda trial: order.append(f"{trial.id} has no machines"),
    )
    assert [each.outcome for each in results] == ["passed", "passed"]
    assert order == ["begins", "x.first has no machines", "is disturbed", "x.second has no machines"]


def test_a_load_balancer_that_gets_the_address_of_a_former_one_is_another_one() -> None:
    class Address(Cloud):
        start = stop = create_machine = delete_machine = cast(Any, None)
        id = "lb-1"

        def load_balancers(self) -> list[LoadBalancer]:
            return [LoadBalancer(self.id, "198.18.0.1", frozenset(), frozenset())]

    cloud = Address()
    trial = Trial(World(cast(Any, None), cloud, "1", numbers=itertools.count()), "x.y")
    assert trial.balancer("198.18.0.1") is not None
    cloud.id = "lb-2"
    assert trial.balancer("198.18.0.1") is None


def test_the_command_has_its_names_replaced() -> None:
    assert command_of("run --port={port} 'a b'", {"port": "1"}) == ["run", "--port=1", "a b"]
    with pytest.raises(SuiteError, match=r"\{conf\} is unknown; there are \{port\}"):
        command_of("run {conf}", {"port": "1"})
    with pytest.raises(SuiteError, match="--controller: No closing quotation"):
        command_of("run 'a", {})


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    first = Results(tmp_path / "r.json", "mine", iter((100.0, 130.0)).__next__)
    first.add(Result("node.taint", "passed", seconds=1.5, figures={"seconds": 1.0}))
    following = Results(tmp_path / "r.json", "mine", iter((500.0, 512.0)).__next__)
    following.resume()
    assert following.by_id == first.by_id
    assert following.counts() == {"passed": 1, "failed": 0, "skipped": 0}
    following.add(Result("route.made", "passed"))
    assert (first.seconds, following.seconds) == (30.0, 42.0)


def test_no_time_is_shown_if_that_of_an_earlier_run_is_not_known(tmp_path: Path) -> None:
    row = {"id": "node.taint", "outcome": "passed", "reason": "", "seconds": 1.5, "figures": {}}
    (tmp_path / "r.json").write_text(json.dumps({"controller": "mine", "results": [row]}))
    results = Results(tmp_path / "r.json", "mine", iter((100.0, 130.0)).__next__)
    results.resume()
    results.add(Result("route.made", "passed"))
    assert results.seconds == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "has no results of this suite"),
        ('{"results": []}', "has no results of this suite"),
        ('{"controller": "theirs", "results": []}', "has the results of theirs, not of mine"),
        ('{"controller": "mine", "results": [{"id": "x", "color": 1}]}', "has no results of this suite"),
    ],
)
def test_results_of_something_else_are_not_gone_on_from(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(SuiteError, match=message):
        Results(tmp_path / "r.json", "mine").resume()
    assert (tmp_path / "r.json").read_text() == text


def test_reports_say_why(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json", "mine")
    results.add(Result("node.taint", "failed", "not <within> 60 s"))
    results.add(Result("route.made", "skipped", "not possible here: routes"))
    cases = {case.get("classname"): case for case in ElementTree.fromstring(report.junit(results, catalogue()))}
    failure, skipped = cases["node.taint"].find("failure"), cases["route.made"].find("skipped")
    assert failure is not None and failure.get("message") == "not <within> 60 s"
    assert skipped is not None and skipped.get("message") == "not possible here: routes"
    assert "not &lt;within&gt; 60 s" in report.page(results, catalogue())
    row = next(line for line in report.table([results], catalogue()).splitlines() if "`node.taint`" in line)
    assert row.endswith("| **no** |")


def test_a_choice_of_nothing_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list", "--only", "nodes.*"]) == 2
    assert "--only nodes.*: no behaviour has such an ID" in capsys.readouterr().err
    assert command.main(["list", "--only", "node.*", "--level", "speed"]) == 0
    assert capsys.readouterr().out.startswith("node.fifty ")


def test_choices_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list", "--only", "node.taint", "--only", "node.told"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["node.taint", "node.told"]
    assert command.main(["list", "--only", "node.taint", "--only", "nodes.*"]) == 2
    assert "--only nodes.*: no behaviour has such an ID" in capsys.readouterr().err
    assert command.main(["list", "--only", "node.taint", "--level", "speed"]) == 2
    assert "--level speed: none of the chosen behaviours" in capsys.readouterr().err


def test_the_folder_of_the_results_is_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--controller=true", "--only=node.taint", f"--binaries={tmp_path}"]
    assert command.main([*arguments, f"--results={tmp_path}/new/deep/r.json"]) == 2
    assert (tmp_path / "new" / "deep").is_dir() and "etcd and kube-apiserver missing" in capsys.readouterr().err


def test_results_that_cannot_be_written_are_named_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    arguments = ["run", "--controller=true", "--only=node.taint", f"--binaries={tmp_path}"]

    def refused(results: Path) -> str:
        assert command.main([*arguments, f"--results={results}"]) == 2
        return capsys.readouterr().err

    assert refused(tmp_path) == f"ccm-suite: --results {tmp_path}: it is a folder\n"
    below = tmp_path / "file" / "r.json"
    assert refused(below).startswith(f"ccm-suite: --results {below}: ")
    monkeypatch.setattr(command.os, "access", lambda *_: False)
    assert "no file can be created in" in refused(tmp_path / "r.json")


@pytest.mark.parametrize("cloud", ["other", "no.such:Module", "json:Nothing", "ccm_suite.cloud:Cloud"])
def test_an_adapter_that_cannot_be_had_is_named(cloud: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--controller=true", f"--binaries={tmp_path}", f"--cloud={cloud}"]
    assert command.main([*arguments, f"--results={tmp_path}/r.json"]) == 2
    assert f"ccm-suite: --cloud {cloud}: " in capsys.readouterr().err


def test_missing_binaries_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "--controller=true", f"--binaries={tmp_path}", f"--results={tmp_path}/r.json"]) == 2
    assert "etcd and kube-apiserver missing" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_named_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr(command, "_try", slow)
    arguments = ["run", "--controller=true", "--only=node.taint", f"--binaries={tmp_path}"]
    assert command.main([*arguments, f"--results={tmp_path}/r.json"]) == 2
    assert capsys.readouterr().err == (
        "ccm-suite: the API server or the cloud does not answer (TimeoutError: timed out); the same command goes on "
        "from here\n"
    )
    assert not (tmp_path / "r.xml").exists()


def test_results_are_json_that_others_read(tmp_path: Path) -> None:
    results = Results(tmp_path / "r.json", "mine", iter((100.0, 107.0)).__next__)
    results.add(Result("node.taint", "passed"))
    assert json.loads((tmp_path / "r.json").read_text()) == {
        "controller": "mine",
        "seconds": 7.0,
        "results": [{"id": "node.taint", "outcome": "passed", "reason": "", "seconds": 0.0, "figures": {}}],
    }


@pytest.mark.parametrize(
    ("status", "left_out", "is_row"), [(0, (), True), (1, (), True), (1, ("node.taint",), False), (2, (), False)]
)
def test_a_run_that_did_not_end_is_no_row(
    status: int, left_out: tuple[str, ...], is_row: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> int:
        results = Results(tmp_path / "raw" / "ours.json", "ours")
        results.by_id = {id: Result(id, "passed") for id in catalogue() if id not in left_out}
        results.add(Result("route.made", "passed"))
        return status

    monkeypatch.setattr(suite, "RAW", tmp_path / "raw")
    monkeypatch.setattr(suite, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(suite, "binaries", lambda: tmp_path)
    monkeypatch.setattr(suite, "rendered", lambda _: [])
    monkeypatch.setattr(suite, "_shown", end)
    with contextlib.nullcontext() if is_row else pytest.raises(SuiteError, match=" results of ours; "):
        suite.run("ours", again=False)
    assert (tmp_path / "kept" / "ours.json").exists() is is_row


def test_all_controllers_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    all_began = threading.Barrier(len(suite.CONTROLLERS), timeout=60)
    monkeypatch.setattr(suite, "run", lambda *_, **__: all_began.wait())
    suite.run_all(list(suite.CONTROLLERS), again=True)


def test_a_run_that_ends_with_an_error_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def run(name: str, *, again: bool) -> None:
        if name == "ours":
            raise SuiteError("it does not start")
        assert failed.wait(30)

    def print_(*_: Any, **__: Any) -> None:
        failed.set()

    monkeypatch.setattr(suite, "run", run)
    monkeypatch.setattr(suite, "print", print_, raising=False)
    with pytest.raises(SuiteError, match="it does not start"):
        suite.run_all(["ours", "ours-aws"], again=True)


def test_a_run_shows_its_lines_under_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert suite._shown("ours", ["sh", "-c", "echo one; echo two; exit 3"], {}) == 3
    assert capsys.readouterr().out == "ours: one\nours: two\n"


def test_a_timer_is_no_slower_on_a_slow_machine() -> None:
    world = World(cast(Any, None), cast(Any, None), "1", patience=0.0)
    with pytest.raises(Failed, match=r"never: not within 0\.01 s"):
        Trial(world, "x.y").until("never", lambda: False, 50, timer=0.01)


def test_the_page_shows_what_was_seen() -> None:
    assert suite.PAGE.read_text() == suite.page(), "run `make docs`"


def test_the_page_names_the_thread_of_what_a_controller_does_not_do(tmp_path: Path) -> None:
    columns = [Results(tmp_path / f"{name}.json", name) for name in ("mine", "theirs")]
    columns[0].add(Result("leader.released", "passed"))
    columns[1].add(Result("leader.released", "failed", "held by a"))
    columns[1].add(Result("node.taint", "failed", "not within 60 s"))
    thread = "https://github.com/kubernetes/kubernetes/issues/119905"
    lines = suite._failures(columns).splitlines()
    assert [line for line in lines if line.startswith("  ")] == ["  - theirs: not within 60 s", "  - theirs: held by a"]
    assert lines[2].startswith("- `leader.released`: SIGTERM ")
    assert lines[2].endswith(f" ([kubernetes#119905]({thread}))")
    assert "([source](https://kubernetes.io/" in lines[0]
    assert suite._failures(columns[:1]) == "Nothing failed.\n"


def test_the_page_says_why_a_controller_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [Results(tmp_path / f"{name}.json", name) for name in ("mine", "theirs")]
    for column in columns:
        column.add(Result("node.taint", "failed", "not within 60 s"))
    monkeypatch.setattr(suite, "CAUSES", {"node.taint": {"theirs": "It asks once (their#1)."}})
    reasons = [line for line in suite._failures(columns).splitlines() if line.startswith("  ")]
    assert reasons == ["  - mine: not within 60 s", "  - theirs: not within 60 s. It asks once (their#1)."]


def test_a_cause_is_of_a_failure_that_was_seen() -> None:
    failed = set()
    for path in suite.KEPT.glob("*.json"):
        results = Results(path, path.stem)
        results.resume()
        failed |= {(result.id, path.stem) for result in results.by_id.values() if result.outcome == "failed"}
    assert {(id, name) for id, causes in suite.CAUSES.items() for name in causes} <= failed


def test_the_page_shows_what_each_controller_measured(tmp_path: Path) -> None:
    columns = [Results(tmp_path / f"{name}.json", name) for name in ("mine", "theirs")]
    columns[0].add(Result("restart.quiet", "passed", figures={"writes": 0}))
    columns[1].add(Result("restart.quiet", "failed", "writes after the restart is 5, not 0", figures={"writes": 5}))
    columns[1].add(Result("machine.five", "passed", figures={"seconds": 1.7}))
    assert suite._figures(columns).splitlines() == [
        "| ID | figure | mine | theirs |",
        "|---|---|---|---|",
        "| `machine.five` | seconds |  | 1.7 |",
        "| `restart.quiet` | writes | 0 | 5 |",
    ]


def test_what_was_seen_is_of_behaviours_that_there_are() -> None:
    for path in suite.KEPT.glob("*.json"):
        results = Results(path, path.stem)
        results.resume()
        assert results.by_id.keys() <= catalogue().keys(), f"make ccm-suite CONTROLLERS={path.stem}"


ACCOUNT = {"kind": "ServiceAccount", "metadata": {"name": "ccm", "namespace": "kube-system"}}
ROLE = {"kind": "ClusterRole", "metadata": {"name": "ccm"}, "rules": []}


def test_roles_are_the_account_and_its_rights_from_all_files(tmp_path: Path) -> None:
    (tmp_path / "roles.yaml").write_text(json.dumps({"kind": "List", "items": [ROLE]}))
    (tmp_path / "all.yaml").write_text(f'{{"kind": "DaemonSet"}}\n---\n{json.dumps(ACCOUNT)}\n---\n')
    assert rights.manifest_of([tmp_path / "roles.yaml", tmp_path / "all.yaml"]) == [ACCOUNT, ROLE]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(ROLE), "the files have 0 ServiceAccounts; exactly one is needed"),
        (f"{json.dumps(ACCOUNT)}\n---\n{json.dumps(ACCOUNT)}", "the files have 2 ServiceAccounts"),
        ("{", r"roles\.yaml: "),
        ("[1]", r"roles\.yaml: "),
        ("{}\n---\na: 1", r"roles\.yaml: 'kind'"),
    ],
)
def test_roles_that_cannot_be_used_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "roles.yaml").write_text(text)
    with pytest.raises(SuiteError, match=f"--roles.*{message}"):
        rights.manifest_of([tmp_path / "roles.yaml"])


class Roles:
    """An API server with roles: path -> object."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}

    def list(self, path: str) -> list[Any]:
        kind = path.partition("?")[0].rpartition("/")[2]
        made = [each for at, each in self.objects.items() if at.split("/")[-2] == kind]
        return [each for each in made if MARK in each["metadata"].get("labels", {})]

    def create(self, path: str, body: Any) -> Any:
        if path.endswith("/token"):
            return {"status": {"token": "t"}}
        at = f"{path}/{body['metadata']['name']}"
        if at in self.objects:
            raise ApiException(409, "Conflict")
        self.objects[at] = body
        return body

    def delete(self, path: str) -> None:
        del self.objects[path]


def granted(kube: Roles, folder: Path, *manifest: Any) -> None:
    (folder / "roles.yaml").write_text("\n---\n".join(json.dumps(each) for each in (ACCOUNT, *manifest)))
    user = {"name": "c", "context": {"user": "u"}}
    (folder / "kubeconfig").write_text(json.dumps({"contexts": [user], "current-context": "c"}))
    rights.grant([folder / "roles.yaml"], cast(Any, kube), folder / "kubeconfig", folder, None)


def test_roles_of_an_earlier_run_are_gone(tmp_path: Path) -> None:
    """They may be another vendor's, and give the same account more rights."""
    kube = Roles()
    wide = {"kind": "Role", "metadata": {"name": "wide", "namespace": "kube-system"}, "rules": [{"verbs": ["*"]}]}
    granted(kube, tmp_path, {**ROLE, "rules": [{"verbs": ["*"]}]}, wide)
    granted(kube, tmp_path, ROLE)
    assert sorted(at.rpartition("/")[2] for at in kube.objects) == ["ccm", "ccm"]
    assert [each["rules"] for each in kube.objects.values() if each["kind"] == "ClusterRole"] == [[]]


def test_roles_that_no_run_created_are_left_alone_and_named(tmp_path: Path) -> None:
    kube = Roles()
    kube.objects["/apis/rbac.authorization.k8s.io/v1/clusterroles/ccm"] = ROLE
    with pytest.raises(SuiteError, match="ClusterRole ccm exists, and no run of this suite created it"):
        granted(kube, tmp_path, ROLE)
    assert kube.objects["/apis/rbac.authorization.k8s.io/v1/clusterroles/ccm"] == ROLE


def test_what_the_api_server_refused_is_what_the_rights_of_the_controller_lack(tmp_path: Path) -> None:
    def event(user: str, decision: str, verb: str, code: int = 200, **target: str) -> str:
        about = {"objectRef": target} if target else {}
        row = {"user": {"username": user}, "responseStatus": {"code": code}, "verb": verb, "requestURI": "/x", **about}
        return json.dumps({**row, "annotations": {"authorization.k8s.io/decision": decision}})

    lines = [
        event("ccm", "allow", "get", resource="nodes"),
        event("ccm", "forbid", "delete", 403, resource="nodes"),
        event("ccm", "forbid", "delete", 403, resource="nodes"),
        event("ccm", "forbid", "patch", 403, resource="services", subresource="status"),
        event("ccm", "forbid", "get", 403),
        event("ccm", "allow", "create", 403, resource="events"),  # by NamespaceLifecycle
        event("other", "forbid", "list", 403, resource="secrets"),
    ]
    (tmp_path / "audit.log").write_text("\n".join(lines))
    seen = rights.Rights("ccm", (), tmp_path / "audit.log").refusals()
    assert seen == {"delete nodes", "patch services/status", "get /x"}


@pytest.mark.parametrize(
    ("works", "refused", "message"),
    [
        (False, {"delete nodes"}, r"refused so far is \['delete nodes'\], not \[\]"),
        (True, {"delete nodes"}, r"refused so far is \['delete nodes'\], not \[\]"),
        (False, set(), "the Node is not deleted"),
        (True, set(), ""),
    ],
)
def test_too_few_rights_are_named_even_if_they_stop_the_work(
    works: bool, refused: set[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(_: Trial) -> None:
        if not works:
            raise Failed("the Node is not deleted")

    monkeypatch.setattr(rights_behaviours, "_work", work)
    given = cast(rights.Rights, type("Rights", (), {"audit": Path("audit.log"), "refusals": lambda self: refused})())
    trial = Trial(World(cast(Any, None), cast(Any, None), "1", rights=given), "x.y")
    with pytest.raises(Failed, match=message) if message else contextlib.nullcontext():
        rights_behaviours.enough(trial)


class Shown(Trial):
    """A trial without cluster and cloud: it sees what it is given, and does not wait. `seen`: addresses of Services and
    ports of load balancers by address; `left`: the same after a Service was deleted."""

    def __init__(self, seen: dict[str, Any], left: dict[str, Any] | None = None) -> None:
        def delete(path: str) -> None:
            self.seen = left or {}

        cloud = cast(Any, type("Cloud", (), {"sharing": lambda *_: {}})())
        kube = cast(Any, type("Kube", (), {"delete": lambda _, path: delete(path), "get": lambda *_: None})())
        families = Settings(families=frozenset({"IPv4", "IPv6"}))
        super().__init__(World(kube, cloud, "1", settings=families), "x.y")
        self.seen = seen

    def service(self, *_: Any, **__: Any) -> None:
        pass

    def addresses(self, name: str = "web") -> list[str]:
        return list(self.seen.get(name, []))

    def served(self, name: str = "web", seconds: float = 0) -> str:
        return self.addresses(name)[0]

    def balancer(self, address: str) -> LoadBalancer | None:
        ports = self.seen.get(address)
        return ports and LoadBalancer("lb", address, frozenset(("TCP", port, 30000) for port in ports), frozenset())

    def until(self, what: str, condition: Any, *_: Any, **__: Any) -> float:
        if not condition():
            raise Failed(what)
        return 0.0


@pytest.mark.parametrize(
    ("seen", "message"),
    [({"web": ["192.0.2.1", "2001:db8::1"]}, ""), ({"web": ["192.0.2.1"]}, "an IPv4 address and"), ({}, "an IPv4")],
)
def test_a_service_with_one_family_of_two_is_noticed(seen: dict[str, Any], message: str) -> None:
    with pytest.raises(Failed, match=message) if message else contextlib.nullcontext():
        load_balancers.dual_required(Shown(seen))


BOTH = {"web": ["192.0.2.1"], "more": ["192.0.2.1"], "192.0.2.1": [80, 8080]}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (BOTH, ""),
        ({**BOTH, "more": ["192.0.2.2"]}, "both Services have the address"),
        ({**BOTH, "192.0.2.1": [80]}, "it has the ports of both"),
    ],
)
def test_a_load_balancer_that_is_not_shared_is_noticed(seen: dict[str, Any], message: str) -> None:
    with pytest.raises(Failed, match=message) if message else contextlib.nullcontext():
        load_balancers.address_shared(Shown(seen))


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ({"web": ["192.0.2.1"], "192.0.2.1": [80]}, ""),
        ({"web": ["192.0.2.1"], "192.0.2.1": [80, 8080]}, "it has the other one's port"),
        ({"web": ["192.0.2.1"]}, "it has the other one's port"),
        ({"web": ["192.0.2.9"], "192.0.2.1": [80]}, "the address in the status"),
    ],
)
def test_a_service_that_leaves_too_much_or_too_little_of_a_shared_one_is_noticed(
    left: dict[str, Any], message: str
) -> None:
    with pytest.raises(Failed, match=message) if message else contextlib.nullcontext():
        load_balancers.address_share_left(Shown(BOTH, left))


def test_a_neighbour_has_a_namespace_of_its_own() -> None:
    trial = Trial(World(cast(Any, None), cast(Any, None), "1"), "x.y")
    first, second = trial.neighbour(), trial.neighbour()
    assert len({trial.namespace, first.namespace, second.namespace}) == 3


def test_threads_that_wait_for_a_read_of_load_balancers_share_the_next_one() -> None:
    """None gets a read that began before it asked."""
    asked, begun, go = threading.Semaphore(0), threading.Semaphore(0), threading.Semaphore(0)

    class Counted:
        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            asked.release()
            self._lock.acquire()

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    class Slow(Cloud):
        start = stop = create_machine = delete_machine = cast(Any, None)
        reads = 0

        def load_balancers(self) -> list[LoadBalancer]:
            begun.release()
            assert go.acquire(timeout=30)
            self.reads += 1
            return [LoadBalancer(f"lb-{self.reads}", "198.18.0.1", frozenset(), frozenset())]

    world = World(cast(Any, None), Slow(), "1")
    world._reads = cast(Any, Counted())
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(world.load_balancers)
        assert begun.acquire(timeout=30)
        later = [pool.submit(world.load_balancers) for _ in range(3)]
        assert all(asked.acquire(timeout=30) for _ in range(4))
        go.release(4)
        seen = [each.result()[0].id for each in (first, *later)]
    assert seen == ["lb-1", "lb-2", "lb-2", "lb-2"]

# SPDX-License-Identifier: Apache-2.0
"""The explorer itself: it is deterministic, it notices mistakes, and each known mistake (known.py) still exists."""

import asyncio
import logging
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ccm.cloud import InstanceState, NotFound, Page
from ccm.controllers.nodes import node_fencing_rules
from ccm.controllers.nodes.node_fencing import Fencing
from ccm.controllers.nodes.owners import Share
from ccm.controllers.services.class_rules import ServedClasses
from ccm.controllers.services.service import ServiceController
from ccm.controllers.services.service_balancers import ServiceBalancers
from ccm.controllers.services.service_conditions import ServiceConditions
from ccm.controllers.services.service_steps import ServiceSteps
from ccm.controllers.services.waiting_services import WaitingServices
from ccm.engine import informer
from ccm.engine.client import KubeClient
from ccm.engine.informer import Informer
from ccm.engine.queue import WorkQueue
from ccm.providers.sim import SimInstances

from .explorer import Trial, chains_of, explore, sequences_of, shrink
from .faults import Fault, episode_of
from .known import KNOWN, explain
from .workloads import EPISODES, WORKLOADS

#: What `test_nothing_new_is_found` explores. `make unit` explores more than 10,000 sequences with another command.
SEEDS, SEQUENCES = "0-1", 30
#: A seed whose chain has a change that is refused while Nodes change.
CHAIN = 1


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", WORKLOADS)
def test_without_faults_all_is_well(name):
    assert Trial(name, 0).run().violations == []


@pytest.mark.parametrize(
    "text",
    [
        "services@0; steps=; time 30=relist-empty",
        "services@0; steps=; time 30=other-cluster",
        "nodes@0; steps=; time 30=relist-shrunken",
        "services@0; steps=; time 0=snapshot",
        "nodes@1; steps=; time 0.06=kill; time 3=other-cluster",
    ],
)
def test_an_api_server_that_is_wrong_costs_nothing(text):
    assert Trial.parse(text).run().violations == []


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.example)
def test_what_is_known_is_still_true(known):
    """The example of each known mistake still fails. Otherwise its entry must be removed, or it would hide new ones."""
    trial = Trial.parse(known.example)
    violations = trial.run().violations
    assert any(known.fits(trial.faults, violation) for violation in violations)
    assert explain(trial.faults, violations)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.example)
def test_what_is_known_hides_nothing_else(known):
    """The entry does not explain the violation with too few faults, or without the words of `says`."""
    trial = Trial.parse(known.example)
    violation = next(each for each in trial.run().violations if known.fits(trial.faults, each))
    assert not explain(trial.faults[: known.least - 1], [violation])
    if known.says:
        assert not explain(trial.faults, [violation._replace(text=violation.text.replace(known.says, ""))])


@pytest.mark.parametrize(
    "text", ["churn-7@3; cloud load_balancers.create#1=lost", "leaders@1", "nodes@2; time 20=api-pause", "chain-1@1"]
)
def test_the_same_sequence_runs_the_same_way(text):
    first, second = Trial.parse(text).run(), Trial.parse(text).run()
    assert (first.digest, first.points, first.story) == (second.digest, second.points, second.story)
    assert Trial.parse(text.replace("@", "@1")).run().digest != first.digest


def test_a_sequence_can_be_written_down():
    trial = Trial("leaders", 3, (Fault("api LIST nodes#1", "empty"), Fault("time 3", "kill")), (0, 2))
    assert Trial.parse(str(trial)) == trial


def test_a_controller_that_releases_services_without_deleting_is_caught(monkeypatch):
    async def nothing(self, spec, state, *, is_named):
        return None

    monkeypatch.setattr(ServiceBalancers, "delete", nothing)
    assert Trial("services", 0).run().invariants == {"load-balancer-leaked"}


#: Mistakes for which the explorer got workloads; with these it found each mistake before the fix.
MISTAKES = [
    ("refused@0", "backends-behind"),
    ("refused-leaders@0", "backends-behind"),
    ("mistakes-1@1", "backends-behind"),
]


@pytest.mark.parametrize(("text", "invariant"), MISTAKES)
def test_backends_that_do_not_follow_are_caught(text, invariant, monkeypatch):
    async def nothing(self, service, spec, known):
        return None

    assert Trial.parse(text).run().violations == []
    monkeypatch.setattr(ServiceSteps, "keep_up", nothing)
    assert Trial.parse(text).run().invariants == {invariant}


@pytest.mark.parametrize(
    "text",
    [
        "churn-50@50; steps=0,3; cloud routes.delete#2=throttled; cloud routes.list#3=cloud-down",
        "scale-down@44; cloud load_balancers.list#10=throttled",
    ],
)
def test_a_read_that_fails_is_no_refused_change(text):
    """If the controller takes a failed read for a refused change, it updates the backends alone. That keeps the cloud
    busy, so that the usual update is refused again, for ever.
    """
    assert Trial.parse(text).run().violations == []


def test_an_outage_of_the_instances_that_holds_deletions_is_caught(monkeypatch):
    sync = ServiceController._sync

    async def late(self, key):
        while not self._may_write:
            await asyncio.sleep(1)
        await sync(self, key)

    monkeypatch.setattr(ServiceController, "_sync", late)
    assert "deletion-waits" in Trial("blind", 0).run().invariants


def test_a_service_that_waits_in_silence_is_caught(monkeypatch):
    async def tell_nobody(self):
        for wait in self._waits.values():
            wait.is_reported = True

    monkeypatch.setattr(WaitingServices, "_report_due", tell_nobody)
    assert Trial("blind", 0).run().invariants == {"waits-silently"}


def test_a_service_that_is_served_and_says_that_it_waits_is_caught(monkeypatch):
    async def nothing(self, service):
        return None

    monkeypatch.setattr(ServiceConditions, "served", nothing)
    assert "not-converged" in Trial("refused", 0).run().invariants


def test_dead_connections_that_cost_the_lease_are_caught(monkeypatch):
    async def nothing(self, error):
        return None

    monkeypatch.setattr(KubeClient, "_renew_after", nothing)
    assert "lease-lost" in Trial("dead-connections", 0).run().invariants


#: A candidate's watch of Nodes falls silent twice within 90 s. n3 joins meanwhile, and then the candidate leads.
STALE_CANDIDATE = (
    "dead-connections@101; steps=0,2,3,4,6; api LIST services#1=shrunken; api PATCH services/shop/new/status#2=stop-40"
)


def test_a_new_leader_knows_what_its_watches_did_not_tell(monkeypatch):
    """A new leader lists again, so it also knows changes that a dead watch did not send, even with former time-outs."""
    assert Trial.parse(STALE_CANDIDATE).run().violations == []
    monkeypatch.setattr(informer, "WATCH_SECONDS", (300, 600))
    monkeypatch.setitem(Informer.__init__.__kwdefaults__, "read_timeout", 90.0)
    assert Trial.parse(STALE_CANDIDATE).run().violations == []
    monkeypatch.setattr(Informer, "catch_up", lambda self: None)
    assert Trial.parse(STALE_CANDIDATE).run().invariants == {"backend-removed"}


def test_a_queue_that_forgets_failures_is_caught_by_a_fault_alone(monkeypatch):
    monkeypatch.setattr(WorkQueue, "retry", lambda self, key, priority: 0.0)
    assert Trial("services", 0, steps=(0,)).run().violations == []
    outcome = Trial.parse("services@0; steps=0; cloud load_balancers.create#3=error").run()
    assert outcome.invariants == {"not-converged"}


def test_a_provider_that_reports_stopped_machines_gone_is_caught(monkeypatch):
    whole, one = SimInstances.list_page, SimInstances.get

    async def list_page(self, token):
        page = await whole(self, token)
        return Page([each for each in page.instances if each.state is InstanceState.RUNNING], page.next)

    async def get(self, ref):
        found = await one(self, ref)
        if found.state is not InstanceState.RUNNING:
            raise NotFound(ref.node_name)
        return found

    stopped = "nodes@0; steps=3"
    assert Trial.parse(stopped).run().violations == []
    monkeypatch.setattr(SimInstances, "list_page", list_page)
    monkeypatch.setattr(SimInstances, "get", get)
    assert "node-deleted" in Trial.parse(stopped).run().invariants


def test_a_running_machine_that_is_fenced_is_caught(monkeypatch):
    """Node n5 is silent while its machine runs, and the patched runtime takes every machine for dead."""

    async def confirmed(self, node):
        return True

    assert Trial("fencing", 0).run().violations == []
    monkeypatch.setattr(node_fencing_rules, "is_dead", lambda answer: True)
    monkeypatch.setattr(Fencing, "_is_confirmed_dead", confirmed)
    assert "node-fenced" in Trial("fencing", 0).run().invariants


def _serve_everybody(monkeypatch):
    monkeypatch.setattr(ServedClasses, "include", lambda self, service: service.spec.type == "LoadBalancer")


def _keep_everybody(monkeypatch):
    """Let each cloud take every providerID for one of its own, and every Node for one of its Nodes."""
    monkeypatch.setattr(SimInstances, "owns", lambda self, provider_id: provider_id.startswith("sim://"))
    monkeypatch.setattr(Share, "has", lambda self, node: True)


@pytest.mark.parametrize(
    ("workload", "breaking"),
    [("two-clouds", _serve_everybody), ("clouds-13", _serve_everybody), ("two-clouds", _keep_everybody)],
)
def test_a_cloud_that_writes_what_is_another_ones_is_caught(workload, breaking, monkeypatch):
    assert Trial(workload, 13).run().violations == []
    breaking(monkeypatch)
    assert "foreign-write" in Trial(workload, 13).run().invariants


def test_clouds_that_own_the_same_ids_write_nothing_of_each_other(monkeypatch):
    """Each cloud takes every providerID for one of its own. Nodes whose machines are gone stay, because a cloud without
    the machine proves nothing. Each route controller once marked the other cloud's Nodes as having no route."""
    monkeypatch.setattr(SimInstances, "owns", lambda self, provider_id: provider_id.startswith("sim://"))
    assert "foreign-write" not in Trial("two-clouds", 0).run().invariants


def test_a_silent_node_is_not_fenced_while_the_cloud_shows_another_project(monkeypatch):
    """n5 is silent and its machine runs; another project has machines of the same names that are shut down.
    `make explore DEATHS=0-499` runs more."""
    outcome = Trial("deaths-2", 2).run()
    assert outcome.violations == []
    assert any("other-project 6.0 stopped 7" in line for line in outcome.story)
    monkeypatch.setattr(node_fencing_rules, "is_dead", lambda answer: True)
    monkeypatch.setattr(Fencing, "_is_confirmed_dead", _confirmed)
    assert "node-fenced" in Trial("deaths-2", 2).run().invariants


def test_the_cloud_goes_on_with_its_work_while_it_shows_another_project():
    """The load balancer is being created when the other project is shown, and must become active."""
    faults = "cloud tokens.create#1=cloud-down; cloud load_balancers.list#4=error"
    assert Trial.parse(f"deaths-280@280; steps=1,2; {faults}").run().violations == []


async def _confirmed(self, node):
    return True


def test_what_does_not_matter_is_left_out(monkeypatch):
    monkeypatch.setattr(WorkQueue, "retry", lambda self, key, priority: 0.0)
    trial = Trial.parse("services@0; api LIST nodes#1=error; cloud load_balancers.create#3=error")
    short, outcome = shrink(trial, {"not-converged"})
    assert short.faults == (Fault("cloud load_balancers.create#3", "error"),)
    assert short.steps == (0,)
    assert "not-converged" in outcome.invariants


@pytest.mark.timeout(900)
def test_nothing_new_is_found():
    """The explorer runs in a separate process, so that hash seed and memory are those of `make explore`, and a
    finding can be replayed."""
    command = [sys.executable, "-m", "tests.explore", "--seeds", SEEDS, "--jobs", "1", "--least"]
    folder = Path(__file__).parents[2]
    done = subprocess.run([*command, str(SEQUENCES)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"^(\d+) sequences, (\d+) of them with different workloads or fault plans", done.stdout, re.MULTILINE
    )
    assert int(found[1]) >= int(found[2]) >= SEQUENCES, done.stdout


@pytest.mark.timeout(900)
def test_too_few_sequences_are_a_failure():
    command = [sys.executable, "-m", "tests.explore", "--seeds", "0", "--jobs", "1", "--least", "1000"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "too few" in done.stdout
    assert "0 new" in done.stdout


def test_sequences_that_differ_in_timing_alone_are_the_same_plan():
    fault = Fault("api LIST nodes#1", "empty")
    assert Trial("leaders", 3, (fault,)).plan() == Trial("leaders", 4, (fault,)).plan()
    different = [
        Trial("leaders", 3),
        Trial("leaders", 3, (fault,)),
        Trial("leaders", 3, (fault,), (0,)),
        Trial("nodes", 3, (fault,)),
        Trial("churn-1", 3, (fault,)),
        Trial("churn-2", 3, (fault,)),
    ]
    assert len({each.plan() for each in different}) == len(different)


def test_each_episode_of_a_chain_is_a_sequence():
    trial = Trial("chain-0", 0)
    outcome = trial.run()
    assert outcome.violations == []
    assert outcome.episodes == EPISODES + 1 == len(set(trial.plans(outcome)))


def test_a_fault_that_hits_nothing_makes_no_other_sequence():
    plain, outcome = Trial("chain-0", 0), Trial("chain-0", 0).run()
    missed = replace(plain, faults=(Fault("api PATCH nodes/nobody#1@3", "lost"),))
    third = next(point for point in outcome.points if episode_of(point) == 3)
    hit = replace(plain, faults=(Fault(third, "lost"),))
    assert set(missed.plans(outcome)) == set(plain.plans(outcome))
    assert len(set(hit.plans(outcome)) - set(plain.plans(outcome))) == 1


def test_a_chain_is_open_to_faults_that_nobody_planned_and_can_be_run_again():
    """Each unplanned fault hits. An episode has none, one or two."""
    ((trial, outcome),) = chains_of(1, Trial.run)
    assert (outcome.violations, outcome.episodes) == ([], EPISODES + 1)
    episodes = [episode_of(fault.point) for fault in trial.faults]
    assert set(map(episodes.count, range(EPISODES + 1))) == {0, 1, 2}
    assert {fault.point for fault in trial.faults} <= set(outcome.points)
    again = Trial.parse(str(trial)).run()
    assert (again.digest, again.story) == (outcome.digest, outcome.story)


def test_a_finding_of_a_chain_is_made_short(monkeypatch):
    async def nothing(self, service, spec, known):
        return None

    monkeypatch.setattr(ServiceSteps, "keep_up", nothing)
    findings = explore(CHAIN, sequences=chains_of).findings
    assert {finding.outcome.episodes for finding in findings} == {2}
    assert {invariant for finding in findings for invariant in finding.outcome.invariants} == {"backends-behind"}
    assert all(Trial.parse(str(finding.sequence)).run().digest == finding.outcome.digest for finding in findings)


def test_a_process_that_stands_still_goes_on_while_it_leads_and_ends_when_it_does_not():
    short = Trial.parse("rivals@1; time 10=stop-9").run()
    assert not short.violations
    assert not any("is killed" in line for line in short.story)
    long = Trial.parse("rivals@1; time 10=stop-17").run()
    assert not long.violations
    assert [line.partition("s  ")[2] for line in long.story if "is killed" in line] == ["p2 is killed"]


def test_no_sequence_is_run_twice():
    found: list[str] = []

    def outcome_of(trial):
        found.append(str(trial))
        return trial.run()

    for seed in range(2):
        sequences_of(seed, outcome_of)
    assert len(found) == len(set(found)) > 30

# SPDX-License-Identifier: Apache-2.0
"""Runs that fail, and runs over several hosts: what they show and what they write."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from typing import Any

import pytest
import yaml

from .ansible import PROGRAM, REPOSITORY, Run
from .test_ccm_run_lease import others
from .test_layouts import HOSTS, Cluster, all_diffs, cluster, edited

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster"]

WORKER = HOSTS["kubeadm-worker"]
#: A host that does not answer.
GONE = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}


def plays(book: str, *names: str) -> list[dict[str, Any]]:
    """Return the plays with these names from one of the product's playbooks."""
    found = {play["name"]: play for play in yaml.safe_load((REPOSITORY / "playbooks" / f"{book}.yml").read_text())}
    return [found[name] for name in names]


LOOK = plays("preflight", "Detect", "Plan")
CHANGE = plays("site", "Change the kubelets of the workers")
REFUSE = "Refuse settings with which the controller could not run"


def summary(cluster: Cluster) -> dict[str, dict[str, Any]]:
    data = json.loads((cluster.folder / "summary.json").read_text())
    return {entry["host"]: entry for entry in data["hosts"]}


async def run(cluster: Cluster, books: list[dict[str, Any]], **variables: Any) -> Run:
    values = {"ccm_install_summary_file": str(cluster.folder / "summary.json")}
    return await cluster.play("/dev/stdin", stdin=json.dumps(books), **values | variables)


def states(cluster: Cluster) -> dict[str, str]:
    return {host: entry["state"] for host, entry in summary(cluster).items()}


async def test_a_worker_that_fails_ends_the_run_with_a_summary_of_every_host(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2", "w-3"):
        cluster.add(name, WORKER)
    cluster.machines["w-2"].refuse("restart")
    before = cluster.machines["w-3"].files()
    told = await run(cluster, LOOK + CHANGE, ccm_install_worker_serial=1)
    assert told.status != 0 and "Traceback" not in told.output
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "changed", "w-2": "failed", "w-3": "not begun"}
    assert summary(cluster)["w-1"] | {"seconds": 0, "detail": ""} == {
        "host": "w-1", "state": "changed", "planned": 2, "edits": 2, "seconds": 0, "detail": ""}  # fmt: skip
    assert "kubelet on w-2 did not become healthy" in summary(cluster)["w-2"]["detail"]
    shown = next(
        str(result["msg"]) for result in told if "HOST " in str(result.get("msg")) and "SECONDS" in result["msg"]
    )
    assert "4 host(s) in" in shown and "1 changed, 1 failed, 2 not begun" in shown
    assert "The run was stopped: w-2 failed" in told.failures[-1] and "run again" in told.failures[-1]
    command = f"ansible-playbook -i {cluster.folder}/inventory.ini outoftree.ccm.rollback"
    assert command in " ".join(told.failures[-1].split())
    assert cluster.machines["w-3"].files() == before
    # After the fix, a second run completes without repeating what was done.
    cluster.machines["w-2"].refuse()
    workers = plays("site", "Verify and summarise")
    workers[0]["tasks"] = workers[0]["tasks"][0]["always"]
    again = await run(cluster, LOOK + CHANGE + workers, ccm_install_worker_serial=1)
    assert again.status == 0, again.output[-3000:]
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "nothing to do", "w-2": "changed", "w-3": "changed"}


async def test_a_worker_that_fails_takes_its_batch_along_and_that_is_said_once(cluster: Cluster):
    """The other workers of its batch restarted at the same time, and the run no longer waits for their Nodes. The
    inventory sets the size of a batch."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2", "w-3"):
        cluster.add(name, WORKER)
    cluster.machines["w-2"].refuse("restart")
    told = await run(cluster, LOOK + CHANGE)
    assert told.status != 0 and "Traceback" not in told.output
    assert "Workers 1 to 3 of 3" in told.output
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "half done", "w-2": "failed", "w-3": "half done"}
    assert "stopped before it checked that the Node is Ready" in summary(cluster)["w-1"]["detail"]
    stopped = [message for message in told.failures if "The run was stopped" in message]
    assert len(stopped) == 1 and "The run was stopped: w-2 failed (see above)" in stopped[0]
    assert sum("HOST " in str(result.get("msg")) and "SECONDS" in result["msg"] for result in told) == 1
    # The next run inspects these workers again: kubelets with the flags stay, and the one without flags gets them.
    cluster.machines["w-2"].refuse()
    workers = plays("site", "Verify and summarise")
    workers[0]["tasks"] = workers[0]["tasks"][0]["always"]
    again = await run(cluster, LOOK + CHANGE + workers)
    assert again.status == 0, again.output[-3000:]
    assert {state for host, state in states(cluster).items() if host != "kubeadm-cp"} == {"nothing to do", "changed"}


async def test_a_second_run_is_refused_before_its_first_change(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    before = cluster.machines["kubeadm-cp"].files()
    cluster.apiserver.kubectl("create", "-n", "kube-system", "-f", "-", input=json.dumps(others(machine="another")))
    begin = plays("site", REFUSE, "Change the control planes, one at a time")
    try:
        told = await run(cluster, LOOK + begin)
    finally:
        cluster.apiserver.kubectl("delete", "-n", "kube-system", "lease", "outoftree-ccm-run")
    assert told.status != 0 and "Traceback" not in told.output
    (message,) = told.failures
    assert message.startswith("Nothing was changed: another run, bob@laptop")
    assert cluster.machines["kubeadm-cp"].files() == before


async def test_a_worker_that_may_fail_does_not_keep_the_others_from_being_done(cluster: Cluster):
    """Here, the play that adopts Nodes only prints which Nodes it is for: all except the failed worker's. The summary
    names the failed worker."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2", "w-3"):
        cluster.add(name, WORKER)
    cluster.machines["w-2"].refuse("restart")
    adopt = plays("site", "Adopt the Nodes and start every controller", "Verify and summarise")
    find = next(
        task for task in adopt[0]["tasks"][0]["block"] if task["name"].startswith("Find the failed workers")
    )
    nodes = "{{ (__ccm_install_plan.nodes.keys() | difference(__ccm_install_tally.failed)) | sort | join(' ') }}"
    adopt[0]["tasks"] = [find, {"name": "Nodes", "ansible.builtin.debug": {"msg": nodes}}]
    adopt[1]["tasks"] = adopt[1]["tasks"][0]["always"]
    told = await run(cluster, LOOK + CHANGE + adopt, ccm_install_worker_serial=2, ccm_install_max_failed_workers="34%")
    assert told.status == 0, told.output[-3000:]
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "changed", "w-2": "failed", "w-3": "changed"}
    assert told.named["Nodes"]["msg"] == "kubeadm-cp w-1 w-3"
    data = json.loads((cluster.folder / "summary.json").read_text())
    assert data["failed"] == ["w-2"] and data["node_only"] is False


async def test_one_worker_more_that_fails_than_may_ends_the_run(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2", "w-3"):
        cluster.add(name, WORKER)
    for name in ("w-1", "w-2"):
        cluster.machines[name].refuse("restart")
    told = await run(cluster, LOOK + CHANGE, ccm_install_worker_serial=1, ccm_install_max_failed_workers="50%")
    assert told.status != 0
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "failed", "w-2": "failed", "w-3": "not begun"}
    assert "The run was stopped: w-1, w-2 failed" in told.failures[-1], told.failures
    assert any("allows 1 of 3" in message and "w-1, w-2" in message for message in told.failures), told.failures


@pytest.mark.parametrize("book", ["preflight", "verify", "rollback", "leader_migration"])
async def test_without_the_host_that_plans_nothing_is_judged_and_that_is_no_success(cluster: Cluster, book: str):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    cluster.add("w-1", WORKER)
    told = await cluster.play(f"playbooks/{book}.yml", "--limit", "w-1")
    assert told.status != 0
    (message,) = told.failures
    assert "Nothing was changed or checked: --limit excludes kubeadm-cp" in message


async def test_what_cannot_be_looked_at_is_named_before_anything_is_undone(cluster: Cluster):
    """This includes hosts that do not answer, although such a host ends a play with any_errors_fatal at once."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    cluster.strangers["w-1"] = " ".join(f"{name}={value}" for name, value in GONE.items())
    told = await cluster.play("playbooks/rollback.yml")
    assert told.status != 0 and "Traceback" not in told.output
    assert told.failures[-1].startswith("Nothing was changed. w-1: could not be inspected: ")
    assert "exclude the host with --limit 'all:!w-1'" in told.failures[-1]
    first = await cluster.play("playbooks/leader_migration.yml", "--tags", "stage1")
    assert first.status != 0 and first.failures[-1].startswith("Nothing was changed. ")  # the plan refuses the release
    # The kube-controller-manager of an unreachable control plane may still wait for the Lease.
    cluster.strangers = {"systemd-cp": cluster.strangers["w-1"]}
    last = await cluster.play("playbooks/leader_migration.yml", "--tags", "stage3")
    assert last.status != 0
    assert "Nothing was changed. These control planes could not be inspected: systemd-cp" in last.failures[-1]


async def test_what_an_earlier_run_said_is_gone_when_one_is_refused(cluster: Cluster):
    """A program that reads the file after a failed run must not find a success in it."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    (cluster.folder / "summary.json").write_text('{"ok": true}')
    begin = plays("site", "Remove the results of an earlier run", REFUSE)
    told = await run(cluster, begin, ccm_runtime_cloud_provider="")
    assert told.status != 0 and "ccm_runtime_cloud_provider is not set" in told.failures[-1]
    assert not (cluster.folder / "summary.json").exists()


async def test_a_host_that_dies_in_the_middle_is_told_and_the_next_ones_are_not_begun(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2"):
        cluster.add(name, WORKER)
    dies = {"hosts": "w-1", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": GONE}]}
    told = await run(cluster, [*LOOK, dies, *CHANGE], ccm_install_worker_serial=1)
    assert told.status != 0 and "Traceback" not in told.output
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "unreachable", "w-2": "not begun"}
    assert "127.0.0.1" in summary(cluster)["w-1"]["detail"]
    assert "The run was stopped: w-1 failed" in told.failures[-1]


async def test_a_control_plane_that_dies_before_its_first_change_ends_the_run_with_a_summary(cluster: Cluster):
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    cluster.add("w-1", WORKER)
    dies = {"hosts": "kubeadm-cp", "gather_facts": False, "tasks": [{"ansible.builtin.set_fact": GONE}]}
    begin = plays("site", "Change the control planes, one at a time")
    told = await run(cluster, [*LOOK, dies, *begin])
    assert told.status != 0 and "Traceback" not in told.output
    assert states(cluster) == {"kubeadm-cp": "unreachable", "w-1": "not begun"}
    assert "The run was stopped: kubeadm-cp failed" in told.failures[-1]
    lease = ("get", "-n", "kube-system", "lease", "outoftree-ccm-run", "--ignore-not-found", "-o=name")
    assert cluster.apiserver.kubectl(*lease) == ""


async def test_hosts_that_cannot_be_looked_at_do_not_keep_the_others_from_being_reported(cluster: Cluster):
    for name in ("kubeadm-cp", "w-1", "w-2"):
        cluster.add(name, HOSTS.get(name, WORKER))
    cluster.apiserver.kubectl(
        "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w-3"}})
    )
    extra = cluster.machines["w-2"]
    (extra.folder / "python").write_text("#!/bin/sh\necho no python here >&2\nexit 1\n")
    cluster.strangers["w-3"] = " ".join(f"{name}={value}" for name, value in GONE.items())
    told = await cluster.play("playbooks/preflight.yml")
    assert told.status != 0 and "Traceback" not in told.output
    assert {host for host, _ in edited(cluster.report)} == {"kubeadm-cp", "w-1"}
    first, second = cluster.report["problems"]
    advice = "Fix this, or exclude these hosts with --limit 'all:!w-2:!w-3'"
    assert first == f"w-2: could not be inspected: its Python or its shell ended with: no python here. {advice}"
    refused = "connect to host 127.0.0.1 port 1: Connection refused"
    assert second.startswith(f"w-3: could not be inspected: {refused}. {advice}")
    table = next(str(result["msg"]) for result in told if "why 1: " in str(result.get("msg")))
    assert "PROBLEM: w-2" in table and "PROBLEM: w-3" in table and "NO-GO" in table
    # If both hosts are left out as the message says, the run names them, and the plan for the rest is GO.
    rest = await cluster.play("playbooks/preflight.yml", "--limit", "all:!w-2:!w-3")
    assert rest.status == 0, rest.output[-3000:]
    assert (
        cluster.report["warnings"][0]
        == "--limit excludes 2 host(s), which are neither inspected nor changed: w-2, w-3"
    )


async def test_fifty_workers_are_followed_by_a_person(cluster: Cluster):
    """ansible-playbook prints which batch this is, and few lines for each host."""
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    names = [f"w-{number:02}" for number in range(1, 51)]
    for name in names:
        cluster.add(name, WORKER)
    sums = plays("site", "Verify and summarise")
    sums[0]["tasks"] = sums[0]["tasks"][0]["always"]
    book = cluster.folder / "site.yml"
    book.write_text(json.dumps(LOOK + CHANGE + sums))
    values = {"ccm_install_summary_file": str(cluster.folder / "summary.json"), "ccm_install_worker_serial": "25%"}
    begun = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        book,
        *cluster.arguments(values),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_DEPRECATION_WARNINGS": "false"},
    )
    shown = (await process.communicate())[0].decode()
    lines = shown.splitlines()
    print(f"{len(lines)} lines in {time.monotonic() - begun:.0f} s")
    assert states(cluster) == {"kubeadm-cp": "not begun"} | dict.fromkeys(names, "changed"), shown[-3000:]
    # A message that is wider than the terminal has two lines.
    batches = re.findall(r"Workers \d+ to \d+ of 50 \(batch \d of 5\)(?:: .*? left)?", " ".join(shown.split()))
    assert [line.partition(")")[0] for line in batches] == [
        "Workers 1 to 12 of 50 (batch 1 of 5",
        "Workers 13 to 24 of 50 (batch 2 of 5",
        "Workers 25 to 36 of 50 (batch 3 of 5",
        "Workers 37 to 48 of 50 (batch 4 of 5",
        "Workers 49 to 50 of 50 (batch 5 of 5",
    ]
    assert [" left" in line for line in batches] == [False, True, True, True, True]
    # Hosts with the same message share a line. Before, there were 18 lines for each host.
    assert len(lines) < 150, len(lines)


async def test_check_and_diff_agree_with_the_table_line_by_line(cluster: Cluster):
    """Each row of the table appears in a diff of its file. test_layouts shows that each line of a diff has a row."""
    for name in ("kubeadm-cp", "kubeadm-worker", "kubespray-worker", "systemd-worker", "k3s-agent"):
        cluster.add(name, HOSTS[name])
    suffix = ", one at a time"
    control_planes = plays(
        "site", f"Change the control planes{suffix}", f"Change the kubelets of the control planes{suffix}"
    )
    books = LOOK + control_planes + CHANGE
    told = await cluster.play("/dev/stdin", "--check", "--diff", stdin=json.dumps(books))
    assert told.status == 0, told.output[-3000:]
    rows = [edit for edit in cluster.report["edits"] if edit["file"].startswith("/")]
    diffs = [diff for result in told for diff in all_diffs(result) if diff.get("after_header", "").startswith("/")]
    assert len(rows) >= 8 and {edit["file"] for edit in rows} == {diff["after_header"] for diff in diffs}
    for edit in rows:
        flag = edit["flag"].rpartition(": ")[2].lstrip("-")
        changes = [
            (values(diff["before"], flag), values(diff["after"], flag))
            for diff in diffs
            if diff["after_header"] == edit["file"]
        ]
        now, then = str(edit["now"]), str(edit["then"])
        assert any(
            (edit["now"] is None or before.count(now) > after.count(now))
            and (edit["then"] is None or before.count(then) < after.count(then))
            for before, after in changes
        ), (edit, changes)


def values(text: str, flag: str) -> list[str]:
    """Return every value that a text gives a flag, in any form."""
    return [value.strip("\"'") for value in re.findall(rf"{re.escape(flag)}(?:=|: ?)([^\s\"']*)", text)]

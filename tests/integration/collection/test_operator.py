# SPDX-License-Identifier: Apache-2.0
"""Only tasks on the cluster's hosts run as root. Tasks on the operator's machine run as the operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .ansible import Run, playbook
from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import CHANGE, LOOK, REFUSE, WORKER, plays

pytestmark = pytest.mark.timeout(900)  # several plays; each takes seconds on an idle machine

__all__ = ["cluster"]

SUDO = """#!/bin/sh
while [ "$1" != /bin/sh ]; do shift; done
exec "$@"
"""
ASKS = """#!/bin/sh
echo "sudo: a password is required" >&2
exit 1
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def hosts(cluster: Cluster) -> Cluster:
    """Return an inventory as in the documentation: `ansible_become: true` for all. On the hosts sudo needs no password;
    on the operator's machine it asks for one."""
    allowed = program(cluster.folder / "sudo", SUDO)
    cluster.settings += ["ansible_become=true", f"ansible_become_exe={program(cluster.folder / 'asks', ASKS)}"]
    for name, files in (("kubeadm-cp", HOSTS["kubeadm-cp"]), ("w-1", WORKER)):
        cluster.strangers[name] = cluster.add(name, files).variables + f" ansible_become_exe={allowed}"
    return cluster


async def play(hosts: Cluster, path: str, stdin: str = "") -> Run:
    called = hosts.folder / "called"
    variables = {
        "ccm_install_summary_file": str(hosts.folder / "summary.json"),
        "ccm_install_batch_command": [str(program(hosts.folder / "check", f"#!/bin/sh\necho $0 >> {called}\n"))],
    }
    # These tests run as root, for whom Ansible would not call sudo.
    settings = {"ANSIBLE_BECOME_ALLOW_SAME_USER": "true"}
    return await playbook(path, *hosts.arguments(variables), stdin=stdin, settings=settings, seconds=480)


async def test_looking_needs_no_root_on_the_operators_machine(hosts: Cluster):
    run = await play(hosts, "/dev/stdin", json.dumps(LOOK))
    assert run.status == 0, run.failures
    assert (hosts.folder / "report.json").exists()


async def test_no_task_on_the_operators_machine_wants_to_be_root(hosts: Cluster):
    begin = plays("site", "Remove the results of an earlier run", REFUSE)
    workers = plays("site", "Verify and summarise")
    workers[0]["tasks"] = workers[0]["tasks"][0]["always"]
    run = await play(hosts, "/dev/stdin", json.dumps(begin[:1] + LOOK + begin[1:] + CHANGE + workers))
    assert run.status == 0, run.failures
    assert (hosts.folder / "summary.json").exists() and (hosts.folder / "report.json").exists()
    assert (hosts.folder / "called").exists()
    run = await play(hosts, "playbooks/rollback.yml")
    assert run.status == 0, run.failures


async def test_a_host_without_a_password_for_sudo_fails(hosts: Cluster):
    """This proves that the test above really calls sudo."""
    hosts.strangers["w-1"] = hosts.machines["w-1"].variables
    run = await play(hosts, "/dev/stdin", json.dumps(LOOK))
    assert run.status != 0 and "a password is required" in run.output

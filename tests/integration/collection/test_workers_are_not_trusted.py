# SPDX-License-Identifier: Apache-2.0
"""An attacker controls a worker: the worker gets no secrets of the administrator, and sets only its own variables.

Ansible itself runs the roles. The worker's Python interpreter is a script that records all its input, and answers every
module as a hostile host would: with facts that would override the operator's variables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .ansible import PROGRAM

ROOT = Path(__file__).parents[3]
SECRET = "the-administrators-token"
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": SECRET}}],
}
INTERPRETER = """#!/bin/sh
{{ echo "$@"; cat; for file in "$@"; do cat "$file"; done; }} >> {seen} 2>/dev/null
cat {answer}
"""


class Worker:
    """A hostile worker, and a control plane beside it, which is this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.owned = folder, folder / "seen", folder / "owned"
        self.seen.touch()
        script = folder / "interpreter"
        script.write_text(INTERPRETER.format(seen=self.seen, answer=folder / "answer"))
        script.chmod(0o755)
        self.inventory = folder / "inventory.yml"
        self.inventory.write_text(
            yaml.safe_dump(
                {
                    "kube_control_plane": {"hosts": {"cp-1": {"ansible_python_interpreter": sys.executable}}},
                    "kube_node": {"hosts": {"w-1": {"ansible_python_interpreter": str(script)}}},
                    "all": {"vars": {"ansible_connection": "local", "ccm_install_gate_timeout": 1}},
                }
            )
        )

    def answers(self, **more: Any) -> None:
        """Let the worker answer every module with hostile facts and these values."""
        template = "{{ lookup('ansible.builtin.pipe', 'touch " + str(self.folder / "evaluated") + "') }}"
        facts = {
            "ccm_install_api_host": "w-1",
            "__ccm_install_api_host": "w-1",
            "ccm_install_summary_file": str(self.owned),
            "__ccm_install_summary_file": str(self.owned),
            "ccm_install_summary": {"ok": True},
            "ccm_install_node_name": "victim",
            "__ccm_install_first": "w-1",
            "__ccm_install_settings": {"api_host": "w-1", "summary_file": str(self.owned)},
        }
        answer = {
            "changed": True,
            "restarted_at": "2026-11-22T00:00:00Z",
            "msg": template,
            "ansible_facts": facts,
            **more,
        }
        (self.folder / "answer").write_text(json.dumps(answer))

    def play(self, *plays: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        path = self.folder / "play.yml"
        path.write_text(yaml.safe_dump([{"gather_facts": False, **play} for play in plays]))
        return subprocess.run(
            [PROGRAM, "-i", str(self.inventory), str(path)],
            env=os.environ
            | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_HOME": str(self.folder), "ANSIBLE_NOCOLOR": "1"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=100,
        )


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def role(*names: str) -> dict[str, Any]:
    return {
        "tasks": [
            {"ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_install", "tasks_from": name}}
            for name in names
        ]
    }


STEP = {"component": "kubelet", "files": [], "flags": [], "flags_before": [], "restart": True, "service": {}}
FIRST = {
    "hosts": "cp-1",
    "tasks": [
        {
            "ansible.builtin.set_fact": {
                "__ccm_install_run": {"id": "20261122T000000Z", "node_names": {"w-1": "w-1"}},
                "__ccm_install_plan": {
                    "hosts": {"w-1": {"control_plane": [], "kubelet": STEP}},
                    "nodes": {"w-1": "w-1"},
                    "edits": [],
                },
                "__ccm_install_admin_config": KUBECONFIG,
            }
        }
    ],
}


@pytest.mark.threat("worker-sees-no-admin-credentials")
@pytest.mark.parametrize("name", ["apply/kubelet", "rollback/host"])
def test_the_administrators_kubeconfig_does_not_go_where_a_worker_says(name: str, worker: Worker):
    worker.answers()
    detected = {"journal": {"/etc/default/kubelet": {"component": "kubelet"}}, "node_name": "w-1"}
    second = {"hosts": "w-1", "vars": {"__ccm_install_detected": detected}} | role(name)
    done = worker.play(FIRST, second)
    seen = worker.seen.read_text(errors="replace")
    assert SECRET not in seen + done.stdout
    assert "ccm_component_config" in seen and "ccm_node_info" not in seen, done.stdout + done.stderr
    assert "w-1 -> localhost" in done.stdout and "127.0.0.1:1" in done.stdout, done.stdout + done.stderr
    assert not (worker.folder / "evaluated").exists()


@pytest.mark.threat("worker-cannot-change-others")
def test_a_worker_does_not_say_which_file_is_written_beside_ansible(worker: Worker):
    worker.answers()
    ask = {"hosts": "w-1", "tasks": [{"ansible.builtin.ping": {}}]}
    done = worker.play(FIRST, ask, {"hosts": "w-1"} | role("report/stopped"))
    assert "The run was stopped" in done.stdout, done.stdout + done.stderr
    assert not worker.owned.exists() and not (worker.folder / "evaluated").exists()


@pytest.mark.threat("worker-cannot-change-others")
def test_what_the_inventory_calls_a_host_is_not_the_hosts_word(worker: Worker):
    worker.answers()
    ask = {"hosts": "w-1", "tasks": [{"ansible.builtin.ping": {}}]}
    show = {
        "hosts": "w-1",
        "tasks": [
            {"ansible.builtin.debug": {"msg": "names={{ hostvars['cp-1'].__ccm_install_names['w-1'] | join(';') }}="}}
        ],
    }
    done = worker.play(ask, {"hosts": "cp-1:w-1"} | role("detect/host"), show)
    assert "names=w-1;;=" in done.stdout, done.stdout + done.stderr

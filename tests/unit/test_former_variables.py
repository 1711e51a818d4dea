# SPDX-License-Identifier: Apache-2.0
"""A variable with a former name still works, and Ansible warns about it once, however many hosts have it."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(os.environ.get("OUTOFTREE_ANSIBLE") or Path(sys.executable).parent) / "ansible-playbook"
FORMER: dict[str, str] = runpy.run_path(str(ROOT / "plugins/filter/former_variables.py"))["FORMER"]

#: Each former variable with a value.
OLD: dict[str, Any] = {
    "ccm_install_leader_migration_lease": "lease-of-install",
    "ccm_install_node_timeout": "7",
    "ccm_install_report_approved_by": "Alice",
    "ccm_install_report_change": "CHG-1",
    "ccm_install_report_reason": "because",
    "ccm_install_takeover_ignore": ["a/b"],
    "ccm_install_volumes_ignore": "x.csi, y.csi",
    "ccm_runtime_api_host": "bastion",
    "ccm_runtime_kubeconfig": "/old/admin.conf",
    "ccm_runtime_kubelet_serving_csr": "true",
    "ccm_runtime_label_volumes": True,
    "ccm_runtime_leader_migration": "true",
    "ccm_runtime_leader_migration_lease": "lease-of-runtime",
    "ccm_runtime_liveness_path": "/live",
    "ccm_runtime_max_cloud_age": 60,
    "ccm_runtime_readiness_path": "/ready",
    "ccm_runtime_verbosity": 5,
}
#: New variables that are set together with former ones: the new variable wins, and lists are joined.
BESIDE = {
    "ccm_install_ignore": ["c/d"],
    "ccm_install_report_details": '{"change": "CHG-2"}',
    "ccm_runtime_cloud_provider": "sim",
}
COUNTS: dict[str, Any] = {
    "__ccm_install_leader_migration_lease": "lease-of-install",
    "__ccm_install_node_timeout": 7,
    "__ccm_install_report_details": {"change": "CHG-2", "reason": "because", "approved_by": "Alice"},
    "__ccm_install_ignored": ["c/d", "a/b", "x.csi", "y.csi"],
    "__ccm_runtime_api_host": "bastion",
    "__ccm_runtime_api_config": "/old/admin.conf",
    "__ccm_runtime_asked": ["*", "kubelet-serving-csr-controller", "persistentvolume-label-controller"],
    "__ccm_runtime_leader_migration": True,
    "__ccm_runtime_leader_migration_lease": "lease-of-runtime",
    "__ccm_runtime_liveness_path": "/live",
    "__ccm_runtime_max_cloud_age": 60,
    "__ccm_runtime_readiness_path": "/ready",
    "__ccm_runtime_verbosity": 5,
}
NEW: dict[str, Any] = {
    "ccm_install_api_host": "bastion",
    "ccm_install_gate_timeout": "9",
    "ccm_install_kubeconfig": "/admin.conf",
    "ccm_install_report_details": {"change": "CHG-2"},
    "ccm_runtime_cloud_provider": "sim",
    "ccm_runtime_controllers": "*,kubelet-serving-csr-controller",
    "ccm_runtime_health_path": "/health",
}
OF_NEW: dict[str, Any] = {
    "__ccm_install_leader_migration_lease": "cloud-provider-extraction-migration",
    "__ccm_install_node_timeout": 9,
    "__ccm_install_report_details": {"change": "CHG-2", "reason": "", "approved_by": ""},
    "__ccm_install_ignored": [],
    "__ccm_runtime_api_host": "bastion",
    "__ccm_runtime_api_config": "/admin.conf",
    "__ccm_runtime_asked": ["*", "kubelet-serving-csr-controller"],
    "__ccm_runtime_leader_migration": False,
    "__ccm_runtime_leader_migration_lease": "cloud-provider-extraction-migration",
    "__ccm_runtime_liveness_path": "/health",
    "__ccm_runtime_max_cloud_age": 0,
    "__ccm_runtime_readiness_path": "/health",
    "__ccm_runtime_verbosity": 2,
}


def validated(folder: Path, variables: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Run both roles' validation on two hosts; return the variables' values and the names in deprecation warnings."""
    roles = [
        {"ansible.builtin.import_role": {"name": f"outoftree.ccm.{role}", "tasks_from": "validate/variables"}}
        for role in ("ccm_install", "ccm_runtime")
    ]
    content = "{{ {" + ", ".join(f"'{name}': {name}" for name in COUNTS) + "} | to_json }}"
    write = {
        "ansible.builtin.copy": {"content": content, "dest": str(folder / "seen.json"), "mode": "0600"},
        "run_once": True,
    }
    plays = [{"hosts": "all", "connection": "local", "gather_facts": False, "tasks": [*roles, write]}]
    (folder / "play.json").write_text(json.dumps(plays))
    (folder / "variables.json").write_text(json.dumps(variables))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [PROGRAM, "-i", "one,two,", folder / "play.json", "-e", f"@{folder / 'variables.json'}",
         "-e", f"ansible_python_interpreter={sys.executable}"],
        env=environment | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "COLUMNS": "10000"},
        cwd=ROOT, text=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    warned = re.findall(r"The variable (\w+) is deprecated", done.stdout + done.stderr)
    return json.loads((folder / "seen.json").read_text()), warned


@pytest.mark.timeout(600)
def test_each_former_variable_counts_and_is_reported_once(tmp_path: Path) -> None:
    assert set(OLD) == set(FORMER)
    seen, warned = validated(tmp_path, OLD | BESIDE)
    assert seen == COUNTS
    assert sorted(warned) == sorted(FORMER)


@pytest.mark.timeout(600)
def test_the_new_variables_say_the_same_without_a_warning(tmp_path: Path) -> None:
    seen, warned = validated(tmp_path, NEW)
    assert seen == OF_NEW
    assert warned == []


def test_former_variables_outlive_the_release_to_come() -> None:
    """As long as a release reads the former variables, no text may say that it has removed them."""
    (upcoming,) = re.findall(r"release-prepare: VERSION \?= (\d+)\.", (ROOT / "Makefile").read_text())
    (removal,) = re.findall(r'version="(\d+)\.', (ROOT / "plugins/filter/former_variables.py").read_text())
    assert int(removal) > int(upcoming)
    for text in ("plugins/filter/former_variables.py", "docs/reference/variables.md"):
        assert f"ntil {removal}.0.0" in (ROOT / text).read_text()

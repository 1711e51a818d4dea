# SPDX-License-Identifier: Apache-2.0
"""Runs the suite on real processes: which behaviours it finds right and wrong, and when it refuses to run."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from ccm_suite.adapters.sim import SimulatedCloud
from ccm_suite.behaviour import catalogue
from ccm_suite.cloud import Machine

from tests.unit.ccm_runtime_role import rendered

from ..cluster import ApiServer, binaries
from .mutant import MUTANTS

OURS = (
    f"{sys.executable} -m ccm.cli --cloud-provider=sim --cloud-config={{cloud_config}} --kubeconfig={{kubeconfig}} "
    "--bind-address=127.0.0.1 --secure-port={port} --configure-cloud-routes=false"
)
#: The time limit of a run in seconds, which no run reaches.
SECONDS = 900


class LyingCloud(SimulatedCloud):
    """Reports machines that its cloud does not have."""

    def create_machine(self, name: str) -> Machine:
        machine = super().create_machine(name)
        self.delete_machine(machine)
        return machine


def suite(
    folder: Path, *arguments: str, controller: str = OURS, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ccm_suite", "run", "--name=ours", f"--controller={controller}"]
    command += [f"--results={folder}/results.json", *arguments]
    environment = {**os.environ, "CCM_SIM": f"{sys.executable} -m ccm.cli sim", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


def outcomes(folder: Path) -> dict[str, str]:
    return {row["id"]: row["outcome"] for row in json.loads((folder / "results.json").read_text())["results"]}


def test_our_controller_passes_and_a_second_run_has_nothing_to_do(tmp_path: Path) -> None:
    arguments = (f"--binaries={binaries()}", "--only=node.t*")
    done = suite(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(tmp_path) == {"node.taint": "passed", "node.told": "passed"}
    assert (tmp_path / "results.xml").exists() and (tmp_path / "results.html").exists()
    again = suite(tmp_path, *arguments, controller="/does/not/exist")
    assert (again.returncode, again.stdout.strip()) == (0, "ours: 2 passed, 0 failed, 0 skipped")


def test_a_controller_that_serves_no_services_is_told_so(tmp_path: Path) -> None:
    arguments = (f"--binaries={binaries()}", "--only=balancer.address", "--patience=0.2")
    done = suite(tmp_path, *arguments, controller=f"{OURS} --controllers=*,-service-lb-controller")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "failed   balancer.address  the Service web has an address: not within 18 s" in done.stdout
    assert outcomes(tmp_path) == {"balancer.address": "failed"}


@pytest.mark.long
@pytest.mark.parametrize(
    "asked",
    [
        ("node.*",),
        ("balancer.[flstu]*",),
        ("fault.late-listing.*",),
        ("project.keeps-*", "project.initialises-*"),
        ("restart.status-*", "machine.ren*"),
    ],
)
def test_what_a_controller_does_wrong_is_noticed_by_the_behaviour_about_it_alone(
    asked: Sequence[str], tmp_path: Path
) -> None:
    ids = {id for pattern in asked for id in fnmatch.filter(catalogue(), pattern)}
    mutants = {name: each.noticed_by for name, each in MUTANTS.items() if each.noticed_by <= ids}
    wrong = OURS.replace("ccm.cli", "tests.integration.suite.mutant", 1)
    arguments = [f"--binaries={binaries()}", *(f"--only={pattern}" for pattern in asked)]
    environment = {"MUTANTS": ",".join(mutants), "MUTANT_STATE": f"{tmp_path}/started"}
    done = suite(tmp_path, *arguments, controller=f"{wrong} --node-deletion-min-age=20s", **environment)
    seen = outcomes(tmp_path)
    assert (done.returncode, seen.keys()) == (1, ids), done.stdout + done.stderr
    assert {id for id, outcome in seen.items() if outcome != "passed"} == set().union(*mutants.values()), done.stdout


@pytest.mark.long
def test_rights_that_are_missing_and_rights_that_are_too_many_are_noticed(tmp_path: Path) -> None:
    documents = rendered("rbac.yaml.j2")
    (role,) = [each for each in documents if each["kind"] == "ClusterRole"]
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["namespaces"]]
    role["rules"] += [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
    ]
    (tmp_path / "roles.yaml").write_text(yaml.safe_dump_all(documents))
    arguments = (f"--binaries={binaries()}", "--only=rights.*", f"--roles={tmp_path}/roles.yaml")
    done = suite(tmp_path, *arguments, controller=f"{OURS} --node-deletion-min-age=20s")
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes(tmp_path) == {
        "rights.enough": "failed",
        "rights.no-secrets": "failed",
        "rights.no-escalation": "failed",
    }
    assert "what the API server has refused so far is ['get namespaces']" in done.stdout
    assert "what it may do with all Secrets is ['list'], not []" in done.stdout
    assert "what it may do is ['create pods/exec'], not []" in done.stdout


@pytest.mark.parametrize(
    ("controller", "cloud", "message"),
    [
        ("/does/not/exist", "sim", "--controller: /does/not/exist: No such file or directory"),
        ("false", "sim", "nobody holds the Lease kube-system/suite-"),
        (OURS, f"{__name__}:LyingCloud", "the controller does not initialise Nodes of the adapter's machines"),
    ],
)
def test_a_run_that_cannot_be_one_says_why(
    controller: str, cloud: str, message: str, tmp_path: Path, apiserver: ApiServer
) -> None:
    lease = f"suite-{tmp_path.name}".replace("_", "-")
    arguments = (f"--kubeconfig={apiserver.kubeconfig()}", f"--lease={lease}", "--patience=0.2", f"--cloud={cloud}")
    done = suite(
        tmp_path, *arguments, "--only=node.taint", controller=f"{controller} --leader-elect-resource-name={lease}"
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"ccm-suite: {message}" in done.stderr
    assert not (tmp_path / "results.json").exists()


def test_a_cluster_in_use_is_left_alone(tmp_path: Path, apiserver: ApiServer) -> None:
    apiserver.kubectl(
        "create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"}})
    )
    try:
        done = suite(tmp_path, f"--kubeconfig={apiserver.kubeconfig()}", "--only=node.taint")
    finally:
        apiserver.kubectl("delete", "node", "worker-1")
    assert done.returncode == 2
    assert "the cluster has 1 Node(s) that this suite did not create (worker-1)" in done.stderr
    assert "--foreign-nodes" in done.stderr

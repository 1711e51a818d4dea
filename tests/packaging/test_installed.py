# SPDX-License-Identifier: Apache-2.0
"""Uses the installed collection in an empty folder, with only ansible-core and the library `kubernetes`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.packaging.environments import REPOSITORY

from ..integration.cluster import ApiServer
from ..integration.collection.machine import Machine
from ..integration.collection.test_layouts import HOSTS, Cluster
from .conftest import User

pytestmark = pytest.mark.timeout(
    600
)  # Ansible takes seconds to start, a module two, and on a busy machine ten times as long
BOOKS = ("preflight", "site", "leader_migration", "verify", "verify_active", "rollback")


@pytest.fixture
def inventory(user: User, apiserver: ApiServer, tmp_path: Path) -> Iterator[Path]:
    """Yield an inventory with a user's variables: a control plane and a worker, each only files and processes. Their
    Nodes are in the API server."""
    cluster = Cluster(apiserver, tmp_path)
    hosts: dict[str, Machine] = {name: cluster.add(name, HOSTS[name]) for name in ("kubeadm-cp", "kubeadm-worker")}
    groups = {"kube_control_plane": "kubeadm-cp", "kube_node": "kubeadm-worker"}
    lines = [f"[{group}]\n{name} {hosts[name].variables}\n" for group, name in groups.items()]
    values = {
        "ccm_install_kubeconfig": apiserver.kubeconfig(),
        "ccm_install_report_file": tmp_path / "report.json",
        "ccm_runtime_cloud_provider": "sim",
        "ccm_runtime_health_timeout": 1,
    }
    lines += ["[all:vars]\n", *(f"{name}={value}\n" for name, value in values.items())]
    path = tmp_path / "inventory.ini"
    path.write_text("".join(lines))
    yield path
    cluster.close()


@pytest.mark.parametrize("book", BOOKS)
def test_a_playbook_is_found_by_its_name_and_complete(user: User, inventory: Path, book: str):
    listed = user.run("ansible-playbook", f"outoftree.ccm.{book}", "-i", str(inventory), "--list-tasks")
    assert listed.returncode == 0, listed.stderr
    assert "Find what sets the cloud flags of this host's components" in listed.stdout


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("docs/inventories/**/*.yml")), ids=lambda path: path.stem)
def test_a_sample_inventory_is_understood(user: User, path: Path):
    run = user.run("ansible-inventory", "-i", str(path), "--list", ANSIBLE_INVENTORY_UNPARSED_FAILED="true")
    assert run.returncode == 0 and "WARNING" not in run.stderr, run.stderr
    groups = json.loads(run.stdout)
    assert groups["kube_control_plane"]["hosts"] and groups["kube_node"]["hosts"]
    begins = user.run("ansible-playbook", "outoftree.ccm.site", "-i", str(path), "--syntax-check")
    assert begins.returncode == 0, begins.stderr


def shown(text: str) -> list[str]:
    """Return the lines of a text as a person reads them on the screen, without JSON's quotes and commas."""
    return [line.strip().removesuffix(",").strip('"') for line in text.splitlines()]


def title(edit: dict[str, str]) -> str:
    return f"{edit['host']}: {edit['component']}, {edit['file']} (risk "


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_preflight_shows_the_plan_and_changes_nothing(user: User, inventory: Path, form: str):
    folder = inventory.parent
    before = {path: path.read_bytes() for path in (folder / "hosts").rglob("etc/**/*") if path.is_file()}
    variables = {"COLUMNS": "10000"}  # no line is wrapped
    if form != "json":  # JSON is Ansible's default
        variables["ANSIBLE_CALLBACK_RESULT_FORMAT"] = form
    run = user.run("ansible-playbook", "outoftree.ccm.preflight", "-i", str(inventory), **variables)
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((folder / "report.json").read_text())
    # The lines of each edit are below its host and file; other lines may follow.
    lines = shown(run.stdout)
    for edit in report["edits"]:
        start = next(number for number, line in enumerate(lines) if line.startswith(title(edit)))
        block = [line.strip() for line in lines[start:]]
        for sign, text in (("- ", edit["now"]), ("+ ", edit["then"])):
            assert text is None or any(line.startswith(sign + edit["flag"]) for line in block)
    assert any(line.startswith("why 1: ") for line in lines) and any(line.startswith("GO: ") for line in lines)
    assert "nodeRegistration:" in lines and "- name: cloud-provider" in map(str.strip, lines)
    assert report["go"] and {edit["host"] for edit in report["edits"]} == {"kubeadm-cp", "kubeadm-worker"}
    assert {path: path.read_bytes() for path in before} == before


def test_site_foretells_in_check_mode_what_it_would_do(user: User, inventory: Path, apiserver: ApiServer):
    run = user.run("ansible-playbook", "outoftree.ccm.site", "-i", str(inventory), "--check", "--diff")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "-KUBELET_EXTRA_ARGS=--cloud-provider=" in run.stdout
    assert '+KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.1 --cloud-provider=external"' in run.stdout
    found = apiserver.kubectl("get", "daemonsets", "-n", "kube-system", "-o", "name")
    assert "cloud-controller-manager" not in found


def test_verify_says_what_is_missing(user: User, inventory: Path):
    run = user.run("ansible-playbook", "outoftree.ccm.verify", "-i", str(inventory))
    said = run.stdout + run.stderr
    assert run.returncode != 0 and "Traceback" not in said
    lines = shown(said)
    assert any(line.startswith("FAIL  runtime") and "there is no DaemonSet" in line for line in lines), said
    assert any(line.startswith("FAIL  kubelets") and "kubeadm-worker" in line for line in lines), said


def test_a_role_can_be_used_in_a_playbook_of_the_users_own(user: User, inventory: Path):
    """The playbook is that of the role's README."""
    book = inventory.parent / "own.yml"
    book.write_text(
        "- hosts: kube_control_plane:kube_node\n  gather_facts: false\n  roles:\n    - outoftree.ccm.ccm_install\n"
    )
    run = user.run("ansible-playbook", str(book), "-i", str(inventory))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "GO: " in run.stdout

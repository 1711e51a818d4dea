# SPDX-License-Identifier: Apache-2.0
"""Cloud configurations that nothing reads after the migration: which files, on which hosts, and when there is no such file."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import old_config
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.verify import verify

ENV = "/var/lib/kubelet/kubeadm-flags.env"
CONF = "/etc/kubernetes/cloud.conf"
BEFORE = f'KUBELET_KUBEADM_ARGS="--cloud-provider=aws --cloud-config={CONF}"\n'
AFTER = 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'
NOTE = (f"w-1: the migration removed --cloud-config={CONF}, so no component of Kubernetes reads that file any more. A rollback needs it. Once you "
        "will not roll back, and if no CSI driver or other Pod mounts it, delete it and revoke its credentials")


@pytest.fixture
def migrated(host_facts: Any) -> dict[str, Any]:
    """Return a migrated worker whose kubelet had --cloud-config."""
    facts: dict[str, Any] = host_facts("w-1", {ENV: AFTER}, ["--cloud-provider=external"])
    baseline = {"existed": True, "original": base64.b64encode(BEFORE.encode()).decode(), "sha256": "", "copied": False, "written": "",
                "written_sha256": []}
    facts["journal"] = {ENV: {"component": "kubelet", "state": "written", "problem": "", "baselines": [baseline]}}
    facts["cloud_configs"] = [CONF, "/etc/other.conf"]
    return facts


def test_the_file_of_a_removed_flag_is_named(migrated: Any) -> None:
    assert old_config.notes({"w-1": migrated}) == [NOTE]


def test_a_file_that_is_gone_is_not_named(migrated: Any) -> None:
    del migrated["cloud_configs"]
    assert old_config.notes({"w-1": migrated}) == []


@pytest.mark.parametrize("change", [
    {"files": {"/etc/default/kubelet": {"exists": True, "content": base64.b64encode(f"A=--cloud-config={CONF}\n".encode()).decode()}}},
    {"components": {"kube-controller-manager": {"flags": ["--cloud-provider=external", f"--cloud-config={CONF}"]}}},
    {"kubelet": {"flags": [f"--cloud-config={CONF}"]}},
])
def test_a_file_that_something_still_names_is_not_named(migrated: Any, change: dict[str, Any]) -> None:
    for part, entries in change.items():
        migrated[part].update(entries)
    assert old_config.notes({"w-1": migrated}) == []


def test_a_file_that_is_gone_names_nothing(migrated: Any) -> None:
    migrated["files"]["/etc/default/kubelet"].update(exists=False, content=base64.b64encode(f"--cloud-config={CONF}".encode()).decode())
    assert old_config.notes({"w-1": migrated}) == [NOTE]


def test_before_the_migration_and_without_a_journal_there_is_nothing_to_say(migrated: Any) -> None:
    migrated["journal"] = {ENV: {"component": "kubelet", "state": "unknown"}}
    assert old_config.notes({"w-1": migrated}) == []


def test_a_host_cannot_write_on_the_terminal(migrated: Any) -> None:
    path = "/etc/\x1b[2Jx"
    migrated["journal"][ENV]["baselines"][0]["original"] = base64.b64encode(f"--cloud-config={path}".encode()).decode()
    migrated["cloud_configs"] = [path]
    assert old_config.notes({"w-1": migrated})[0].startswith("w-1: the migration removed --cloud-config=/etc/?[2Jx,")


def test_bytes_that_are_no_text_do_not_matter(migrated: Any) -> None:
    migrated["journal"][ENV]["baselines"][0]["original"] = base64.b64encode(b"# \xe9\n" + BEFORE.encode()).decode()
    assert old_config.notes({"w-1": migrated}) == [NOTE]


def test_preflight_and_verify_name_it(migrated: Any, cluster_facts: Any) -> None:
    cluster = cluster_facts(("w-1", "initialized"))
    assert NOTE in make_plan({"w-1": migrated}, cluster, [])["notes"]
    health = {"reasons": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "x"}, "unjudged": []}
    verdict = verify({"w-1": migrated}, cluster, health, [])
    assert verdict["notes"] == [NOTE] and verdict["lines"][-1] == "note  " + NOTE
    del migrated["cloud_configs"]
    verdict = verify({"w-1": migrated}, cluster, health, [])
    assert verdict["notes"] == [] and not any(line.startswith("note") for line in verdict["lines"])


def test_many_hosts_share_a_note(migrated: Any, cluster_facts: Any) -> None:
    health = {"reasons": [], "daemonset": {"ready": 1, "desired": 1}, "lease": {"holder": "x"}, "unjudged": []}
    hosts = {f"w-{number}": {**migrated, "node_name": f"w-{number}"} for number in range(1, 7)}
    (note,) = verify(hosts, cluster_facts(*((name, "initialized") for name in hosts)), health, [])["notes"]
    assert note.startswith("6 hosts: w-1...w-6: the migration removed")

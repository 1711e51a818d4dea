# SPDX-License-Identifier: Apache-2.0
"""lint.yml on hosts of several layouts: its findings, their format, and how it reports hosts that it cannot reach."""

from __future__ import annotations

import json

from tests.ports import free_port

from ..cluster import VERSION
from .conftest import kubeconfig_for
from .test_layouts import HOSTS, Cluster, cluster
from .test_refusals import assert_plain

__all__ = ["cluster"]


async def test_findings_of_every_host_have_their_files_and_nothing_is_changed(cluster: Cluster) -> None:
    names = ("kubeadm-cp", "kubeadm-worker", "systemd-cp", "k3s-agent")
    for name in names:
        cluster.add(name, HOSTS[name])
    before = {name: machine.files() for name, machine in cluster.machines.items()}
    run = await cluster.play("playbooks/lint.yml")
    assert {name: machine.files() for name, machine in cluster.machines.items()} == before
    report = cluster.report
    assert VERSION.startswith(f"v{report['version']}.") and report["unread"] == []
    assert "lines" not in report and "sarif" not in report
    for finding in report["findings"]:
        machine = cluster.machines[finding["host"]]
        line = machine.text(finding["file"]).splitlines()[finding["line"] - 1]
        assert finding["flag"].lstrip("-") in line or finding["item"].partition("=")[0] in line, finding
    stops = {(finding["host"], finding["component"], finding["stops_in"]) for finding in report["findings"]}
    assert {("kubeadm-cp", "kube-controller-manager", None), ("systemd-cp", "kube-apiserver", "1.33")} <= stops, stops
    assert run.status != 0 and "fatal in this minor or the next" in run.failures[-1], run.output[-3000:]

    sarif = cluster.folder / "report.sarif"
    await cluster.play("playbooks/lint.yml", ccm_install_report_file=str(sarif))
    (scanned,) = json.loads(sarif.read_text())["runs"]
    assert len(scanned["results"]) == len(report["findings"])
    rules = {rule["id"] for rule in scanned["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in scanned["results"]} == rules


async def test_a_worker_without_findings_passes_and_one_that_is_away_does_not(cluster: Cluster) -> None:
    quiet = {path: text for path, text in HOSTS["kubeadm-cp"].items() if "manifests" not in path}
    cluster.add("kubeadm-cp", {path: "" if path.endswith("flags.env") else text for path, text in quiet.items()})
    clean = await cluster.play("playbooks/lint.yml")
    assert clean.status == 0 and cluster.report["findings"] == [], clean.failures
    cluster.strangers["gone"] = f"ansible_connection=ssh ansible_host=127.0.0.1 ansible_port={free_port()}"
    away = await cluster.play("playbooks/lint.yml")
    assert away.status != 0 and [text.partition(":")[0] for text in cluster.report["unread"]] == ["gone"]


async def test_a_cluster_that_cannot_be_reached_is_one_message(cluster: Cluster) -> None:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    kubeconfig = cluster.folder / "nobody.json"
    kubeconfig.write_text(json.dumps(kubeconfig_for(f"https://127.0.0.1:{free_port()}")))
    run = await cluster.play("playbooks/lint.yml", ccm_install_kubeconfig=str(kubeconfig))
    assert_plain(run)
    assert run.status != 0 and "127.0.0.1" in run.failures[-1]

# SPDX-License-Identifier: Apache-2.0
"""ccm_runtime_monitoring in plays, against a real API server with and without the Prometheus operator's kinds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ..cluster import ApiServer
from .ansible import Run, playbook

pytestmark = pytest.mark.timeout(600)

KINDS = {"podmonitors": "PodMonitor", "servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}


def definition(plural: str) -> dict[str, Any]:
    """Return a CRD of the operator that accepts every field."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": free}}
    names = {"plural": plural, "kind": KINDS[plural], "singular": KINDS[plural].lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture
def operator(apiserver: ApiServer) -> Iterator[None]:
    """Install the kinds of the Prometheus operator during the test."""
    text = yaml.safe_dump_all(definition(plural) for plural in KINDS)
    apiserver.kubectl("apply", "-f", "-", input=text)
    names = [f"crd/{plural}.monitoring.coreos.com" for plural in KINDS]
    apiserver.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    yield
    apiserver.kubectl("delete", "--ignore-not-found", *names)


async def roll_out(apiserver: ApiServer, **variables: Any) -> Run:
    given = {
        "ccm_install_kubeconfig": str(apiserver.kubeconfig()),
        "ccm_runtime_cloud_provider": "sim",
        "ccm_runtime_bind_address": "0.0.0.0",
        **variables,
    }
    tasks = [
        {"ansible.builtin.include_role": {"name": "outoftree.ccm.ccm_runtime", "tasks_from": each}}
        for each in ("validate/settings.yml", "rollout/monitoring.yml")
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": given, "tasks": tasks}
    return await playbook("/dev/stdin", stdin=json.dumps([play]))


def existing(apiserver: ApiServer) -> set[str]:
    """Return kind and name of all existing objects of the role for Prometheus."""
    kinds = "serviceaccount,secret,service,podmonitor,servicemonitor,prometheusrule"
    selector = "app.kubernetes.io/component=metrics"
    found = apiserver.kubectl("-n", "kube-system", "get", kinds, "-l", selector, "-o", "name").split()
    return {*found, *apiserver.kubectl("get", "clusterrole,clusterrolebinding", "-l", selector, "-o", "name").split()}


async def test_a_cluster_without_the_operator_is_refused_with_its_kinds(apiserver: ApiServer, tmp_path: Path):
    told = await roll_out(apiserver, ccm_runtime_monitoring="pod_monitor")
    (message,) = told.failures
    assert told.status != 0 and "the cluster has no PodMonitor, PrometheusRule (monitoring.coreos.com/v1)" in message
    assert "ccm_runtime_monitoring_rules set to false" in message
    told = await roll_out(apiserver, ccm_runtime_monitoring="pod_monitor", ccm_runtime_bind_address="127.0.0.1")
    (message,) = told.failures
    assert "set ccm_runtime_bind_address to 0.0.0.0" in message
    assert (await roll_out(apiserver)).status == 0


async def test_it_follows_the_variable_and_leaves_nothing(apiserver: ApiServer, operator: None):
    common = {
        "serviceaccount/cloud-controller-manager-scraper",
        "secret/cloud-controller-manager-scraper",
        "clusterrole.rbac.authorization.k8s.io/cloud-controller-manager-scraper",
        "clusterrolebinding.rbac.authorization.k8s.io/cloud-controller-manager-scraper",
    }
    rules = "prometheusrule.monitoring.coreos.com/cloud-controller-manager"
    pods = "podmonitor.monitoring.coreos.com/cloud-controller-manager"
    services = "servicemonitor.monitoring.coreos.com/cloud-controller-manager"
    told = await roll_out(apiserver, ccm_runtime_monitoring="pod_monitor")
    assert told.status == 0, told.output
    assert existing(apiserver) == common | {pods, rules}
    shown = json.loads(apiserver.kubectl("-n", "kube-system", "get", rules.replace("/", " ").split()[0], "-o", "json"))
    summaries = [each["annotations"]["summary"] for each in shown["items"][0]["spec"]["groups"][0]["rules"]]
    assert any("{{ $labels.group }}" in each for each in summaries), "the templates of Prometheus stay as they are"
    again = await roll_out(apiserver, ccm_runtime_monitoring="pod_monitor")
    assert not [result for result in again if result.get("changed")]
    told = await roll_out(apiserver, ccm_runtime_monitoring="service_monitor", ccm_runtime_monitoring_rules=False)
    assert told.status == 0, told.output
    assert existing(apiserver) == common | {services, "service/cloud-controller-manager-metrics"}
    told = await roll_out(apiserver)
    assert told.status == 0 and existing(apiserver) == set()

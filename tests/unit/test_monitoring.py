# SPDX-License-Identifier: Apache-2.0
"""Alerts, dashboard, and the role's objects for both: they name existing metrics, and agree with each other."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import REGISTRY
from prometheus_client.metrics import MetricWrapperBase

from .ccm_runtime_role import ROLE, rendered, value

ROOT = Path(__file__).parents[2]
FILES = ROLE / "files" / "monitoring"
RULES = yaml.safe_load((FILES / "rules.yml").read_text())
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
RUNBOOK = (ROOT / "docs/how-to/alerts.md").read_text()
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
#: Metrics of kube-state-metrics, with their labels. kube-state-metrics reports every condition of a namespace.
ELSEWHERE = {
    "kube_namespace_status_condition": {"namespace", "condition", "status"},
    "kube_node_info": {"node", "provider_id"},
    "kube_node_spec_taint": {"node", "key", "value", "effect"},
}
#: Metrics of prometheus_client about the process itself.
OF_THE_PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
#: The rules are given here: in a play, the role reads them by a lookup, whose full name Ansible does not find outside
#: of a play.
SCRAPED = {"ccm_runtime_bind_address": "0.0.0.0", "__ccm_runtime_alert_rules": RULES}


def families() -> dict[str, MetricWrapperBase]:
    """Return the runtime's metrics by the names of their samples."""
    for package in ("base", "cloud", "controllers", "engine", "gateway", "manager", "options", "serving"):
        module = importlib.import_module(f"ccm.{package}")
        for found in pkgutil.walk_packages(module.__path__, f"ccm.{package}."):
            importlib.import_module(found.name)
    every = [each for each in REGISTRY._collector_to_names if isinstance(each, MetricWrapperBase)]
    return {each._name + suffix: each for each in every for suffix in SUFFIXES[each._type]}


def queries() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each query."""
    for name, rule in ALERTS.items():
        yield name, rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.sub(r"^label_values\((\w+), \w+\)$", r"\1", variable["query"]["query"])


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_every_query_is_promql(where: str, query: str):
    """Prometheus' own grammar accepts the query and its arguments' types. Grafana's intervals are filled in first."""
    promql_parser.parse(re.sub(r"\$__(rate_interval|interval|range)", "5m", query))


def test_another_language_is_noticed():
    for wrong in ("sum by (reason ccm_x", "rate(ccm_x_total)", "ccm_x >"):
        with pytest.raises(ValueError):
            promql_parser.parse(wrong)


OWNERS = "ccm|workqueue|rest_client|leader_election|node_controller|service_controller|process|kube"
METRIC = re.compile(rf"\b(?:{OWNERS})_\w+")


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_every_metric_of_a_query_exists_and_is_documented(where: str, query: str):
    known, page = families(), (ROOT / "docs/reference/metrics.md").read_text()
    named = set(METRIC.findall(query))
    assert named, f"{where}: no metric in {query}"
    for name in named - OF_THE_PROCESS - ELSEWHERE.keys():
        assert name in known, f"{where}: the runtime has no metric {name}"
        family = known[name]
        documented = family._name + ("_total" if family._type == "counter" else "")
        assert f"| `{documented}` |" in page


@pytest.mark.parametrize(("where", "query"), list(queries()))
def test_every_label_of_a_query_exists(where: str, query: str):
    known = families()
    named = set(METRIC.findall(query)) - OF_THE_PROCESS
    labels = {label for name in named for label in ELSEWHERE.get(name) or known[name]._labelnames}
    matched = {label for group in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)[=!]~?\"", group)}
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
    assert (matched | grouped) - {"instance", "le"} <= labels


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_has_a_runbook_that_its_annotation_names(name: str):
    rule = ALERTS[name]
    assert re.search(rf"^## {name}$", RUNBOOK, re.MULTILINE)
    assert rule["annotations"]["runbook_url"].endswith(f"/docs/how-to/alerts.md#{name.lower()}")
    section = RUNBOOK.split(f"## {name}\n")[1].split("\n## ")[0]
    assert f"Severity `{rule['labels']['severity']}`, after {rule['for']}." in section
    assert "1. " in section, "a runbook says what to do"
    assert rule["annotations"]["summary"].endswith(".")


def test_the_alert_about_an_upgrade_reads_the_condition_that_lint_writes():
    module = (ROOT / "plugins/modules/ccm_upgrade_condition.py").read_text()
    (condition,) = re.findall(r'^TYPE = "(\w+)"$', module, re.MULTILINE)
    assert f'{{condition="{condition}",status!="true"}}' in ALERTS["CcmUpgradeBlocked"]["expr"]


def test_every_runbook_is_of_an_alert():
    assert set(re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)) == set(ALERTS)


def test_labels_in_a_summary_are_those_of_the_result():
    for name, rule in ALERTS.items():
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert re.search(rf"by \([^)]*\b{label}\b", rule["expr"]), name


def test_the_panels_do_not_overlap():
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for across in range(place["x"], place["x"] + place["w"]):
            assert across < 24
            for down in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((across, down), panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def objects(**variables: Any) -> dict[str, dict[str, Any]]:
    found = rendered("monitoring.yaml.j2", **SCRAPED, **variables)
    assert len({each["kind"] for each in found}) == len(found)
    return {each["kind"]: each for each in found}


COMMON = {"ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "PrometheusRule"}


@pytest.mark.parametrize(
    ("variables", "kinds"),
    [
        ({"ccm_runtime_monitoring": "pod_monitor"}, COMMON | {"PodMonitor"}),
        ({"ccm_runtime_monitoring": "service_monitor"}, COMMON | {"Service", "ServiceMonitor"}),
        (
            {"ccm_runtime_monitoring": "pod_monitor", "ccm_runtime_monitoring_rules": "false"},
            (COMMON | {"PodMonitor"}) - {"PrometheusRule"},
        ),
    ],
)
def test_what_is_rolled_out(variables: dict[str, Any], kinds: set[str]):
    found = objects(**variables, ccm_runtime_monitoring_labels={"release": "stack", "app.kubernetes.io/name": "no"})
    assert set(found) == kinds
    for each in found.values():
        labels = each["metadata"]["labels"]
        assert labels["release"] == "stack" and labels["app.kubernetes.io/name"] == "cloud-controller-manager"
    assert found["ClusterRole"]["rules"] == [{"nonResourceURLs": ["/metrics", "/metrics/slis"], "verbs": ["get"]}]


def test_the_rules_are_rolled_out_as_they_are():
    assert objects(ccm_runtime_monitoring="pod_monitor")["PrometheusRule"]["spec"] == RULES


@pytest.mark.parametrize("port", [10258, 10999])
def test_prometheus_scrapes_the_port_of_the_controller_with_its_own_token(port: int):
    pods = objects(ccm_runtime_monitoring="pod_monitor", ccm_runtime_secure_port=port)
    (endpoint,) = pods["PodMonitor"]["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": pods["Secret"]["metadata"]["name"], "key": "token"}
    addresses = {"192.0.2.1": f"192.0.2.1:{port}", "2001:db8::1": f"[2001:db8::1]:{port}"}
    for pod, expected in addresses.items():
        made = [
            re.sub(rule["regex"], rule["replacement"].replace("$1", r"\1"), pod)
            for rule in endpoint["relabelings"]
            if re.fullmatch(rule["regex"], pod)
        ]
        assert made == [expected]
    services = objects(ccm_runtime_monitoring="service_monitor", ccm_runtime_secure_port=port)
    assert services["Service"]["spec"]["ports"][0]["port"] == port
    labels = services["Service"]["metadata"]["labels"]
    assert services["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (daemonset,) = rendered("daemonset.yaml.j2", **SCRAPED)
    pod_labels = daemonset["spec"]["template"]["metadata"]["labels"]
    for kind, chosen in (("PodMonitor", pods), ("Service", services)):
        selector = chosen[kind]["spec"]["selector"]
        assert selector.get("matchLabels", selector).items() <= pod_labels.items()


def definitions(*plurals: str) -> dict[str, Any]:
    spec = [{"spec": {"group": "monitoring.coreos.com", "names": {"plural": plural}}} for plural in plurals]
    other = [{"spec": {"group": "example.com", "names": {"plural": "podmonitors"}}}]
    return {"__ccm_runtime_definitions": {"resources": spec + other}}


def test_a_missing_kind_of_the_operator_is_named():
    wanted = [{"kind": "PodMonitor"}, {"kind": "PrometheusRule"}, {"kind": "Secret"}]
    given = definitions("servicemonitors", "prometheusrules") | {"__ccm_runtime_monitoring_objects": wanted}
    assert value("__ccm_runtime_operator_missing", **given) == ["PodMonitor"]


def test_what_another_setting_rolled_out_is_removed_and_the_account_last():
    wanted = [{"kind": kind} for kind in (*COMMON, "PodMonitor")]
    every = definitions("servicemonitors", "prometheusrules", "podmonitors")
    removed = value("__ccm_runtime_monitoring_unwanted", **every, __ccm_runtime_monitoring_objects=wanted)
    assert {(each["kind"], each["name"]) for each in removed} == {
        ("Service", "cloud-controller-manager-metrics"),
        ("ServiceMonitor", "cloud-controller-manager"),
    }
    removed = value("__ccm_runtime_monitoring_unwanted", **definitions(), __ccm_runtime_monitoring_objects=[])
    assert [each["kind"] for each in removed][-1] == "ServiceAccount"
    assert {each["kind"] for each in removed} == (COMMON | {"Service"}) - {"PrometheusRule"}

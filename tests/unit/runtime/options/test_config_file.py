# SPDX-License-Identifier: Apache-2.0
"""`--config` and `/configz`: C3, C4, C14, C20 and W27 of docs/reference/parity.md."""

import dataclasses
import itertools
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.base.durations import parse as duration
from ccm.base.durations import spell
from ccm.options.command_line import OptionsError, parse
from ccm.options.config_file import load
from ccm.options.controller_names import CONTROLLERS, ON_BY_DEFAULT
from ccm.options.flags import FLAGS
from ccm.options.leader_migration import Migration

HEAD = {"apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1", "kind": "CloudControllerManagerConfiguration"}
SIM = {"KubeCloudShared": {"CloudProvider": {"Name": "sim"}}}
GATE = "CloudControllerManagerWebhook"


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "ccm.yaml"
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(HEAD | data))
        return f"--config={path}"

    return write


def problems(text):
    return load(text if isinstance(text, str) else json.dumps(HEAD | text), "c.yaml")[1]


def test_C14_defaults_survive_json():
    defaults = parse(["--cloud-provider=sim"])
    values, found = load(json.dumps(defaults.configz()), "c.yaml")
    assert found == []
    assert dataclasses.replace(defaults, **values) == defaults
    assert set(values) == {flag.field for flag in FLAGS} | {"leader_migration"}


FULL = [
    "--cloud-provider=sim",
    "--cluster-cidr=10.0.0.0/8",
    "--controllers=service,-route",
    "--concurrent-node-syncs=7",
    "--kube-api-qps=12.5",
    "--leader-elect-lease-duration=1m30s",
    "--leader-elect-retry-period=250ms",
    "--node-deletion-cap=3",
    "--tls-sni-cert-key=/a.crt,/a.key:x,y",
    "--authorization-always-allow-paths=",
    "--enable-leader-migration",
    "--v=4",
]
HOOKS = [f"--feature-gates={GATE}=true", "--webhooks=*,-b", "--webhook-secure-port=1"]


@pytest.mark.parametrize(
    "arguments", [pytest.param(FULL, id="C3-full"), pytest.param([*FULL, *HOOKS], id="C4-with-webhooks")]
)
def test_all_that_flags_say_survives_a_file(arguments, write):
    by_flags = parse(arguments)
    assert parse([write(by_flags.configz())]) == by_flags


def test_C20_shape():
    """Keys are spelt as in the Go type: capitalised, except in structs that are shared with other components."""
    found = parse(
        ["--cloud-provider=sim", "--kubeconfig=/k", "--cloud-config=/c", "--use-service-account-credentials"]
    ).configz()
    assert found | HEAD == found
    assert set(found) == {
        *HEAD,
        "Generic",
        "KubeCloudShared",
        "NodeController",
        "NodeLifecycleController",
        "ServiceController",
        "NodeStatusUpdateFrequency",
        "Webhook",
        "OutOfTree",
    }
    assert set(found["Generic"]) == {
        "Port",
        "Address",
        "MinResyncPeriod",
        "ClientConnection",
        "ControllerStartInterval",
        "LeaderElection",
        "Controllers",
        "Debugging",
        "LeaderMigrationEnabled",
        "LeaderMigration",
    }
    assert set(found["KubeCloudShared"]) == {
        "CloudProvider",
        "ExternalCloudVolumePlugin",
        "UseServiceAccountCredentials",
        "AllowUntaggedCloud",
        "RouteReconciliationPeriod",
        "ClusterName",
        "ClusterCIDR",
        "AllocateNodeCIDRs",
        "CIDRAllocatorType",
        "ConfigureCloudRoutes",
        "NodeSyncPeriod",
    }
    assert found["Generic"]["ClientConnection"] == {
        "kubeconfig": "/k",
        "acceptContentTypes": "",
        "contentType": "application/vnd.kubernetes.protobuf",
        "qps": 400.0,
        "burst": 800,
    }
    assert found["Generic"]["LeaderElection"] == {
        "leaderElect": True,
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
        "resourceLock": "leases",
        "resourceName": "cloud-controller-manager",
        "resourceNamespace": "kube-system",
    }
    leaders = found["Generic"]["LeaderMigration"]["controllerLeaders"]
    assert {"name": "node-route-controller", "component": "*"} in leaders
    assert found["Generic"]["Controllers"] == ["*"]
    assert found["Generic"]["Port"] == 10258
    assert found["NodeController"] == {"ConcurrentNodeSyncs": 30, "ConcurrentNodeStatusUpdates": 0}
    assert found["NodeStatusUpdateFrequency"] == "5m0s"
    assert found["Webhook"] == {"Webhooks": []}
    json.dumps(found)


def test_C20_it_holds_names_of_files_never_what_is_in_them(tmp_path):
    file = tmp_path / "cloud.conf"
    file.write_text("token: s3cret")
    assert "s3cret" not in json.dumps(parse(["--cloud-provider=sim", f"--cloud-config={file}"]).configz())


def test_flags_are_above_the_file(write):
    config = write(
        {**SIM, "ServiceController": {"ConcurrentServiceSyncs": 3}, "NodeController": {"ConcurrentNodeSyncs": 4}}
    )
    found = parse([config, "--concurrent-node-syncs=30"])
    assert (found.concurrent_service_syncs, found.concurrent_node_syncs) == (3, 30)
    assert found.kube_api_burst == 800


def test_what_is_null_or_empty_is_as_if_it_were_absent(write):
    text = "Generic:\nNodeStatusUpdateFrequency: null\nOutOfTree: {}\n"
    assert parse([write(yaml.safe_dump(HEAD) + text), "--cloud-provider=sim"]) == parse(["--cloud-provider=sim"])


def test_leader_migration_in_the_file(write):
    moved = {"leaderName": "moving", "controllerLeaders": [{"name": "route", "component": "*"}]}
    config = write({**SIM, "Generic": {"LeaderMigrationEnabled": True, "LeaderMigration": moved}})
    assert parse([config]).migration() == Migration("moving", {"node-route-controller": "*"})


def test_controllers_in_the_file(write):
    config = write({**SIM, "Generic": {"Controllers": ["*", "-service"]}})
    assert parse([config]).controllers == tuple(name for name in ON_BY_DEFAULT if name != "service-lb-controller")
    assert parse([write({**SIM, "Generic": {"Controllers": [f"-{name}" for name in CONTROLLERS]}})]).controllers == ()


def test_all_problems_at_once_with_line_and_key():
    text = f"""apiVersion: {HEAD["apiVersion"]}
kind: CloudControllerManagerConfig
generic: {{}}
Generic:
  Port: yes
  Adress: 127.0.0.1
  LeaderElection:
    leaseDuration: 15
    LeaderElect: true
  Controllers: ["*", nope]
  LeaderMigration:
    controllerLeaders:
    - name: route
NodeController: 5
OutOfTree:
  node-deletion-capp: 10%
  feature-gates: {{Nope: true}}
  colour: sim
"""
    assert problems(text) == [
        "c.yaml, line 2: kind: expected CloudControllerManagerConfiguration",
        "c.yaml, line 3: generic: unknown key; did you mean Generic?",
        "c.yaml, line 5: Generic.Port: True is not a whole number",
        "c.yaml, line 6: Generic.Adress: unknown key; did you mean Address?",
        "c.yaml, line 8: Generic.LeaderElection.leaseDuration: 15 is not text",
        "c.yaml, line 9: Generic.LeaderElection.LeaderElect: unknown key; did you mean leaderElect?",
        "c.yaml, line 10: Generic.Controllers: unknown controller 'nope': known controllers are "
        + ", ".join(f"{name} ({alias})" for name, alias in CONTROLLERS.items()),
        "c.yaml, line 11: Generic.LeaderMigration.leaderName: is missing",
        "c.yaml, line 13: Generic.LeaderMigration.controllerLeaders[0].component: is missing",
        "c.yaml, line 14: NodeController: expected keys and values, not 5",
        "c.yaml, line 16: OutOfTree.node-deletion-capp: unknown key; did you mean node-deletion-cap?",
        "c.yaml, line 17: OutOfTree.feature-gates: unknown gate 'Nope': known gates are "
        "CloudControllerManagerWatchBasedRoutesReconciliation, CloudControllerManagerWebhook, "
        "ControllerManagerReleaseLeaderElectionLockOnExit",
        "c.yaml, line 18: OutOfTree.colour: unknown key; known keys: " + ", ".join(
            [*(flag.name for flag in FLAGS if not flag.place), "controllers"]
        ),
    ]  # fmt: skip


def test_what_is_ignored_is_checked_as_its_flag_is():
    data = {"Generic": {"LeaderElection": {"resourceLock": "endpoints"}, "MinResyncPeriod": "1h"}}
    data["NodeController"] = {"ConcurrentNodeStatusUpdates": -1}
    data["NodeLifecycleController"] = {"ConcurrentNodeLifecycleSyncs": 0}
    assert problems(data) == [
        "c.yaml, line 1: Generic.LeaderElection.resourceLock: "
        "'endpoints' is not a supported lock: only leases is",
        "c.yaml, line 1: NodeController.ConcurrentNodeStatusUpdates: must be 0 or more, not -1",
        "c.yaml, line 1: NodeLifecycleController.ConcurrentNodeLifecycleSyncs: must be at least 1, not 0",
    ]


def test_C20_C22_the_node_monitor_period_is_read_where_1_36_and_1_37_have_it(write):
    before, now = ({**SIM, section: {**SIM.get(section, {}), "NodeMonitorPeriod": "7s"}} for section in
                   ("KubeCloudShared", "NodeLifecycleController"))  # fmt: skip
    assert parse([write(before)]) == parse([write(now)]) == parse(["--cloud-provider=sim", "--node-monitor-period=7s"])
    assert "NodeMonitorPeriod" not in parse([write(before)]).configz()["KubeCloudShared"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_key_at_its_old_and_its_new_place_is_a_problem(order):
    sections = ["KubeCloudShared", "NodeLifecycleController"][::order]
    data = {section: {"NodeMonitorPeriod": f"{number}s"} for number, section in enumerate(sections, 7)}
    assert problems(data) == [
        f"c.yaml, line 1: {sections[1]}.NodeMonitorPeriod: is set twice: "
        "keep NodeLifecycleController.NodeMonitorPeriod only"
    ]


def test_problems_of_file_and_flags_come_together(write):
    config = write({**SIM, "Generic": {"Port": -1}, "Nope": 1})
    with pytest.raises(OptionsError) as caught:
        parse([config, "--kube-api-qps=x"])
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "c.yaml: apiVersion: expected cloudcontrollermanager.config.k8s.io/v1alpha1"),
        ("- 1", "c.yaml: expected keys and values, not [1]"),
        ("a: b: c", "c.yaml, line 1: this is not YAML: mapping values are not allowed here"),
        ("a: !!python/object:os.system {}", "c.yaml, line 1: a: unknown key"),
        ("&a [*a]", "nested more than 20 deep"),
        ("&a [*a, *a, *a, *a]", "nested more than 20 deep"),
        (
            "- &a [1,1,1,1,1,1]\n"
            + "".join(f"- &{n} [{', '.join(['*' + p] * 6)}]\n" for p, n in itertools.pairwise("abcdefgh")),
            "more than 10000 values",
        ),
        ("a: 1\n---\nb: 2\n", "c.yaml, line 2: this is not YAML: but found another document"),
        ("\x00", "this is not YAML"),
        ("a: 1\nb: 2\na: 3", "c.yaml, line 1: a: duplicate key, set again in line 3"),
        ("2020-13-45: 1", "c.yaml, line 1: 2020-13-45: unknown key"),
        ("a: 2020-13-45", "this is not YAML: month must be in 1..12"),
    ],
)
def test_files_that_are_no_configuration(text, problem):
    found = problems(text)
    assert any(problem in line for line in found), found


@settings(max_examples=300)
@given(st.text(alphabet=st.sampled_from("ab:-[]{}\n &*!|>'\"#,?%@\t019.~<=\\")) | st.text() | st.binary().map(repr))
def test_no_text_is_a_traceback(text):
    values, found = load(text, "c.yaml")
    assert values == {} and found


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_PLACES = st.sampled_from(
    [flag.place or f"OutOfTree.{flag.name}" for flag in FLAGS] + ["Generic", "Generic.LeaderMigration"]
)


@settings(max_examples=300)
@given(_PLACES, _JSON)
def test_no_value_is_a_traceback(place, value):
    for part in reversed(place.split(".")):
        value = {part: value}
    load(yaml.safe_dump(HEAD | value), "c.yaml")


@given(st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000))
def test_durations_survive_being_spelt(seconds):
    assert duration(spell(seconds)) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (2, "2s"),
        (90, "1m30s"),
        (300, "5m0s"),
        (43200, "12h0m0s"),
        (3600.5, "1h0m0.5s"),
        (-90, "-1m30s"),
    ],
)
def test_durations_are_spelt_as_go_does(seconds, text):
    assert spell(seconds) == text

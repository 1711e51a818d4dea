# SPDX-License-Identifier: Apache-2.0
"""Leader migration: the flags that its first stage gives kube-controller-manager, and that the second stage removes again."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.leader_migration import (
    CONFIG,
    CONTROLLERS,
    configuration,
    make_leader_migration_plan,
)
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

MANIFEST = "/etc/kubernetes/manifests/kube-controller-manager.yaml"
LEASE = "cloud-provider-extraction-migration"
HANDING_OVER = ["--enable-leader-migration=true", f"--leader-migration-config={CONFIG}"]


@pytest.fixture
def cluster(fixture_text: Any, host_facts: Any, cluster_facts: Any) -> Any:
    """Return a function that builds facts of a control plane, whose kube-controller-manager has the flags, and of its cluster."""

    def build(*flags: str, version: str = "v1.30.4", manifest: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
        text = manifest
        if not manifest:
            lines = fixture_text("kubeadm-1.36/kube-controller-manager.yaml").replace("v1.36.3", version).splitlines()
            lines = [line for line in lines if not line.strip().startswith("- --cloud-")]
            at = next(i for i, line in enumerate(lines) if line == "    - kube-controller-manager")
            text = "\n".join([*lines[: at + 1], *(f"    - {flag}" for flag in flags), *lines[at + 1 :], ""])
        argv = yaml.safe_load(text)["spec"]["containers"][0]["command"]
        files = {MANIFEST: text, "/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--cloud-provider=external"\n'}
        running = {"kube-controller-manager": [render(flag.name, flag.value) for flag in find_flags(argv)]}
        facts = host_facts("cp-1", files, ["--cloud-provider=external"], components=running)
        facts["kubelet"]["version"] = version
        return {"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version=version, kubeadm="")

    return build


def command(content: str) -> list[str]:
    return yaml.safe_load(base64.b64decode(content))["spec"]["containers"][0]["command"]


def test_the_loops_get_a_lease_of_their_own_and_stay_where_they_are(cluster: Any) -> None:
    plan = make_leader_migration_plan(*cluster("--cloud-provider=vsphere"), ["cp-1"], LEASE)
    assert plan["go"] and plan["warnings"] == []
    (step,) = plan["hosts"]["cp-1"]["control_plane"]
    config, manifest = step["files"]
    assert (config["path"], config["sha256"], manifest["path"]) == (CONFIG, "", MANIFEST)
    assert command(manifest["content"])[-2:] == HANDING_OVER
    assert "--cloud-provider=vsphere" in command(manifest["content"])
    assert step["flags"] == ["--cloud-provider=vsphere", *HANDING_OVER]
    assert [(edit["flag"], edit["now"], edit["then"]) for edit in plan["edits"]] == [
        ("--enable-leader-migration", None, "true"), ("--leader-migration-config", None, CONFIG)]
    assert plan["hosts"]["cp-1"]["kubelet"] is None and plan["kubeadm_config"] is None


def test_the_configuration_names_the_loops_as_kube_controller_manager_does() -> None:
    data = yaml.safe_load(configuration("mine"))
    assert (data["apiVersion"], data["kind"]) == ("controllermanager.config.k8s.io/v1", "LeaderMigrationConfiguration")
    assert data["leaderName"] == "mine"
    assert data["controllerLeaders"] == [{"name": name, "component": "*"} for name in CONTROLLERS]


def test_a_second_run_and_an_owner_who_did_it_already_change_nothing(cluster: Any) -> None:
    first = make_leader_migration_plan(*cluster("--cloud-provider=vsphere"), ["cp-1"], LEASE)
    written = base64.b64decode(first["hosts"]["cp-1"]["control_plane"][0]["files"][1]["content"]).decode()
    again = make_leader_migration_plan(*cluster(manifest=written), ["cp-1"], LEASE)
    assert again["go"] and again["edits"] == [] and again["hosts"]["cp-1"]["control_plane"] == []
    own = make_leader_migration_plan(*cluster("--cloud-provider=aws", "--enable-leader-migration"), ["cp-1"], LEASE)
    assert own["go"] and own["edits"] == []


def test_a_manager_that_is_external_already_is_left_alone(cluster: Any) -> None:
    plan = make_leader_migration_plan(*cluster("--cloud-provider=external"), ["cp-1"], LEASE)
    assert plan["go"] and plan["edits"] == [] and "cp-1: kube-controller-manager is already external" in plan["warnings"][0]


@pytest.mark.parametrize("version", ["v1.28.4", "v1.99.0", "unknown"])
def test_site_is_not_recommended_where_it_would_refuse_too(cluster: Any, version: str) -> None:
    (problem,) = make_leader_migration_plan(*cluster(version=version), ["cp-1"], LEASE)["problems"]
    assert problem.startswith(f"the cluster runs Kubernetes {version}, but this collection supports 1.29 to ") and "site.yml" not in problem


@pytest.mark.parametrize("version", ["v1.31.0", "v1.36.3"])
def test_where_nothing_can_be_handed_over_it_is_refused_with_the_reason(cluster: Any, version: str) -> None:
    plan = make_leader_migration_plan(*cluster(version=version), ["cp-1"], LEASE)
    (problem,) = plan["problems"]
    assert not plan["go"] and plan["edits"] == []
    for words in (version, "leader migration is for 1.29 to 1.30", "From 1.31 on, kube-controller-manager has no in-tree cloud loops", "site.yml"):
        assert words in problem


def test_a_manager_that_names_no_provider_is_warned_of_and_hands_over_the_lease(cluster: Any) -> None:
    plan = make_leader_migration_plan(*cluster(), ["cp-1"], LEASE)
    (warning,) = plan["warnings"]
    assert "cp-1" in warning and plan["go"]
    assert plan["hosts"]["cp-1"]["control_plane"][0]["flags"][-2:] == HANDING_OVER


def test_a_control_plane_that_is_not_changed_keeps_no_other_from_being_planned(cluster: Any, tree_facts: Any, cluster_facts: Any) -> None:
    (last,) = cluster("--cloud-provider=vsphere")[0].values()
    (external,) = cluster("--cloud-provider=external")[0].values()
    hosts = {"gone": {"unreachable": True, "msg": "no route"}, "k3s": tree_facts("k3s/server", name="k3s", version="v1.30.4"),
             "external": external, "last": last}
    for name in ("external", "last"):
        hosts[name]["node_name"] = name
    nodes = cluster_facts(*((name, "initialized") for name in hosts), version="v1.30.4", kubeadm="")
    plan = make_leader_migration_plan(hosts, nodes, list(hosts), LEASE)
    assert [name for name, steps in plan["hosts"].items() if steps["control_plane"]] == ["last"]


def test_k3s_is_refused(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("k3s/server", name="cp-1", version="v1.30.4")
    plan = make_leader_migration_plan({"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version="v1.30.4", kubeadm=""), ["cp-1"], LEASE)
    assert any("k3s never ran the loops of an in-tree provider" in problem for problem in plan["problems"])


def test_the_flags_of_a_unit_are_changed_as_well(tree_facts: Any, cluster_facts: Any) -> None:
    facts = tree_facts("systemd/control-plane", name="cp-1", version="v1.30.4",
                       changed={"/etc/kubernetes/controller-manager": 'KUBE_CONTROLLER_MANAGER_ARGS="--cloud-provider=vsphere"\n'})
    plan = make_leader_migration_plan({"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version="v1.30.4", kubeadm=""), ["cp-1"], LEASE)
    assert plan["go"], plan["problems"]
    (step,) = plan["hosts"]["cp-1"]["control_plane"]
    assert [item["path"] for item in step["files"]] == [CONFIG, "/etc/kubernetes/controller-manager"]
    assert step["flags"][-2:] == HANDING_OVER and step["service"] == {"unit": "kube-controller-manager.service"}


def test_going_external_leaves_the_lease_to_the_other_side(cluster: Any) -> None:
    """In stage two, kube-controller-manager has no cloud loops. If it still took the Lease, nobody could run these loops."""
    plan = make_plan(*cluster("--cloud-provider=vsphere", *HANDING_OVER), ["cp-1"])
    assert plan["go"] and not any("two owners" in warning for warning in plan["warnings"])
    (step,) = plan["hosts"]["cp-1"]["control_plane"]
    assert step["flags"] == ["--cloud-provider=external"]
    rows = {edit["flag"]: (edit["then"], edit["why"]) for edit in plan["edits"]}
    for flag in ("--enable-leader-migration", "--leader-migration-config"):
        assert rows[flag][0] is None and "must leave the migration Lease" in rows[flag][1]


@pytest.mark.parametrize("flag", ["--enable-leader-migration", "--enable-leader-migration=true"])
def test_the_flag_without_a_value_does_not_swallow_the_next_one(cluster: Any, flag: str) -> None:
    plan = make_plan(*cluster(flag, "--cloud-provider=vsphere"), ["cp-1"])
    manifest = plan["hosts"]["cp-1"]["control_plane"][0]["files"][0]["content"]
    assert "--cloud-provider=external" in command(manifest) and flag not in command(manifest)


def test_from_1_31_the_flags_go_because_nothing_reads_them(cluster: Any) -> None:
    plan = make_plan(*cluster("--enable-leader-migration", version="v1.33.1"), ["cp-1"])
    (edit,) = plan["edits"]
    assert edit["then"] is None and "no cloud loops to hand over any more" in edit["why"]


@pytest.mark.parametrize(("flags", "warned"), [
    (["--cloud-provider=openstack"], True), (["--cloud-provider=external"], False), ([], False), (["--cloud-provider="], False)])
def test_a_plain_migration_away_from_running_loops_warns_of_the_gap(cluster: Any, flags: list[str], warned: bool) -> None:
    plan = make_plan(*cluster(*flags), ["cp-1"])
    assert plan["go"] and any("two owners" in warning and "leader_migration" in warning for warning in plan["warnings"]) == warned

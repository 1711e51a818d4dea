# SPDX-License-Identifier: Apache-2.0
"""The linter: its findings and their places, for every layout: one minor before a component stops starting, with that minor, and after it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import lint

MANIFEST = "/etc/kubernetes/manifests/{0}.yaml"
POD = """\
apiVersion: v1
kind: Pod
spec:
  containers:
  - name: {0}
    image: registry.k8s.io/{0}:v1.30.4
    command:
    - {0}
    # --cloud-config=/not/this
{1}
"""
KUBEADM = """\
apiVersion: kubeadm.k8s.io/v1beta3
kind: ClusterConfiguration
apiServer:
  extraArgs:
    cloud-provider: aws
scheduler:
  extraArgs:
    feature-gates: InTreePluginAWSUnregister=true
"""


def pod(component: str, *flags: str) -> dict[str, str]:
    return {MANIFEST.format(component): POD.format(component, "\n".join("    - " + flag for flag in flags))}


def brief(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(f["level"], f["stops_in"], f["host"], f["component"], f["file"], f["line"], f["flag"], f["item"]) for f in result["findings"]]


def of(host_facts: Any, cluster_facts: Any, files: dict[str, str], version: str = "v1.30.4", kubeadm: str = "",
       **more: Any) -> dict[str, Any]:
    facts = host_facts("cp-1", files)
    facts["manifests"] = [path for path in files if "manifests" in path]
    facts.update(more)
    return lint.lint({"cp-1": facts}, cluster_facts(("cp-1", "initialized"), version=version, kubeadm=kubeadm))


@pytest.mark.parametrize(("version", "level", "ok"), [("v1.31.9", "later", True), ("v1.32.1", "now", False), ("v1.33.0", "now", False)])
def test_the_minor_before_the_one_that_stops_is_now(host_facts: Any, cluster_facts: Any, version: str, level: str, ok: bool) -> None:
    result = of(host_facts, cluster_facts, pod("kube-apiserver", "--cloud-provider=external"), version)
    assert brief(result) == [(level, "1.33", "cp-1", "kube-apiserver", MANIFEST.format("kube-apiserver"), 10, "--cloud-provider", "")]
    assert result["ok"] is ok and result["version"] == version[1:5]
    assert result["findings"][0]["fix"] == "remove --cloud-provider"


def test_items_of_lists_are_found_one_by_one_and_the_first_minor_counts(host_facts: Any, cluster_facts: Any) -> None:
    files = {
        **pod("kube-apiserver", "--enable-admission-plugins=NodeRestriction,PersistentVolumeLabel", "--feature-gates=Foo=true"),
        **pod("kube-controller-manager", "--cloud-provider=aws", "--cloud-config=/etc/aws.conf"),
        **pod("kube-scheduler", "--feature-gates=Foo=true,DisableCloudProviders=false"),
    }
    at = {name: MANIFEST.format(name) for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")}
    manager = "kube-controller-manager"
    assert brief(of(host_facts, cluster_facts, files)) == [
        ("now", "1.31", "cp-1", "kube-apiserver", at["kube-apiserver"], 10, "--enable-admission-plugins", "PersistentVolumeLabel"),
        ("now", "1.31", "cp-1", manager, at[manager], 10, "--cloud-provider", "aws"),
        ("now", "1.31", "cp-1", "kube-scheduler", at["kube-scheduler"], 10, "--feature-gates", "DisableCloudProviders=false"),
    ]
    fixes = [finding["fix"] for finding in of(host_facts, cluster_facts, files)["findings"]]
    assert fixes == ["remove PersistentVolumeLabel", "remove --cloud-provider", "remove DisableCloudProviders=false"]
    newer = brief(of(host_facts, cluster_facts, files, "v1.36.0"))
    assert ("unused", None, "cp-1", manager, at[manager], 11, "--cloud-config", "") in newer and len(newer) == 4


def test_kubelets_units_configurations_and_patches_are_read(host_facts: Any, cluster_facts: Any) -> None:
    config, patch = "/var/lib/kubelet/config.yaml", "/etc/kubernetes/patches/kube-apiserver0+merge.yaml"
    files = {
        "/var/lib/kubelet/kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--cloud-config=/etc/c.conf"\n',
        config: "kind: KubeletConfiguration\nfeatureGates:\n  CloudDualStackNodeIPs: true\n",
        patch: "spec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --cloud-provider=aws]\n",
    }
    facts = host_facts("w-1", files)
    facts["kubelet"]["config_files"] = [config]
    result = lint.lint({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.32.0", kubeadm=""))
    assert brief(result) == [
        ("now", "1.32", "w-1", "kubelet", config, 3, "feature-gates", "CloudDualStackNodeIPs=true"),
        ("now", "1.33", "w-1", "kube-apiserver", patch, 4, "--cloud-provider", ""),
        ("later", "1.34", "w-1", "kubelet", "/var/lib/kubelet/kubeadm-flags.env", 1, "--cloud-config", ""),
    ]
    assert not result["ok"] and result["findings"][2]["fix"] == "remove --cloud-config"
    rules = [rule["id"] for rule in lint.sarif(result)["runs"][0]["tool"]["driver"]["rules"]]
    assert rules == ["kube-apiserver/cloud-provider", "kubelet/cloud-config", "kubelet/feature-gates/CloudDualStackNodeIPs"]


def test_a_flag_without_effect_is_found_from_that_minor_on_and_a_kubelet_needs_another_value(host_facts: Any, cluster_facts: Any) -> None:
    files = pod("kube-controller-manager", "--cloud-config=/x")
    assert of(host_facts, cluster_facts, files, "v1.30.9")["findings"] == []
    assert [finding["level"] for finding in of(host_facts, cluster_facts, files, "v1.31.0")["findings"]] == ["unused"]
    facts = host_facts("w-1", {"/var/lib/kubelet/kubeadm-flags.env": "KUBELET_KUBEADM_ARGS=--cloud-provider=aws\n"})
    (finding,) = lint.lint({"w-1": facts}, cluster_facts(("w-1", "initialized"), version="v1.30.0", kubeadm=""))["findings"]
    assert finding["fix"] == "set it to external, with a cloud-controller-manager in the cluster"


def test_the_place_is_the_line_that_counts(host_facts: Any, cluster_facts: Any) -> None:
    """A finding names the last line with the flag's value; if no line has the value literally, the last line with the flag's name."""
    twice = pod("kube-apiserver", "--cloud-provider=aws", "--cloud-provider=gce", "--cloud-config='/a'")
    lines = [(finding["flag"], finding["line"]) for finding in of(host_facts, cluster_facts, twice)["findings"]]
    assert lines == [("--cloud-provider", 10), ("--cloud-provider", 11), ("--cloud-config", 12)]
    assert lint._place({"/b": "x", "/a": "y"}, "cloud-provider", "aws") == ("/a", 0)
    assert lint._place({"/a": "cloud_provider: 'a' 'ws'\n# cloud-provider aws"}, "cloud-provider", "aws") == ("/a", 1)
    assert lint._place({}, "cloud-provider", "aws") == ("", 0)


def test_a_version_that_is_unknown_is_the_oldest(cluster_facts: Any) -> None:
    assert lint.lint({}, cluster_facts(version="", kubeadm=""))["version"] == "1.29"


def test_what_the_next_kubeadm_upgrade_would_write_is_found(host_facts: Any, cluster_facts: Any) -> None:
    result = of(host_facts, cluster_facts, {}, "v1.36.1", KUBEADM)
    assert brief(result) == [
        ("now", "1.31", "", "kube-scheduler", lint.CONFIG_MAP, 8, "--feature-gates", "InTreePluginAWSUnregister=true"),
        ("now", "1.33", "", "kube-apiserver", lint.CONFIG_MAP, 5, "--cloud-provider", ""),
        ("now", "1.37", "", "kubeadm", lint.CONFIG_MAP, 1, "apiVersion", "kubeadm.k8s.io/v1beta3"),
    ]
    fixes = [finding["fix"] for finding in result["findings"]]
    assert fixes == [
        "remove InTreePluginAWSUnregister=true, because the next 'kubeadm upgrade' writes it into the manifest",
        "remove --cloud-provider, because the next 'kubeadm upgrade' writes it into the manifest",
        "convert it with 'kubeadm config migrate'",
    ]


@pytest.mark.parametrize("tree", ["k3s/server", "k3s/agent", "rke2/server", "rke2/agent", "systemd/control-plane", "systemd/worker",
                                  "kubespray/worker"])
def test_every_layout_is_read_and_each_finding_has_its_place(tree_facts: Any, cluster_facts: Any, tree: str) -> None:
    facts = tree_facts(tree)
    result = lint.lint({"h": facts}, cluster_facts(("h", "initialized"), version="v1.29.0", kubeadm=""))
    assert result["unread"] == []
    for finding in result["findings"]:
        text = base64.b64decode(facts["files"][finding["file"]]["content"]).decode()
        line = text.splitlines()[finding["line"] - 1].replace("_", "-")
        assert finding["flag"].lstrip("-") in line or finding["item"].partition("=")[0] in line, finding


def test_arguments_of_k3s_are_those_of_its_components(tree_facts: Any, cluster_facts: Any) -> None:
    path = "/etc/rancher/k3s/config.yaml"
    text = "kube-apiserver-arg:\n- feature-gates=DisableCloudProviders=false\nkubelet-arg:\n- --cloud-config=/x\n"
    facts = tree_facts("k3s/server", changed={path: text})
    facts["service"]["arguments"] = ["server"]
    facts["service"]["config_files"] = [path]
    result = lint.lint({"s": facts}, cluster_facts(("s", "initialized"), version="v1.31.0", kubeadm=""))
    assert brief(result) == [
        ("now", "1.31", "s", "kube-apiserver", path, 2, "--feature-gates", "DisableCloudProviders=false"),
        ("later", "1.34", "s", "kubelet", path, 4, "--cloud-config", ""),
    ]


def test_what_cannot_be_read_is_named_and_is_not_ok(host_facts: Any, tree_facts: Any, cluster_facts: Any) -> None:
    files = {MANIFEST.format("broken"): "spec: [", "/etc/kubernetes/patches/kube-apiserver0+merge.yaml": "--cloud-provider: ["}
    result = of(host_facts, cluster_facts, files, kubeadm="apiServer: [")
    patch = "/etc/kubernetes/patches/kube-apiserver0+merge.yaml"
    starts = ["cp-1: {0}: ".format(MANIFEST.format("broken")), "cp-1: {0}: ".format(patch), lint.CONFIG_MAP + ": "]
    assert len(result["unread"]) == 3 and all(text.startswith(start) for text, start in zip(result["unread"], starts)), result["unread"]
    config = "/var/lib/kubelet/config.yaml"
    facts = host_facts("w-1", {config: "featureGates: [", "/var/lib/kubelet/kubeadm-flags.env": ""})
    facts["files"]["/var/lib/kubelet/kubeadm-flags.env"]["content"] = base64.b64encode(b"X=\xff").decode()
    facts["kubelet"]["config_files"] = [config]
    server = tree_facts("k3s/server", changed={"/etc/rancher/k3s/config.yaml": "kubelet-arg: [\n"})
    server["service"]["arguments"] = ["server"]
    unread = lint.lint({"w-1": facts, "s": server}, cluster_facts(("w-1", "initialized"), kubeadm=""))["unread"]
    starts = ["w-1: kubelet: ", "w-1: {0}: ".format(config), "s: "]
    assert len(unread) == 3 and all(text.startswith(start) for text, start in zip(unread, starts)), unread
    away = lint.lint({"w-9": {"msg": "Connection refused"}}, cluster_facts(version="v1.36.0", kubeadm=""))
    assert not result["ok"] and not away["ok"] and away["unread"] == ["w-9: Connection refused"]
    assert away["lines"][-1].endswith("0 without effect, 1 could not be read")


def test_flags_that_1_37_does_not_know_are_found_whoever_they_concern(host_facts: Any, cluster_facts: Any) -> None:
    manager, scheduler = "kube-controller-manager", "kube-scheduler"
    files = {
        **pod(manager, "--controllers=*,bootstrapsigner,-route", "--concurrent-service-syncs=5", "--cidr-allocator-type=CloudAllocator"),
        **pod(scheduler, "--feature-gates=kube:SidecarContainers=true,kube:X=true"),
    }
    at = {name: MANIFEST.format(name) for name in (manager, scheduler)}
    assert brief(of(host_facts, cluster_facts, files, "v1.36.1")) == [
        ("now", "1.32", "cp-1", manager, at[manager], 12, "--cidr-allocator-type", "CloudAllocator"),
        ("now", "1.37", "cp-1", manager, at[manager], 10, "--controllers", "-route"),
        ("now", "1.37", "cp-1", manager, at[manager], 11, "--concurrent-service-syncs", ""),
        ("now", "1.37", "cp-1", scheduler, at[scheduler], 10, "--feature-gates", "kube:SidecarContainers=true"),
    ]
    kubeadm = "kind: ClusterConfiguration\ncontrollerManager:\n  extraArgs:\n    controllers: '*,-service'\n    concurrent-service-syncs: '2'\n"
    assert [finding["flag"] for finding in of(host_facts, cluster_facts, {}, "v1.36.1", kubeadm)["findings"]] == [
        "--controllers", "--concurrent-service-syncs"]


def test_preflight_warns_of_what_ends_a_component_at_the_next_minor_and_stays(host_facts: Any, cluster_facts: Any) -> None:
    """The planner removes flags about clouds; other flags belong to other people."""
    env = "/var/lib/kubelet/kubeadm-flags.env"
    files = {
        **pod("kube-apiserver", "--feature-gates=SidecarContainers=true,DisableCloudProviders=true", "--enable-admission-plugins=JobValidation"),
        env: 'KUBELET_KUBEADM_ARGS="--log-cadvisor-usage --containerd /run/c.sock --azure-container-registry-config=/a"\n',
        MANIFEST.format("broken"): "spec: [",
    }
    facts = host_facts("cp-1", files)
    facts["manifests"] = [path for path in files if "manifests" in path]

    def warned(version: tuple[int, int]) -> list[str]:
        cluster = cluster_facts(("cp-1", "initialized"), version="v{0}.{1}.0".format(*version), kubeadm="")
        return [text.partition(" does not")[0] + text.rpartition("To fix it")[2] for text in lint.preview({"cp-1": facts}, cluster, version)]

    where = "cp-1:" + MANIFEST.format("kube-apiserver")
    azure = "cp-1:" + env + ":1: kubelet of 1.30, remove --azure-container-registry-config, before the upgrade to 1.30"
    assert warned((1, 29)) == warned((1, 35)) == [azure]
    assert warned((1, 36)) == [
        where + ":10: kube-apiserver of 1.37, remove SidecarContainers=true, before the upgrade to 1.37",
        where + ":11: kube-apiserver of 1.37, remove JobValidation, before the upgrade to 1.37",
        "cp-1:" + env + ":1: kubelet of 1.37, remove --log-cadvisor-usage, before the upgrade to 1.37",
        "cp-1:" + env + ":1: kubelet of 1.37, remove --containerd, before the upgrade to 1.37",
        azure,
    ]


def test_people_and_code_scanners_read_the_same(host_facts: Any, cluster_facts: Any) -> None:
    result = of(host_facts, cluster_facts, pod("kube-apiserver", "--cloud-provider=external"), "v1.33.0")
    place = MANIFEST.format("kube-apiserver")
    sentence = ("kube-apiserver of 1.33 does not start with --cloud-provider: kube-apiserver lost its cloud code "
                "(kubernetes/kubernetes#130162). To fix it, remove --cloud-provider")
    assert result["lines"] == [
        "now    cp-1:{0}:10".format(place), "       " + sentence,
        "Kubernetes 1.33, checked up to 1.37. Findings: 1 fatal in this minor or the next, 0 fatal in a later one, 0 without effect"]
    (run,) = lint.sarif(result)["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["kube-apiserver/cloud-provider"]
    assert run["results"] == [{
        "ruleId": "kube-apiserver/cloud-provider", "level": "error", "message": {"text": sentence},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "cp-1" + place}, "region": {"startLine": 10}}}]}]
    ignored = of(host_facts, cluster_facts, pod("kube-controller-manager", "--cloud-config=/x"), "v1.36.0")
    assert ignored["ok"] and ignored["lines"][1].startswith("       kube-controller-manager ignores --cloud-config: nothing reads it")
    assert lint.sarif(ignored)["runs"][0]["results"][0]["level"] == "note"


def with_volumes(host_facts: Any, cluster_facts: Any, **volumes: Any) -> dict[str, Any]:
    whole = {"persistent": [], "classes": [], "inline": [], "pods": [], "drivers": [], "nodes": {}, "unread": [], **volumes}
    return lint.lint({"cp-1": host_facts("cp-1", {})}, {**cluster_facts(("cp-1", "initialized"), kubeadm=""), "volumes": whole})


POD_WITH_A_DISK = {"namespace": "shop", "name": "db-0", "node": "w-1", "sources": ["azureDisk"]}


def test_a_volume_in_use_on_a_node_without_its_driver_fails(host_facts: Any, cluster_facts: Any) -> None:
    result = with_volumes(host_facts, cluster_facts, pods=[POD_WITH_A_DISK, {**POD_WITH_A_DISK, "node": "w-2"}], drivers=["disk.csi.azure.com"],
                          nodes={"w-2": ["disk.csi.azure.com"]}, persistent=[{"name": "pv-1", "source": "azureDisk", "claim": ""}])
    assert not result["ok"] and result["findings"] == [{
        "host": "", "component": "volumes", "file": "Pod/shop/db-0", "line": 0, "flag": "azureDisk", "item": "disk.csi.azure.com", "level": "now",
        "stops_in": None, "reason": "Pods use them on w-1, where disk.csi.azure.com is not registered", "fix": "install disk.csi.azure.com on w-1"}]
    assert result["lines"] == [
        "now    Pod/shop/db-0",
        "       volumes of azureDisk need the CSI driver disk.csi.azure.com: Pods use them on w-1, where disk.csi.azure.com is not registered. To fix "
        "it, install disk.csi.azure.com on w-1",
        "Kubernetes 1.36, checked up to 1.37. Findings: 0 fatal in this minor or the next, 0 fatal in a later one, 0 without effect, 1 kind(s) of "
        "volumes have no driver"]
    (scanned,) = lint.sarif(result)["runs"][0]["results"]
    assert (scanned["ruleId"], scanned["level"]) == ("volumes/azureDisk/disk.csi.azure.com", "error")
    assert scanned["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "cluster/Pod/shop/db-0"


@pytest.mark.parametrize(("volumes", "file", "reason"), [
    ({"persistent": [{"name": "pv-1", "source": "azureDisk", "claim": ""}]}, "PersistentVolume/pv-1", "no running Pod uses them"),
    ({"classes": [{"name": "old", "source": "azureDisk", "default": True, "claims": 0}]}, "StorageClass/old", "no running Pod uses them"),
    ({"inline": [{"kind": "Job", "namespace": "shop", "name": "x", "source": "azureDisk"}]}, "Job/shop/x", "no running Pod uses them"),
    ({"pods": [{**POD_WITH_A_DISK, "node": ""}]}, "Pod/shop/db-0", "no running Pod uses them"),
    ({"pods": [POD_WITH_A_DISK], "nodes": {"w-1": ["disk.csi.azure.com"]}}, "Pod/shop/db-0", "their driver is registered, but has no CSIDriver"),
])
def test_a_volume_that_no_running_pod_uses_does_not_fail(
    host_facts: Any, cluster_facts: Any, volumes: dict[str, Any], file: str, reason: str,
) -> None:
    result = with_volumes(host_facts, cluster_facts, **volumes)
    (finding,) = result["findings"]
    assert result["ok"] and (finding["level"], finding["file"], finding["reason"], finding["fix"]) == (
        "unused", file, reason, "install disk.csi.azure.com")
    assert with_volumes(host_facts, cluster_facts, **volumes, drivers=["disk.csi.azure.com"])["findings"] == []


def test_a_volume_that_no_driver_serves_is_to_be_deleted(host_facts: Any, cluster_facts: Any) -> None:
    result = with_volumes(host_facts, cluster_facts, pods=[{**POD_WITH_A_DISK, "sources": ["photonPersistentDisk"]}])
    assert result["ok"] and [(item["level"], item["item"], item["fix"]) for item in result["findings"]] == [("unused", "", "delete them")]
    assert "volumes of photonPersistentDisk need a CSI driver, which does not exist: Pods use them on w-1, where no driver" in result["lines"][1]


def test_volumes_that_may_not_be_listed_are_unread(host_facts: Any, cluster_facts: Any) -> None:
    result = with_volumes(host_facts, cluster_facts, unread=["pods"])
    assert not result["ok"] and result["unread"] == ["pods: the kubeconfig's user may not list them"]


def test_a_plug_in_with_its_driver_does_not_hide_the_next_one(host_facts: Any, cluster_facts: Any) -> None:
    known = [{"name": "pv-1", "source": "awsElasticBlockStore", "claim": ""}, {"name": "pv-2", "source": "cinder", "claim": ""}]
    found = {"persistent": known, "classes": [], "inline": [], "pods": [], "drivers": ["ebs.csi.aws.com"], "nodes": {}, "unread": []}
    cluster = {**cluster_facts(("cp-1", "initialized"), version="v1.30.4", kubeadm=KUBEADM), "volumes": found}
    result = lint.lint({"cp-1": host_facts("cp-1", {})}, cluster)
    assert [finding["file"] for finding in result["findings"] if finding["component"] == "volumes"] == ["PersistentVolume/pv-2"]
    assert len(result["findings"]) > 2 and result["lines"][-1].endswith(", 1 kind(s) of volumes have no driver")


CLEAN: dict[str, str] = {}
BROKEN = {MANIFEST.format("broken"): "token: s3cr3t\nspec: ["}
STOPS = pod("kube-apiserver", "--cloud-provider=external")


@pytest.mark.parametrize(("files", "version", "status", "reason", "parts"), [
    (CLEAN, "v1.36.1", "True", "NothingFound", ["1.36 to 1.37: no component stops"]),
    (STOPS, "v1.31.1", "True", "NothingFound", ["1.31 to 1.32: no component stops. Findings for a later minor: 1"]),
    (STOPS, "v1.32.1", "False", "Blocked", ["1.32 to 1.33: cp-1:", "kube-apiserver.yaml:10: ", "To fix it, remove --cloud-provider"]),
    (STOPS, "v1.33.1", "False", "Blocked", ["1.33 to 1.34: cp-1:"]),
    (STOPS, "v1.37.1", "False", "Blocked", ["1.37 to 1.38: cp-1:"]),
    ({**STOPS, **BROKEN}, "v1.32.1", "False", "Blocked", ["kube-apiserver"]),
    (BROKEN, "v1.36.1", "Unknown", "NotRead", ["1.36 to 1.37: cp-1 could not be read, and outoftree.ccm.lint says why"]),
    (BROKEN, "v1.37.1", "Unknown", "NotRead", ["cp-1 could not be read"]),
    (CLEAN, "v1.37.1", "Unknown", "NextMinorNotKnown", ["1.37 to 1.38: this release of outoftree.ccm knows Kubernetes up to 1.37"]),
])
def test_the_condition_is_true_only_if_all_is_known(
    host_facts: Any, cluster_facts: Any, files: dict[str, str], version: str, status: str, reason: str, parts: list[str],
) -> None:
    condition = of(host_facts, cluster_facts, files, version)["condition"]
    assert (condition["status"], condition["reason"]) == (status, reason)
    assert all(part in condition["text"] for part in parts) and "s3cr3t" not in condition["text"], condition


def test_many_findings_fit_into_a_condition(host_facts: Any, cluster_facts: Any) -> None:
    """Everybody who may read namespaces can read the condition on a terminal, so a host must not be able to fill it with long names."""
    facts = {}
    for number in range(9):
        path = "/etc/kubernetes/manifests/{0}{1}.yaml".format("x" * 2000, number)
        facts["cp-{0}".format(number)] = host_facts("cp-{0}".format(number), {path: STOPS[MANIFEST.format("kube-apiserver")]})
        facts["cp-{0}".format(number)]["manifests"] = [path]
    cluster = cluster_facts(*((name, "initialized") for name in facts), version="v1.32.0", kubeadm="")
    text = lint.lint(facts, cluster)["condition"]["text"]
    assert text.endswith("; and 6 more: outoftree.ccm.lint lists them") and len(text) < 1700 and text.isprintable()
    away = lint.lint({name: {"msg": "Connection refused"} for name in facts}, cluster)["condition"]
    assert away["text"].startswith("1.32 to 1.33: cp-0...cp-8 could not be read"), away

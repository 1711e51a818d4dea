# SPDX-License-Identifier: Apache-2.0
"""kubeadm clusters of every release: manifests, kubeadm-config, patches and the kubelet's file are changed together."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import patches
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags, managed, render
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.plan import make_plan

RELEASES = range(versions.SUPPORTED[0][1], versions.SUPPORTED[1][1] + 1)
MANIFESTS = "/etc/kubernetes/manifests/"
PATCH = "/etc/kubernetes/patches/kube-apiserver0+strategic.yaml"
JSON_PATCH = "/etc/kubernetes/patches/kube-controller-manager+json.json"
FLAGS_ENV = "/var/lib/kubelet/kubeadm-flags.env"


def leftovers(minor: int) -> dict[str, list[tuple[str, str]]]:
    """Return the flags about clouds with which a cluster of a release still runs, as kubeadm's extraArgs."""
    in_tree = minor <= 30
    provider = "vsphere" if in_tree else "external"
    gates = [("feature-gates", "DisableCloudProviders=false,AnonymousAuthConfigurableEndpoints=true")] if in_tree else []
    apiserver = [("cloud-provider", provider), ("cloud-config", "/etc/kubernetes/cloud.conf")] if minor <= 32 else []
    plugins = [("enable-admission-plugins", "NodeRestriction,PersistentVolumeLabel,PodNodeSelector")] if in_tree else []
    loops = [("controllers", "*,bootstrapsigner,tokencleaner,-service-lb-controller,-route"), ("concurrent-service-syncs", "5")] if minor <= 36 else []
    return {
        "kube-apiserver": [*apiserver, *plugins, *gates],
        "kube-controller-manager": [("cloud-provider", provider), ("cloud-config", "/etc/kubernetes/cloud.conf"), *gates, *loops],
        "kubelet": [("cloud-provider", "vsphere" if in_tree else "")] + ([("cloud-config", "/c")] if minor <= 33 else []),
    }


def manifest(text: str, component: str, minor: int, flags: list[tuple[str, str]]) -> str:
    """Return a manifest as kubeadm of that release writes it. Before 1.34, probes' ports were numbers, and a null time was written."""
    names = {name for name, unused in flags}
    lines = []
    for line in text.replace("v1.36.3", f"v1.{minor}.4").splitlines():
        flag = find_flags([line.strip()[2:]], whole=True) if line.startswith("    - --") else []
        if flag and (flag[0].name in names or flag[0].name.startswith("cloud-")):
            continue
        lines.append(line)
        if line == f"    - {component}":
            lines += [f"    - {render(name, value)}" for name, value in flags]
        if line == "metadata:" and minor < 34:
            lines.append("  creationTimestamp: null")
    result = "\n".join(lines) + "\n"
    return result.replace("port: probe-port", "port: 6443") if minor < 34 else result


def cluster_configuration(minor: int, flags: dict[str, list[tuple[str, str]]]) -> str:
    sections = (("apiServer", "kube-apiserver"), ("controllerManager", "kube-controller-manager"))
    lines = ["apiVersion: kubeadm.k8s.io/" + ("v1beta4" if minor >= 31 else "v1beta3"), "kind: ClusterConfiguration"]
    for key, component in sections:
        lines += [f"{key}:", "  extraArgs:"]
        for name, value in [*flags[component], ("profiling", "false")]:
            quoted = f'"{value}"' if value in ("", "false", "5") or value.startswith("*") else value
            lines += [f"  - name: {name}", f"    value: {quoted}"] if minor >= 31 else [f"    {name}: {quoted}"]
    return "\n".join([*lines, "dns: {}", f"kubernetesVersion: v1.{minor}.4", "networking:", "  podSubnet: 10.244.0.0/16", ""])


@pytest.fixture
def cluster(fixture_text: Any, host_facts: Any, cluster_facts: Any) -> Any:
    """Return a function that builds facts of a control plane and its cluster, of one release. C(texts): the files that a run has written."""

    def build(minor: int, texts: dict[str, str] | None = None, kubeadm: str = "", done: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        flags = leftovers(minor)
        files = {f"{MANIFESTS}{name}.yaml": manifest(fixture_text(f"kubeadm-1.36/{name}.yaml"), name, minor, flags[name])
                 for name in ("kube-apiserver", "kube-controller-manager")}
        pause = " --pod-infra-container-image=registry.k8s.io/pause:3.10" if minor < 35 else ""
        arguments = "".join(f" {render(name, value)}" for name, value in flags["kubelet"])
        files[FLAGS_ENV] = f'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock{pause}{arguments}"\n'
        if minor <= 32:
            files[JSON_PATCH] = ('[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--cloud-config=/etc/kubernetes/cloud.conf"},\n'
                                 ' {"op": "add", "path": "/spec/containers/0/command/-", "value": "--profiling=false"}]\n')
            files[PATCH] = ("# Ours\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n"
                            "    - --cloud-provider=external # until 1.32\n    - --v=4\n")
        files.update(texts or {})
        running = {name: [render(f.name, f.value) for f in find_flags(yaml.safe_load(files[f"{MANIFESTS}{name}.yaml"])["spec"]["containers"][0]["command"])]
                   for name in ("kube-apiserver", "kube-controller-manager")}
        kubelet = ["--cloud-provider=external"] if done else [render(name, value) for name, value in flags["kubelet"]]
        facts = host_facts("cp-1", files, kubelet, components=running)
        facts["kubelet"]["version"] = f"v1.{minor}.4"
        nodes = cluster_facts(("cp-1", "initialized" if done else "unmanaged"), version=f"v1.{minor}.4",
                              kubeadm=kubeadm or cluster_configuration(minor, flags))
        return {"cp-1": facts}, nodes

    return build


def written(plan: dict[str, Any]) -> dict[str, str]:
    steps = plan["hosts"]["cp-1"]
    return {item["path"]: base64.b64decode(item["content"]).decode() for step in [*steps["control_plane"], steps["kubelet"]]
            if step for item in step["files"]}


def extra_args(text: str, key: str) -> dict[str, str]:
    extra = (yaml.safe_load(text).get(key) or {}).get("extraArgs") or {}
    pairs = extra.items() if isinstance(extra, dict) else [(item["name"], item["value"]) for item in extra]
    return {name: value for name, value in pairs if managed(name, value)}


@pytest.mark.parametrize("minor", RELEASES)
def test_every_place_of_a_release_says_the_same_afterwards(cluster: Any, minor: int) -> None:
    detected, found = cluster(minor)
    plan = make_plan(detected, found, ["cp-1"])
    assert plan["go"], plan["problems"]
    texts = written(plan)
    configuration = base64.b64decode(plan["kubeadm_config"]["content"]).decode() if plan["kubeadm_config"] else found["kubeadm_config"]["content"]
    for key, component in (("apiServer", "kube-apiserver"), ("controllerManager", "kube-controller-manager")):
        path = f"{MANIFESTS}{component}.yaml"
        text = texts.get(path) or base64.b64decode(detected["cp-1"]["files"][path]["content"]).decode()
        argv = yaml.safe_load(text)["spec"]["containers"][0]["command"]
        here, there = {flag.name: flag.value for flag in find_flags(argv)}, extra_args(configuration, key)
        base = {"enable-admission-plugins": "NodeRestriction"} if component == "kube-apiserver" else {}
        assert here == {**base, **there}, "the next kubeadm upgrade makes the same manifest"
        for fact in versions.FACTS:  # no flag is left that is fatal at this release or the next
            if fact.component == component and fact.value is None and fact.fatal_in and fact.fatal_in[1] <= minor + 1:
                assert fact.flag not in here
        assert "controllers" not in here or minor <= 30, "a name that 1.37 does not know goes as soon as it has no effect"
    assert 'value: ""' not in configuration and "extraArgs: {}" not in configuration
    assert "--cloud-provider=external" in texts[FLAGS_ENV] and "--cloud-config" not in texts[FLAGS_ENV]
    assert "containerd.sock" in texts[FLAGS_ENV]
    detected, found = cluster(minor, texts, configuration, done=True)
    again = make_plan(detected, found, ["cp-1"])
    assert again["go"] and again["edits"] == [] and again["kubeadm_config"] is None


def test_a_1_30_cluster_is_told_what_would_be_fatal_when(cluster: Any) -> None:
    detected, found = cluster(30)
    plan = make_plan(detected, found, ["cp-1"])
    table = "\n".join(plan["table"])
    for words in ("from 1.31, the next release, on", "from 1.33 on", "from 1.34 on", "in-tree vsphere was removed in 1.30",
                  "kubernetes/cloud-provider-vsphere", "vsphere://<vm uuid>", "kubeadm.k8s.io/v1beta3: kubeadm does not start with it from 1.37 on"):
        assert words in table, words
    row = next(edit for edit in plan["edits"] if edit["flag"] == "--enable-admission-plugins" and edit["component"] == "kube-apiserver")
    assert (row["now"], row["then"]) == ("NodeRestriction,PersistentVolumeLabel,PodNodeSelector", "NodeRestriction,PodNodeSelector")
    assert plan["report"]["edits"] == plan["edits"] and "hosts" not in plan["report"]


@pytest.mark.parametrize(("minor", "kind", "line"), [(30, "v1beta3", "    cloud-provider: external"), (36, "v1beta4", "    - name: cloud-provider")])
def test_nodes_that_join_later_get_a_join_configuration(cluster: Any, minor: int, kind: str, line: str) -> None:
    lines = make_plan(*cluster(minor), ["cp-1"])["new_nodes"]
    assert line in lines
    data = yaml.safe_load("\n".join(lines[1:]))
    assert (data["apiVersion"], data["kind"]) == ("kubeadm.k8s.io/" + kind, "JoinConfiguration")


def test_patches_that_would_bring_a_flag_back_are_changed_without_a_restart(cluster: Any) -> None:
    detected, found = cluster(32)
    plan = make_plan(detected, found, ["cp-1"])
    step = plan["hosts"]["cp-1"]["control_plane"][-1]
    assert (step["component"], step["service"], step["restart"]) == ("kubeadm-patches", {}, False)
    texts = written(plan)
    assert texts[PATCH] == "# Ours\nspec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n    - --v=4\n"
    assert yaml.safe_load(texts[JSON_PATCH]) == [{"op": "add", "path": "/spec/containers/0/command/-", "value": "--profiling=false"}]
    assert all("bring it back" in edit["why"] for edit in plan["edits"] if edit["component"] == "kubeadm-patches")


def test_patches_that_cannot_be_edited_safely_are_refused() -> None:
    replaced = '[{"op": "replace", "path": "/spec/containers/0/command/3", "value": "--cloud-provider=aws"}]'
    with pytest.raises(patches.PatchRefused, match="replaces another flag with"):
        patches.edit("/p/kube-apiserver+json.json", replaced, (1, 33))
    with pytest.raises(patches.PatchRefused, match="Edit it by hand"):
        patches.edit("/p/kube-apiserver.yaml", "a: [--cloud-provider=aws\n", (1, 33))
    assert patches.edit("/p/kube-apiserver.yaml", "spec:\n  priority: 1 # no cloud-provider\n", (1, 33))[1] == []
    shorter = '[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--enable-admission-plugins=A,PersistentVolumeLabel"}]'
    assert '"--enable-admission-plugins=A"' in patches.edit("/p/kube-apiserver+json.json", shorter, (1, 33))[0]


def test_kubeadms_own_plugins_come_back_where_nothing_of_the_list_is_left(cluster: Any) -> None:
    detected, found = cluster(30)
    config = found["kubeadm_config"]
    config["content"] = config["content"].replace("NodeRestriction,PersistentVolumeLabel,PodNodeSelector", "PersistentVolumeLabel")
    plan = make_plan(detected, found, ["cp-1"])
    (row,) = [edit for edit in plan["edits"] if edit["host"] == "(cluster)" and edit["flag"] == "enable-admission-plugins"]
    assert row["then"] is None and "NodeRestriction" in row["why"]
    assert "enable-admission-plugins" not in base64.b64decode(plan["kubeadm_config"]["content"]).decode()


def test_a_patch_may_write_underscores() -> None:
    text = '[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--cloud_config=/c"}, {"op": "test", "path": "/kind", "value": "Pod"}]'
    after, changes = patches.edit("/p/kube-apiserver+json.json", text, (1, 33))
    assert [(change.name, change.now) for change in changes] == [("cloud-config", "/c")] and "cloud" not in after

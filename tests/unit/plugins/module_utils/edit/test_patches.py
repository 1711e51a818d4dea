# SPDX-License-Identifier: Apache-2.0
"""kubeadm's patches, one decision at a time: which are left alone, which are edited, which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import patches

END = "/spec/containers/0/command/-"


def edited(name: str, text: str, version: tuple[int, int] = (1, 33)) -> tuple[str, list[tuple[str, str | None]]]:
    after, changes = patches.edit("/p/" + name, text, version)
    return after, [(change.name, change.then) for change in changes]


@pytest.mark.parametrize(("name", "text"), [
    ("etcd.yaml", "spec:\n  containers:\n  - command: [etcd, --cloud-config=/c]\n"),
    ("kube-apiserver.yaml", "{{ no YAML: [\n"),
    ("kube-apiserver.yaml", "spec:\n  containers:\n  - name: kube-apiserver\n    note: --cloud-config=/c\n"),
    ("kube-apiserver.yaml", "spec:\n  containers:\n  - --cloud-config=/c\n"),
    ("kube-apiserver.yaml", "spec:\n  note: --cloud-config=/c\n"),
    ("kube-apiserver.yaml", "note: --cloud-config=/c\n"),
    ("kube-apiserver.yaml", "note: --cloud-config=/c\nspec:\n  containers:\n  - name: kube-apiserver\n    command: [kube-apiserver, --v=4]\n"),
    ("kube-apiserver+json.json", json.dumps([{"op": "add", "path": "/metadata/note", "value": "cloud-config"}, "cloud-config"])),
    ("kube-controller-manager.yaml",
     "spec:\n  containers:\n  - name: kube-controller-manager\n    command: [kube-controller-manager, --cloud-provider=external]\n"),
])
def test_what_sets_no_flag_that_goes_stays_as_it_is(name: str, text: str) -> None:
    assert edited(name, text) == (text, [])


@pytest.mark.parametrize("key", ["command", "args"])
def test_a_flag_goes_from_a_container(key: str) -> None:
    text = f"spec:\n  containers:\n  - name: kube-apiserver\n    {key}:\n    - --cloud-config=/c\n    - --v=4\n"
    assert edited("kube-apiserver.yaml", text) == (text.replace("    - --cloud-config=/c\n", ""), [("cloud-config", None)])


def operations(*values: Any, op: str = "add") -> str:
    return json.dumps([{"op": op, "path": END, "value": value} for value in values], indent=1)


def test_operations_go_wherever_they_stand() -> None:
    text = operations("--v=4", "--cloud-config=/c", "--profiling=false", "--cloud-provider=aws")
    after, changes = edited("kube-apiserver+json.json", text)
    assert [operation["value"] for operation in json.loads(after)] == ["--v=4", "--profiling=false"]
    assert changes == [("cloud-config", None), ("cloud-provider", None)]


def test_a_list_loses_an_item_and_what_stands_after_it_is_edited_as_well() -> None:
    text = operations("--enable-admission-plugins=A,PersistentVolumeLabel", "--cloud-config=/c")
    after, changes = edited("kube-apiserver+json.json", text)
    assert [operation["value"] for operation in json.loads(after)] == ["--enable-admission-plugins=A"]
    assert changes == [("enable-admission-plugins", "A"), ("cloud-config", None)]


@pytest.mark.parametrize(("text", "word"), [
    (operations("--v=4", ["kube-apiserver", "--cloud-config=/c"]), "--cloud-config"),
    (operations(["kube-apiserver", "--cloud-config=/c", "--cloud-provider=aws"]), "--cloud-config"),
    (operations("--cloud-config"), "--cloud-config"),  # the flag's value is the next argument
    (operations("--cloud-config=/c", op="replace"), "--cloud-config"),
    ('{"op": "add", "value": "--cloud-config=/c"}', "list"),
])
def test_a_patch_that_cannot_be_edited_is_refused(text: str, word: str) -> None:
    with pytest.raises(patches.PatchRefused) as caught:
        edited("kube-apiserver+json.json", text)
    assert word in str(caught.value)


def test_a_refusal_names_the_line() -> None:
    text = operations("--v=4", ["--cloud-config=/c"])
    with pytest.raises(patches.PatchRefused, match=f"line {text[: text.rindex('{')].count(chr(10)) + 1} "):
        edited("kube-apiserver+json.json", text)


@pytest.mark.parametrize(("text", "why"), [
    ("- --cloud-config=/c\n", "^it is not a mapping$"),
    ("a: 1\n---\n- --cloud-config=/c\n", "^the patch after line 2: it is not a mapping$"),
    ("a: --cloud-config=/c\n  b: [\n", "^line [23], .* It may contain a cloud flag. Edit it by hand$"),
    ("spec: {containers: [{args: [--cloud-config=/c]}]}\n", "^it has no container named kube-apiserver. It contains a cloud flag. Edit it by hand$"),
])
def test_a_patch_that_is_no_patch_of_the_component_is_refused(text: str, why: str) -> None:
    with pytest.raises(patches.PatchRefused, match=why):
        edited("kube-apiserver.yaml", text)


@pytest.mark.parametrize(("name", "expected"), [
    ("kube-apiserver.yaml", ("kube-apiserver", "strategic")),
    ("kube-apiserver0+merge.yaml", ("kube-apiserver", "merge")),
    ("kube-controller-manager1-own+json.json", ("kube-controller-manager", "json")),
    ("kube-apiserver-cloud+strategic.yaml", ("kube-apiserver", "strategic")),
    ("kube-apiserver_10.yaml", ("kube-apiserver", "strategic")),
    ("kube-apiserverjson.yaml", ("kube-apiserver", "strategic")),  # without '+', no patch type
    ("kube-apiserver.d+merge.yaml", ("kube-apiserver", "strategic")),  # kubeadm ignores the text after the first dot
    ("kube-apiserver+mergeme.yaml", ("kube-apiserver", "merge")),
    ("kube-scheduler0+json.yaml", ("kube-scheduler", "json")),
    ("kubeletconfiguration0+strategic.yaml", ("kubeletconfiguration", "strategic")),
    ("kubeproxydaemonset.yaml", ("kubeproxydaemonset", "strategic")),
    ("corednsdeployment.json", ("corednsdeployment", "strategic")),
    ("etcd.yaml", ("etcd", "strategic")),
    ("my-kube-apiserver.yaml", None), (".yaml", None), ("kube-apiserver.yml", None), ("kube-apiserver.yaml.bak", None), ("README.md", None),
])
def test_a_patch_is_known_by_kubeadms_rule_for_names(name: str, expected: tuple[str, str] | None) -> None:
    assert patches.parse_name("/etc/kubernetes/patches/sub/" + name) == expected


@pytest.mark.parametrize("name", ["kube-apiserver+.yaml", "kube-apiserver0+other.json"])
def test_a_name_with_which_kubeadm_fails_is_refused(name: str) -> None:
    with pytest.raises(patches.PatchRefused, match="no kind of patch"):
        patches.parse_name("/p/" + name)


CONTAINER = "spec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n"


def test_every_patch_of_a_file_is_edited() -> None:
    first, second = CONTAINER + "    - --cloud-config=/c\n", CONTAINER + "    - --v=4\n    - --cloud-provider=aws\n"
    text = f"# ours\n---\n{first}---  \n# nothing\n---\n{second}"
    after, changes = edited("kube-apiserver.yaml", text)
    assert after == text.replace("    - --cloud-config=/c\n", "").replace("    - --cloud-provider=aws\n", "")
    assert changes == [("cloud-config", None), ("cloud-provider", None)]


def test_only_the_first_document_of_a_patch_counts() -> None:
    """kubeadm separates patches only at bare markers ('---'). What follows another marker belongs to the same patch, and kubeadm reads
    only the first document of a patch."""
    text = f"{CONTAINER}    - --cloud-config=/c\n--- # more\n{CONTAINER}    - --cloud-provider=aws\n"
    after, changes = edited("kube-apiserver.yaml", text)
    assert (after, changes) == (text.replace("    - --cloud-config=/c\n", ""), [("cloud-config", None)])
    assert patches.unread("/p/kube-apiserver.yaml", after) == ["cloud-provider"]


@pytest.mark.parametrize("first", ["# one\n", "\n", "- {op: add, path: /x, value: 1}\n"])
def test_a_refusal_names_the_line_of_the_file(first: str) -> None:
    text = first + "---\n- op: add\n  path: /x\n  value: [--cloud-config=/c]\n"
    with pytest.raises(patches.PatchRefused, match="^line 3 sets --cloud-config among other flags"):
        edited("kube-apiserver+json.yaml", text)


def test_the_last_operation_may_have_a_position() -> None:
    text = json.dumps([{"op": "add", "path": END, "value": "--v=4"}, {"op": "add", "path": "/spec/containers/0/command/1", "value": "--cloud-config=/c"}])
    assert [operation["value"] for operation in json.loads(edited("kube-apiserver+json.json", text)[0])] == ["--v=4"]


@pytest.mark.parametrize(("key", "added"), [("command", True), ("args", False)])
def test_a_flag_is_added_to_the_components_own_command_alone(key: str, added: bool) -> None:
    """Another container that has a command gets no flag."""
    text = (f"spec:\n  containers:\n  - name: sidecar\n    command: [sleep]\n  - name: kube-controller-manager\n    {key}: [kube-controller-manager, "
            "--cloud-config=/c]\n")
    changes = edited("kube-controller-manager.yaml", text, (1, 30))[1]
    assert (("cloud-provider", "external") in changes) is added and ("cloud-config", None) in changes


def test_args_alone_get_no_flag_that_the_command_has() -> None:
    text = "spec:\n  containers:\n  - name: kube-controller-manager\n    args: [--cloud-config=/c, --v=2]\n"
    assert edited("kube-controller-manager.yaml", text, (1, 30)) == (text.replace("--cloud-config=/c, ", ""), [("cloud-config", None)])


@pytest.mark.parametrize(("operation", "words"), [
    ({"op": "test", "path": END, "value": "--cloud-config=/c"}, "tests for --cloud-config"),
    ({"op": "add", "path": "/spec/containers/0/command/1", "value": "--cloud-config=/c"}, "adds --cloud-config at a position"),
])
def test_an_operation_that_others_depend_on_is_refused(operation: dict[str, Any], words: str) -> None:
    with pytest.raises(patches.PatchRefused, match=words):
        edited("kube-apiserver+json.json", json.dumps([operation, {"op": "add", "path": END, "value": "--v=4"}]))


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("README.md", "Set --cloud_provider=aws in kube-apiserver.yaml.\n", ["cloud-provider"]),
    ("kube-apiserver.yml", CONTAINER + "    - --cloud-config=/c\n", ["cloud-config"]),
    ("kube-apiserver.yaml", "spec:\n  note: --cloud-config=/c\n", ["cloud-config"]),
    ("kube-apiserver.yaml", CONTAINER + "    - --cloud-config=/c\n", []),
    ("kube-apiserver.yaml", "# no cloud-config\n" + CONTAINER, []),
    ("kubeproxydaemonset.yaml", "gates: InTreePluginvSphereUnregister=false\n", ["InTreePluginvSphereUnregister"]),
    ("kubeletconfiguration.yaml", "featureGates: {DisableCloudProviders: true}\n", []),
    ("kubeletconfiguration.yaml", "feature: {DisableCloudProviders: true}\n", ["DisableCloudProviders"]),
    ("etcd.yaml", "spec: {priority: 1}\n", []),
])
def test_a_file_that_names_a_flag_or_gate_and_is_not_understood_is_reported(name: str, text: str, expected: list[str]) -> None:
    assert patches.unread("/p/" + name, text) == expected


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("kube-scheduler.yaml", "spec: {containers: [{name: kube-scheduler, args: [--feature-gates=A=true]}]}\n", ["A=true"]),
    ("kube-scheduler+json.json", json.dumps([{"op": "add", "path": END, "value": "--feature-gates=B=true"}, "x"]), ["B=true"]),
    ("etcd.yaml", "spec: {containers: [{name: etcd, args: [--feature-gates=A=true]}]}\n", []),
    ("kube-scheduler.yaml", "metadata: {}\n---\n# nothing\n", []),
    ("kube-scheduler+json.yaml", "op: add\nvalue: --feature-gates=A=true\n", []),
])
def test_flags_of_a_patch(name: str, text: str, expected: list[str]) -> None:
    assert [flag.value for flag in patches.flags("/p/" + name, text)] == expected


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("kubeletconfiguration.yaml", "featureGates: {A: true}\n---\nport: 1\n---\nfeatureGates: {B: false}\n", [{"A": True}, {"B": False}]),
    ("kubeletconfiguration+json.yaml", "- {op: add, path: /featureGates/C, value: true}\n- {op: add, path: /port, value: 1}\n", [{"C": True}]),
    ("kubeletconfiguration+json.yaml", "- {op: replace, path: /featureGates, value: {D: true}}\n", [{"D": True}]),
    ("kubeletconfiguration+json.yaml", "featureGates: {A: true}\n", []),
    ("kubeletconfiguration.yaml", "- featureGates\n---\nfeatureGates: [A]\n", []),
    ("kube-apiserver.yaml", "featureGates: {A: true}\n", []),
])
def test_gates_of_a_patch_of_the_kubelets_configuration(name: str, text: str, expected: list[dict[str, bool]]) -> None:
    assert patches.kubelet_gates("/p/" + name, text) == expected

# SPDX-License-Identifier: Apache-2.0
"""kubeadm's patches, one decision at a time: what is left as it is, what is edited, what is refused."""

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
    (operations("--cloud-config"), "--cloud-config"),  # its value is the next argument
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


@pytest.mark.parametrize("text", ["- --cloud-config=/c\n", "a: --cloud-config=/c\n  b: [\n"])
def test_a_patch_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(patches.PatchRefused):
        edited("kube-apiserver.yaml", text)

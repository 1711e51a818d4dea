# SPDX-License-Identifier: Apache-2.0
"""Configurations of k3s and RKE2 as both programs read them: keys that add to earlier keys, flags with operators, command-line options.

The rules come from k3s's source: pkg/configfilearg/parser.go for files, GetArgs in pkg/util/args.go for a component's flags.
"""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import rancher
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.rancher import Item
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import load
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import undo

SERVER = "disable-cloud-controller: true\n"


def kubelet_flags(*texts: str) -> list[str]:
    """Return the kubelet's flags as k3s passes them. The last list counts; an operator says whether a value goes before or after the
    other values of its flag."""
    lists: list[str] = []
    for text in texts:
        for key, value in (load(text) or {}).items():
            items = value if isinstance(value, list) else [] if value is None else [value]
            if key == "kubelet-arg":
                lists = items
            elif key == "kubelet-arg+":
                lists = lists + items
    flags: dict[str, list[str]] = {}
    for item in lists:
        name, unused, value = item.removeprefix("--").partition("=")
        values = flags.setdefault(name.rstrip("-+"), [])
        values.insert(0 if name.endswith("-") else len(values), value)
    return [f"--{name}={value}" for name, values in flags.items() for value in values]


@pytest.mark.parametrize("texts", [
    ["kubelet-arg: [cloud-provider-=aws, v=2]\n"],
    ["kubelet-arg: ['cloud-provider+=aws', cloud-config=/c]\n"],
    ["kubelet-arg: ['--cloud-provider-=aws', --cloud_config+=/c, v=2]\n"],
    ["kubelet-arg: cloud-provider+=aws\n", "kubelet-arg+: cloud-config-=/c\n"],
    ["kubelet-arg+: [v=2]\nkubelet-arg: [max-pods=9]\n"],
    ["kubelet-arg+: [cloud-provider=aws]\nkubelet-arg: [v=2]\n"],
    ["kubelet-arg: [v=2]\nkubelet-arg+: [max-pods=9]\n"],
    ["kubelet-arg+: v=2\n", "kubelet-arg+: max-pods=9\nkubelet-arg: node-ip=10.0.0.1\n", "kubelet-arg+: cloud-provider=aws\n"],
    ["token: x\n", "kubelet-arg+: v=2\nkubelet-arg:\n"],
])
def test_one_external_provider_reaches_the_kubelet(texts: list[str]) -> None:
    before = [flag for flag in kubelet_flags(*texts) if "cloud" not in flag]
    files: list[tuple[str, str | None]] = [(f"/{number}", text) for number, text in enumerate(texts)]
    edit = rancher.plan("k3s", False, files, ["agent"], (1, 30))
    after = [edit.texts.get(path, text) or "" for path, text in files]
    assert kubelet_flags(*after) != kubelet_flags(*texts)
    assert [flag for flag in kubelet_flags(*after) if "cloud" in flag.replace("_", "-")] == ["--cloud-provider=external"]
    assert [flag for flag in kubelet_flags(*after) if "cloud" not in flag] == before
    again: list[tuple[str, str | None]] = [(path, text) for (path, unused), text in zip(files, after, strict=True)]
    assert rancher.plan("k3s", False, again, ["agent"], (1, 30)).changes == []
    assert rancher.is_external("k3s", again, ["agent"]) and not rancher.is_external("k3s", files, ["agent"])


@pytest.mark.parametrize(("now", "then"), [
    ("cloud-provider+=aws", "cloud-provider+=external"), ("--cloud_provider-=aws", "--cloud_provider-=external"),
    ("cloud-provider=aws", "cloud-provider=external"),
])
@pytest.mark.parametrize("key", ["kube-controller-manager-arg", "kubelet-arg"])
def test_a_flag_keeps_its_spelling_and_its_operator(key: str, now: str, then: str) -> None:
    edit = rancher.plan("rke2", True, [("/f", f"{SERVER}{key}:\n- {now}\n- v=2\n")], ["server"], (1, 30))
    assert f"{key}:\n- {then}\n- v=2\n" in edit.texts["/f"]
    assert [(change.key, change.now, change.then) for change in edit.changes if change.key.startswith(key)] == [(key + ": cloud-provider", "aws", "external")]


@pytest.mark.parametrize("item", ["cloud-provider+=aws", "--cloud-provider-=aws", "cloud_provider=aws"])
def test_the_way_back_keeps_the_operator_beside_changes_of_others(item: str) -> None:
    """Somebody else changed the same line, so the rollback can undo only the flags."""
    before = f"kubelet-arg: ['{item}', v=2]\n"
    ours = rancher.plan("k3s", False, [("/f", before)], ["agent"], (1, 30)).texts["/f"]
    back = undo.undo(undo.Rancher("k3s"), before, ours, ours.replace("v=2", "v=7"), (1, 30))
    assert (back.text, back.kept) == (before.replace("v=2", "v=7"), [])


@pytest.mark.parametrize(("value", "flags"), [
    ("cloud-provider", [("cloud-provider", "")]), ("cloud-provider-=", [("cloud-provider", "")]), ("--cloud-config+-=a=b", [("cloud-config", "a=b")]),
    ("feature-gates+=A=true,B=false", [("feature-gates", "A=true,B=false")]), ("v+=2", []), ("", []), ("-cloud-provider=aws", []),
    ("x=cloud-provider+=aws", []), ("cloud-provider+\n=aws", []), ("controllers+=*", []),
])
def test_the_flag_of_an_item(value: str, flags: list[tuple[str, str]]) -> None:
    assert [(flag.name, flag.value) for flag in rancher.flags_of(Item("/f", "kubelet-arg", 0, value))] == flags


def test_a_list_of_controllers_is_a_flag_where_all_flags_are_asked_for() -> None:
    item = Item("/f", "kube-controller-manager-arg", 0, "controllers+=*")
    assert [flag.name for flag in rancher.flags_of(item, whole=True)] == ["controllers"]


@pytest.mark.parametrize(("key", "value", "file"), [
    ("kubelet-arg+: [a=1]\nkubelet-arg: [b=2]\n", "kubelet-arg", "/0"), ("kubelet-arg: [b=2]\nkubelet-arg+: [a=1]\n", "kubelet-arg+", "/0"),
])
def test_an_item_is_added_where_it_counts(key: str, value: str, file: str) -> None:
    edit = rancher.plan("k3s", False, [("/0", key)], ["agent"], (1, 30))
    data: dict[str, Any] = load(edit.texts[file])
    assert "cloud-provider=external" in data[value]


@pytest.mark.parametrize(("arguments", "key", "values"), [
    (["--kubelet-arg", "--cloud-provider=aws", "--kubelet-arg=v=2"], "kubelet-arg", ["--cloud-provider=aws", "v=2"]),
    (["--disable-cloud-controller", "--disable", "a"], "disable-cloud-controller", ["true"]),
    (["--with-node-id", "x"], "with-node-id", ["true"]),
    (["--kubelet-arg"], "kubelet-arg", ["true"]),
])
def test_what_takes_the_next_word_of_a_command_line(arguments: list[str], key: str, values: list[str]) -> None:
    assert rancher.command_line_values(arguments, key) == values

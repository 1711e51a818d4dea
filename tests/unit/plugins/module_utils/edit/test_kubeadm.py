# SPDX-License-Identifier: Apache-2.0
"""Edits of kubeadm's ClusterConfiguration, in both versions of its extraArgs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change

HEAD_3 = "apiVersion: kubeadm.k8s.io/v1beta3\nkind: ClusterConfiguration\n"


def test_v1beta4_leftovers_go_and_the_section_stays_empty_as_kubeadm_writes_it(fixture_text: Any) -> None:
    before = fixture_text("kubeadm-1.36/cluster-configuration.yaml")
    after, changes = kubeadm.edit(before, (1, 36))
    start, end = before.index("controllerManager:"), before.index("dns: {}")
    assert after == before[:start] + "controllerManager: {}\n" + before[end:]
    assert [(c.component, c.change.name) for c in changes] == [
        ("kube-controller-manager", "cloud-config"), ("kube-controller-manager", "cloud-provider")]
    assert kubeadm.edit(after, (1, 36)) == (after, [])


def test_v1beta4_other_arguments_and_duplicates_stay() -> None:
    before = ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n  - name: cloud-provider\n"
              "    value: external\n  - name: audit-policy-file\n    value: /a\n  - name: enable-admission-plugins\n"
              "    value: NodeRestriction,PersistentVolumeLabel\n  - name: cloud-provider\n    value: aws\n")
    after, changes = kubeadm.edit(before, (1, 36))
    assert after == ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\napiServer:\n  extraArgs:\n"
                     "  - name: audit-policy-file\n    value: /a\n  - name: enable-admission-plugins\n    value: NodeRestriction\n")
    assert len(changes) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("controllerManager: {}\n", "controllerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("dns: {}\n", "dns: {}\ncontrollerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud-config: /c\n    v: \"2\"\n",
         "controllerManager:\n  extraArgs:\n    v: \"2\"\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud-provider: openstack\n", "controllerManager:\n  extraArgs:\n    cloud-provider: external\n"),
        ("controllerManager:\n  extraArgs:\n    cloud_provider: openstack\n    cloud_config: /c\n",
         "controllerManager:\n  extraArgs:\n    cloud_provider: external\n"),
    ],
)
def test_v1beta3_gets_external_before_1_31(before: str, after: str) -> None:
    assert kubeadm.edit(HEAD_3 + before, (1, 30))[0] == HEAD_3 + after


@pytest.mark.parametrize(("before", "after"), [
    ("  - name: v\n    value: \"2\"\n  - name: cloud-provider\n", "  - name: v\n    value: \"2\"\n  - name: cloud-provider\n    value: external\n"),
    ("  - name: cloud-provider\n  - name: v\n", "  - name: cloud-provider\n    value: external\n  - name: v\n"),
    ("  - name: cloud-provider\n    value:\n", "  - name: cloud-provider\n    value: external\n"),
    ("  - value:\n    name: cloud-provider\n", "  - value: external\n    name: cloud-provider\n"),
    ("  - name: cloud-provider\n    value: \"\"\n", "  - name: cloud-provider\n    value: \"external\"\n"),
    ("    cloud-provider:\n    v: \"2\"\n", "    cloud-provider: external\n    v: \"2\"\n"),
    ("    cloud-provider: \"\"\n", "    cloud-provider: \"external\"\n"),
])
def test_an_argument_without_a_value_gets_one_in_its_place(before: str, after: str) -> None:
    """kubeadm reads an argument without a value as an empty one."""
    head = ("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" if "name:" in before else HEAD_3) + "controllerManager:\n  extraArgs:\n"
    edited = kubeadm.edit(head + before, (1, 30))[0]
    assert edited == head + after
    assert kubeadm.edit(edited, (1, 30)) == (edited, [])


def test_a_text_of_another_kind_is_refused() -> None:
    with pytest.raises(kubeadm.BadClusterConfiguration, match="kind"):
        kubeadm.edit("kind: InitConfiguration\n", (1, 36))
    with pytest.raises(kubeadm.BadClusterConfiguration, match="extraArgs"):
        kubeadm.edit("kind: ClusterConfiguration\napiServer: {extraArgs: text}\n", (1, 36))


def test_an_edit_that_an_alias_would_repeat_elsewhere_is_refused() -> None:
    text = HEAD_3 + "apiServer:\n  extraArgs: &shared\n    cloud-provider: aws\n    v: \"2\"\nscheduler:\n  extraArgs: *shared\n"
    with pytest.raises(EditRefused, match="anchor"):
        kubeadm.edit(text, (1, 36))


HEAD_4 = HEAD_3.replace("v1beta3", "v1beta4")
CLOUD = {"name": "cloud", "hostPath": "/c", "mountPath": "/c", "readOnly": True, "pathType": "File"}
LOST = {"kube-controller-manager": [CLOUD]}


def flags_back(component: str = "kube-controller-manager", **values: str) -> Any:
    """Return a target that adds flags to one component."""
    changes = [Change(name.replace("_", "-"), None, value, "", "") for name, value in values.items()]
    return lambda name, *unused: changes if name == component else []


@pytest.mark.parametrize(("text", "words"), [
    ("- 1\n", "its kind is not ClusterConfiguration"),
    ("kind: Other\n", "its kind is not ClusterConfiguration"),
    ("kind: ClusterConfiguration\napiServer: text\n", "apiServer is not a mapping"),
    ("kind: ClusterConfiguration\napiServer: {extraArgs: [text]}\n", "extraArgs is neither"),
    ("kind: ClusterConfiguration\napiServer: {extraArgs: [{name: v}, text]}\n", "extraArgs is neither"),
])
def test_what_cannot_be_understood_is_named(text: str, words: str) -> None:
    with pytest.raises(kubeadm.BadClusterConfiguration, match=words):
        kubeadm.managed_flags(text)


@pytest.mark.parametrize("text", ["", "apiServer:\n", "apiServer: {extraArgs: }\n"])
def test_a_section_that_says_nothing_has_no_flags(text: str) -> None:
    assert kubeadm.managed_flags(f"kind: ClusterConfiguration\n{text}") == {"kube-apiserver": [], "kube-controller-manager": []}


@pytest.mark.parametrize(("extra", "values"), [
    ("{cloud_config: /a, v: 1, cloud-config: /b}", [("cloud-config", "/b", 2), ("cloud-config", "/a", 0)]),  # kubeadm sorts keys by name
    ("{v: 2, cloud-provider: , cloud_config: /c}", [("cloud-provider", "", 1), ("cloud-config", "/c", 2)]),
    ("[{name: v, value: x}, {name: cloud-provider}, {name: cloud-config, value: /c}]", [("cloud-provider", "", 1), ("cloud-config", "/c", 2)]),
])
def test_flags_are_numbered_by_their_place(extra: str, values: list[tuple[str, str, int]]) -> None:
    found = kubeadm.managed_flags(f"kind: ClusterConfiguration\napiServer: {{extraArgs: {extra}}}\n")["kube-apiserver"]
    assert [(flag.name, flag.value, flag.index) for flag in found] == values and {flag.width for flag in found} == {1}


@pytest.mark.parametrize("whole", [True, False])
def test_a_list_of_controllers_without_one_of_a_cloud_is_found_on_demand(whole: bool) -> None:
    text = f"{HEAD_3}controllerManager:\n  extraArgs: {{v: \"2\", controllers: \"*,bootstrap\", cloud-provider: x}}\n"
    found = kubeadm.managed_flags(text, whole)["kube-controller-manager"]
    assert [flag.name for flag in found] == [*(["controllers"] if whole else []), "cloud-provider"]


@pytest.mark.parametrize("volumes", ["text", "[text]", "[{mountPath: /c}, text]"])
def test_volumes_that_are_none_are_refused(volumes: str) -> None:
    with pytest.raises(kubeadm.BadClusterConfiguration, match="^controllerManager.extraVolumes is not a list of volumes$"):
        kubeadm.edit(f"{HEAD_3}controllerManager:\n  extraArgs: {{cloud-config: /c}}\n  extraVolumes: {volumes}\n", (1, 36))


def test_volumes_go_with_the_cloud_config_and_come_back_with_it() -> None:
    rest = "  extraVolumes:\n  - hostPath: /k\n    mountPath: /k\n    name: keep\n"
    gone = "  - hostPath: /c\n    mountPath: /c/\n    name: cloud\n    readOnly: true\n"
    before = f"{HEAD_3}controllerManager:\n  extraArgs:\n    cloud-config: /c\n    v: \"2\"\n{rest}{gone}"
    after = kubeadm.edit(before, (1, 36))[0]
    assert after == f"{HEAD_3}controllerManager:\n  extraArgs:\n    v: \"2\"\n{rest}"
    lost = kubeadm.lost_volumes(before, after)
    assert lost == {"kube-apiserver": [], "kube-controller-manager": [{"hostPath": "/c", "mountPath": "/c/", "name": "cloud", "readOnly": True}]}
    assert all(kubeadm.lost_volumes(text, before) == {"kube-apiserver": [], "kube-controller-manager": []} for text in (after, before))
    again = yaml.safe_load(kubeadm.edit(after, (1, 29), flags_back(v_x="1", cloud_config="/c"), lost)[0])["controllerManager"]
    assert [volume["name"] for volume in again["extraVolumes"]] == ["keep", "cloud"] and again["extraVolumes"][1] == lost["kube-controller-manager"][0]


def test_a_volume_stays_where_its_flag_gets_another_value_or_is_not_a_path() -> None:
    before = f"{HEAD_3}controllerManager:\n  extraArgs: {{cloud-config: /c}}\n  extraVolumes:\n  - mountPath: /c\n    name: a\n"

    def other(name: str, flags: Any, version: Any) -> list[Change]:
        return [Change("cloud-config", flag, "/d", "", "") for flag in flags]

    assert kubeadm.edit(before, (1, 29), other)[0] == before.replace("cloud-config: /c", 'cloud-config: "/d"')
    before = before.replace("cloud-config: /c", "cloud-provider: /c, v: x")
    assert "name: a" in kubeadm.edit(before, (1, 36))[0]


@pytest.mark.parametrize("values", [{"cloud_provider": "aws"}, {"cloud_config": ""}])
def test_volumes_come_back_with_a_cloud_config_alone(values: dict[str, str]) -> None:
    assert "extraVolumes" not in kubeadm.edit(HEAD_3, (1, 29), flags_back(**values), LOST)[0]


@pytest.mark.parametrize(("head", "section", "after"), [
    pytest.param(HEAD_3, "", "  extraArgs:\n    cloud-config: /c\n    cloud-provider: aws\n", id="mapping"),
    pytest.param(HEAD_4, "", "  extraArgs:\n  - name: cloud-config\n    value: /c\n  - name: cloud-provider\n    value: aws\n", id="list"),
    pytest.param(HEAD_4, "  extraArgs:\n    v: \"2\"\n", "  extraArgs:\n    v: \"2\"\n    cloud-config: /c\n    cloud-provider: aws\n", id="as-it-is-written"),
])
def test_flags_and_volumes_come_back_into_a_section_without_any(head: str, section: str, after: str) -> None:
    lead = f"controllerManager:\n{section}" if section else ""
    text = kubeadm.edit(head + lead, (1, 29), flags_back(cloud_config="/c", cloud_provider="aws"), LOST)[0]
    found = yaml.safe_load(text)["controllerManager"]
    assert found == {**yaml.safe_load(after), "extraVolumes": [CLOUD]}
    assert "    readOnly: true\n" in text


def test_a_path_that_somebody_else_uses_by_now_stays_as_it_is() -> None:
    text = f"{HEAD_3}controllerManager:\n  extraVolumes:\n  - mountPath: /c\n    name: theirs\n"
    found = yaml.safe_load(kubeadm.edit(text, (1, 29), flags_back(cloud_config="/c"), LOST)[0])["controllerManager"]
    assert found["extraVolumes"] == [{"mountPath": "/c", "name": "theirs"}]


@pytest.mark.parametrize(("entries", "after"), [
    pytest.param(["cloud-provider", "v"], ["v", "cloud-config"], id="one-is-left"),
    pytest.param(["cloud-provider"], ["cloud-config"], id="none-is-left"),
    pytest.param(["cloud-provider", "feature-gates"], ["cloud-config"], id="none-of-two-is-left"),
])
def test_a_new_flag_takes_an_entry_of_one_that_goes_where_none_is_left(entries: list[str], after: list[str]) -> None:
    """With no entry left, there is no place to add a new entry."""
    text = f"{HEAD_4}apiServer:\n  extraArgs:\n" + "".join(f"  - name: {name}\n    value: x\n" for name in entries)

    def target(name: str, flags: Any, version: Any) -> list[Change]:
        gone = [Change(flag.name, flag, None, "", "") for flag in flags if flag.name != "v"]
        return [*gone, Change("cloud-config", None, "/c", "", "")] if name == "kube-apiserver" else []

    found = yaml.safe_load(kubeadm.edit(text, (1, 29), target)[0])["apiServer"]["extraArgs"]
    assert [item["name"] for item in found] == after and found[-1]["value"] == "/c"


def test_an_entry_of_a_list_gets_another_value_in_its_place() -> None:
    text = f"{HEAD_4}controllerManager:\n  extraArgs:\n  - name: cloud-provider\n    value: aws\n  - name: cloud-provider\n    value: gce\n"

    def second(name: str, flags: Any, version: Any) -> list[Change]:
        return [Change("cloud-provider", flags[1], "x", "", "")] if flags else []

    assert kubeadm.edit(text, (1, 29), second)[0] == text.replace("gce", "x")


def test_an_entry_that_gets_another_value_makes_room_for_no_other() -> None:
    text = f"{HEAD_4}controllerManager:\n  extraArgs:\n  - name: cloud-provider\n    value: aws\n"

    def both(name: str, flags: Any, version: Any) -> list[Change]:
        return [Change("cloud-provider", flags[0], "x", "", ""), Change("cloud-config", None, "/c", "", "")] if flags else []

    found = yaml.safe_load(kubeadm.edit(text, (1, 29), both)[0])["controllerManager"]["extraArgs"]
    assert found == [{"name": "cloud-provider", "value": "x"}, {"name": "cloud-config", "value": "/c"}]


@pytest.mark.parametrize(("scheduler", "expected"), [
    ("", []),
    ("scheduler: text\n", []),
    ("scheduler: {}\n", []),
    ("scheduler:\n  extraArgs:\n    v: \"2\"\n    feature-gates: A=true\n", [("A=true", 6)]),
    ("scheduler:\n  extraArgs:\n  - name: v\n    value: x\n  - name: feature-gates\n    value: A=true\n", [("A=true", 7)]),
])
def test_gates_of_the_scheduler_and_their_lines(scheduler: str, expected: list[tuple[str, int]]) -> None:
    assert kubeadm.scheduler_gates(HEAD_3 + scheduler) == expected


@pytest.mark.parametrize(("extra", "after"), [
    ("extraArgs:\n    cloud-config: /c\n", "extraArgs:\n    cloud-provider: external\n"),
    ("extraArgs:\n    external-cloud-volume-plugin: openstack\n    enable-leader-migration: \"true\"\n", "extraArgs:\n    cloud-provider: external\n"),
    ("extraArgs: {cloud-config: /c}\n", "extraArgs: {cloud-provider: external}\n"),
    ("extraArgs: {}\n", "extraArgs:\n    cloud-provider: external\n"),
    ("extraArgs: []\n", "extraArgs:\n    cloud-provider: external\n"),
    ("extraArgs:\n", "extraArgs:\n    cloud-provider: external\n"),
])
def test_external_takes_the_place_of_all_that_goes(extra: str, after: str) -> None:
    lead = f"{HEAD_3}controllerManager:\n  "
    assert kubeadm.edit(lead + extra, (1, 30))[0] == lead + after


@pytest.mark.parametrize(("api", "listed"), [("v1beta1", False), ("v1beta2", False), ("v1beta3", False), ("v1beta4", True), ("v1", True), ("v2", True)])
@pytest.mark.parametrize("section", ["", "controllerManager: {}\n", "controllerManager:\n  extraArgs: []\n"])
def test_a_section_without_arguments_gets_them_in_the_form_of_its_version(api: str, listed: bool, section: str) -> None:
    after = yaml.safe_load(kubeadm.edit(HEAD_3.replace("v1beta3", api) + section, (1, 30))[0])["controllerManager"]
    assert after == {"extraArgs": [{"name": "cloud-provider", "value": "external"}] if listed else {"cloud-provider": "external"}}


def test_an_argument_that_is_merged_with_kubeadms_own_is_refused_with_its_line() -> None:
    entry = "  - name: enable-admission-plugins\n    value: \",{0}\"\n    mergeMethod: append\n"
    text = HEAD_3.replace("v1beta3", "v1") + "apiServer:\n  extraArgs:\n" + entry
    with pytest.raises(EditRefused, match="^line 5: enable-admission-plugins has a mergeMethod, so its value is only a part of the flag"):
        kubeadm.edit(text.format("PersistentVolumeLabel"), (1, 36))
    assert kubeadm.edit(text.format("AlwaysPullImages"), (1, 36))[1] == []


def test_a_volume_goes_whose_folder_has_the_cloud_config_and_stays_where_another_flag_needs_it() -> None:
    text = f"{HEAD_3}controllerManager:\n  extraArgs:\n    cloud-config: /etc/cloud/c.ini\n    cloud-provider: external\n    x: {{0}}\n" \
        "  extraVolumes:\n  - mountPath: /etc/cloud/\n    name: cloud\n"
    assert "extraVolumes" not in kubeadm.edit(text.format("/etc/other"), (1, 36))[0]
    assert "name: cloud" in kubeadm.edit(text.format("/etc/cloud/ca.pem"), (1, 36))[0]


def test_two_spellings_of_a_name_go_and_come_back() -> None:
    text = HEAD_3 + "apiServer:\n  extraArgs:\n    cloud_config: /b\n    v: \"2\"\n    cloud-config: /a\n"
    after = kubeadm.edit(text, (1, 29))[0]
    assert yaml.safe_load(after)["apiServer"] == {"extraArgs": {"v": "2"}}
    back = [Change("cloud-config", None, value, "", "") for value in ("/a", "/b")]
    again = kubeadm.edit(after, (1, 29), lambda name, *unused: back if name == "kube-apiserver" else [])[0]
    assert yaml.safe_load(again)["apiServer"] == {"extraArgs": {"v": "2", "cloud-config": "/a", "cloud_config": "/b"}}
    with pytest.raises(EditRefused, match="more often than a mapping can"):
        kubeadm.edit(after, (1, 29), lambda name, *unused: [*back, back[0]] if name == "kube-apiserver" else [])

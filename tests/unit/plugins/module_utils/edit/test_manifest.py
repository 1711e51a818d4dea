# SPDX-License-Identifier: Apache-2.0
"""Edits of static Pod manifests keep every byte that is not part of the edit."""

from __future__ import annotations

import base64
import difflib
from typing import Any

import pytest
import yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import Change

KCM = "kube-controller-manager"


def changed_lines(before: str, after: str) -> list[str]:
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in diff if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def small(command: str, rest: str = "") -> str:
    return f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: {KCM}\n{command}    image: x:v1.36.3\n{rest}"


def test_leftovers_and_their_volume_go_from_a_kubeadm_manifest(fixture_text: Any) -> None:
    before = fixture_text("kubeadm-1.36/kube-controller-manager.yaml")
    after, changes, notes = manifest.edit(before, KCM, (1, 36))
    expected = before
    for part in ("    - --cloud-config=/etc/kubernetes/cloud.conf\n    - --cloud-provider=\n",
                 "    - mountPath: /etc/kubernetes/cloud.conf\n      name: cloud-config\n      readOnly: true\n",
                 "  - hostPath:\n      path: /etc/kubernetes/cloud.conf\n      type: File\n    name: cloud-config\n"):
        assert part in expected
        expected = expected.replace(part, "")
    assert after == expected
    assert [(change.name, change.now, change.then) for change in changes] == [
        ("cloud-config", "/etc/kubernetes/cloud.conf", None), ("cloud-provider", "", None)]
    assert notes == ["volume mount cloud-config (/etc/kubernetes/cloud.conf)", "volume cloud-config"]
    assert manifest.edit(after, KCM, (1, 36)) == (after, [], [])


@pytest.mark.parametrize("name", ["kube-apiserver", "kube-scheduler"])
def test_clean_manifests_are_left_alone(fixture_text: Any, name: str) -> None:
    before = fixture_text(f"kubeadm-1.36/{name}.yaml")
    assert manifest.edit(before, name, (1, 36)) == (before, [], [])


def test_external_is_kept_on_a_new_controller_manager_and_set_on_an_old_one() -> None:
    keep = small("    command:\n    - kube-controller-manager\n    - --cloud-provider=external\n")
    assert manifest.edit(keep, KCM, (1, 36))[0] == keep
    assert manifest.edit(keep, KCM, (1, 30))[0] == keep
    old = small("    command:\n    - kube-controller-manager\n    - '--cloud-provider=openstack' # ours\n    - --v=2\n")
    assert changed_lines(old, manifest.edit(old, KCM, (1, 30))[0]) == [
        "-    - '--cloud-provider=openstack' # ours", "+    - '--cloud-provider=external' # ours"]
    none = small("    command:\n    - kube-controller-manager\n    - --v=2\n")
    assert changed_lines(none, manifest.edit(none, KCM, (1, 30))[0]) == ["+    - --cloud-provider=external"]


@pytest.mark.parametrize(
    ("plugins", "expected"),
    [("NodeRestriction,PersistentVolumeLabel", "    - --enable-admission-plugins=NodeRestriction\n"),
     ("PersistentVolumeLabel", "")],
)
def test_a_removed_admission_plugin_leaves_the_list_never_empty(plugins: str, expected: str) -> None:
    head = "spec:\n  containers:\n  - name: kube-apiserver\n    command:\n    - kube-apiserver\n"
    before = f"{head}    - --enable-admission-plugins={plugins}\n    - --cloud-provider=external\n"
    after, changes, unused = manifest.edit(before, "kube-apiserver", (1, 36))
    assert after == head + expected
    assert "does not start with it" in changes[0].why


def test_comments_order_quotes_and_crlf_stay() -> None:
    before = small(
        "    # why this is here\n    command:\n    - kube-controller-manager\n    - --zzz=1   # keep\n    # about the next\n"
        "    - \"--cloud-config=/x\"\n    - --aaa=2\n").replace("\n", "\r\n")
    after, unused, unused2 = manifest.edit(before, KCM, (1, 36))
    assert after == before.replace('    - "--cloud-config=/x"\r\n', "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[kube-controller-manager, --cloud-provider=, --v=2]", "[kube-controller-manager, --v=2]"),
        ("[kube-controller-manager, '--cloud-config=/x']", "[kube-controller-manager]"),
        ('["kube-controller-manager", "--cloud-config", "/x", "--v=2"]', '["kube-controller-manager", "--v=2"]'),
    ],
)
def test_flow_style_lists_are_edited_too(before: str, after: str) -> None:
    assert manifest.edit(small(f"    command: {before}\n"), KCM, (1, 36))[0] == small(f"    command: {after}\n")


def test_a_value_that_is_an_argument_of_its_own_goes_with_its_flag() -> None:
    before = small("    command:\n    - kube-controller-manager\n    - --cloud-config\n    - /etc/cloud\n"
                   "    args:\n    - --cloud-provider\n    - aws\n    - --v=2\n")
    after, unused, unused2 = manifest.edit(before, KCM, (1, 36))
    data = yaml.safe_load(after)["spec"]["containers"][0]
    assert (data["command"], data["args"]) == ([KCM], ["--v=2"])


def test_a_flag_whose_value_is_missing_goes_too() -> None:
    before = small("    command:\n    - kube-controller-manager\n    - --v=2\n    - --cloud-config\n")
    assert manifest.edit(before, KCM, (1, 36))[0] == before.replace("    - --cloud-config\n", "")


def test_a_volume_that_something_else_needs_stays() -> None:
    rest = ("    volumeMounts:\n    - {name: etc, mountPath: /etc/kubernetes/cloud}\n  volumes:\n  - {name: etc, hostPath: {path: /e}}\n")
    flags = "    command:\n    - kube-controller-manager\n    - --cloud-config=/etc/kubernetes/cloud/c.conf\n"
    gone, unused, notes = manifest.edit(small(flags, rest), KCM, (1, 36))
    assert "volumes" not in yaml.safe_load(gone)["spec"] and len(notes) == 2
    kept, unused, notes = manifest.edit(small(flags + "    - --other=/etc/kubernetes/cloud/d\n", rest), KCM, (1, 36))
    assert "volumes" in yaml.safe_load(kept)["spec"] and notes == []


def test_an_edit_that_an_alias_would_repeat_elsewhere_is_refused() -> None:
    before = small("    command: &c\n    - kube-controller-manager\n    - --cloud-provider=\n", "  - name: other\n    command: *c\n")
    with pytest.raises(EditRefused, match="anchor"):
        manifest.edit(before, KCM, (1, 36))


def test_anchors_elsewhere_stay() -> None:
    before = small("    command:\n    - kube-controller-manager\n    - --cloud-provider=\n", "    env: &e [{name: A, value: b}]\n  - {name: o, env: *e}\n")
    assert "&e" in manifest.edit(before, KCM, (1, 36))[0]


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("spec: [", NotYaml, "line 1"),
        ("a: b: c", NotYaml, "line 1, column 5"),
        ("spec: {}", manifest.BadManifest, "no spec.containers"),
        ("just text", manifest.BadManifest, "no spec.containers"),
        ("spec: {containers: [{name: other}]}", manifest.BadManifest, "it has no container named"),
        (f"spec: {{containers: [{{name: {KCM}}}]}}", manifest.BadManifest, "no command"),
        (f"spec: {{containers: [{{name: {KCM}, command: x}}]}}", manifest.BadManifest, "not a list of strings"),
        (f"spec: {{containers: [{{name: {KCM}, args: [x, 1]}}]}}", manifest.BadManifest, "args is not a list of strings"),
        (f"spec: {{containers: [text, {{name: {KCM}, command: [{KCM}, 1]}}]}}", manifest.BadManifest, "command is not a list of strings"),
        *[(small(f"    command: [{KCM}, --cloud-provider=]\n", rest), manifest.BadManifest, f"^{key} is not a list of mappings$") for key, rest in (
            ("volumeMounts", "    volumeMounts: text\n"), ("volumeMounts", "    volumeMounts: [{name: a}, b]\n"), ("volumeMounts", "    volumeMounts: [b]\n"))],
    ],
)
def test_bad_manifests_are_named_not_edited(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        manifest.edit(text, KCM, (1, 36))


def test_a_file_without_a_last_line_end_is_edited_at_its_end() -> None:
    before = f"spec:\n  containers:\n  - name: {KCM}\n    command:\n    - kube-controller-manager\n    - --cloud-provider="
    assert manifest.edit(before, KCM, (1, 36))[0] == before[:before.index("    - --cloud-provider")]
    added = before.replace("--cloud-provider=", "--v=2")
    assert manifest.edit(added, KCM, (1, 30))[0] == added + "\n    - --cloud-provider=external"


@pytest.mark.parametrize(("containers", "expected"), [
    (f"[{{name: side, image: s}}, {{name: {KCM}, image: x:v1}}]", (KCM, "x:v1")),
    (f"[{{name: {KCM}}}]", (KCM, "")),
    (f"[{{name: {KCM}, image: null}}]", (KCM, "")),
    ("[{name: side, image: s}]", ("", "")),
    ("1", ("", "")),
])
def test_the_image_is_that_of_the_components_own_container(containers: str, expected: tuple[str, str]) -> None:
    assert manifest.image_of(yaml.safe_load(f"spec: {{containers: {containers}}}")) == expected


@pytest.mark.parametrize(("content", "words"), [(b"\xff", "line 1: the byte 0xff"), (b"\n\xfe", "line 2: the byte 0xfe"), (b"a\nb\nc\xff", "line 3: ")])
def test_a_byte_that_is_not_utf_8_is_named_with_its_line(content: bytes, words: str) -> None:
    with pytest.raises(NotYaml, match=words):
        manifest.decoded({"content": base64.b64encode(content).decode()})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(("text", "kind", "end"), [
    (f"spec: {{containers: [{{name: {KCM}}}]}}\n", "problems", f"It names {KCM}"), ("kind: Pod\n", "notes", "It names no component"),
])
def test_a_manifest_in_utf_16_is_named_as_such(encoding: str, text: str, kind: str, end: str) -> None:
    """The kubelet reads UTF-16, so the planner must never skip such a manifest of a component."""
    content = ("" if encoding == "utf-16" else "\ufeff") + text
    entry = {"content": base64.b64encode(content.encode(encoding)).decode()}
    with pytest.raises(NotYaml, match="^it is UTF-16, which this collection does not edit. Write it in UTF-8$") as caught:
        manifest.decoded(entry)
    found, sentence = manifest.unreadable("/m/a.yaml", entry, caught.value)
    assert found == kind and sentence == f"/m/a.yaml cannot be read: {caught.value}. {end}"


@pytest.mark.parametrize(("name", "text", "kind", "end"), [
    ("a.yaml", f"{KCM}: [\n", "problems", f"It names {KCM}. Fix it, or move it out of the folder, because the kubelet reads every file there"),
    (f"{KCM}.yaml", "a: [\n", "problems", f"It names {KCM}. Fix it, or move it out of the folder, because the kubelet reads every file there"),
    ("a.yaml", "kube-apiserver: kube-scheduler: [\n", "problems",
     "It names kube-apiserver and kube-scheduler. Fix it, or move it out of the folder, because the kubelet reads every file there"),
    ("README", "a: [\n", "notes", "The kubelet ignores it, and it names no component, so this run ignores it, too"),
])
def test_a_file_that_is_not_yaml_is_a_problem_where_it_names_a_component(name: str, text: str, kind: str, end: str) -> None:
    found = manifest.unreadable(f"/etc/{KCM}/{name}", {"content": base64.b64encode(text.encode()).decode()}, NotYaml("line 2"))
    assert found == (kind, f"/etc/{KCM}/{name} is not YAML: line 2. {end}")


COMMAND = f"    command:\n    - {KCM}\n"
ETC = "    volumeMounts:\n    - {name: etc, mountPath: /etc/kubernetes}\n    - {name: cloud, mountPath: /etc/kubernetes/cloud.conf}\n"
VOLUMES = "  volumes:\n  - {name: etc, hostPath: {path: /e}}\n  - {name: cloud, hostPath: {path: /c}}\n"
CONFIG = "    - --cloud-config=/etc/kubernetes/cloud.conf\n"


def test_a_shared_mount_before_that_of_the_cloud_config_stays_alone() -> None:
    after, unused, notes = manifest.edit(small(COMMAND + CONFIG, ETC + VOLUMES), KCM, (1, 36))
    spec = yaml.safe_load(after)["spec"]
    assert [item["name"] for item in spec["volumes"]] == [item["name"] for item in spec["containers"][0]["volumeMounts"]] == ["etc"]
    assert notes == ["volume mount cloud (/etc/kubernetes/cloud.conf)", "volume cloud"]


@pytest.mark.parametrize("other", [
    "  - name: other\n    volumeMounts:\n    - {name: cloud, mountPath: /x}\n",
    "  initContainers:\n  - name: first\n  - name: other\n    volumeMounts:\n    - {name: cloud, mountPath: /x}\n",
])
def test_a_volume_that_another_container_mounts_stays(other: str) -> None:
    after, unused, notes = manifest.edit(small(COMMAND + CONFIG, ETC + other + VOLUMES), KCM, (1, 36))
    assert [item["name"] for item in yaml.safe_load(after)["spec"]["volumes"]] == ["etc", "cloud"]
    assert notes == ["volume mount cloud (/etc/kubernetes/cloud.conf)"]


def test_a_new_flag_goes_to_the_end_of_all_arguments() -> None:
    after = manifest.edit(small(COMMAND + "    - --a=1\n    args:\n    - --v=2\n    - --x=1\n"), KCM, (1, 30))[0]
    container = yaml.safe_load(after)["spec"]["containers"][0]
    assert (container["command"], container["args"]) == ([KCM, "--a=1"], ["--v=2", "--x=1", "--cloud-provider=external"])


def test_a_value_of_its_own_is_replaced_in_its_place() -> None:
    before = small(COMMAND + "    - --cloud-provider\n    - openstack\n    - --v=2\n")
    assert manifest.edit(before, KCM, (1, 30))[0] == before.replace("- openstack", "- external")


def test_the_mount_of_a_cloud_config_that_gets_another_value_stays() -> None:
    before = small(COMMAND + CONFIG, ETC + VOLUMES)

    after, unused, notes = manifest.edit(before, KCM, (1, 29), lambda _, flags, unused: [Change("cloud-config", flags[0], "/other", "", "")])
    assert (after, notes) == (before.replace("=/etc/kubernetes/cloud.conf", "=/other"), [])


def back(*changes: tuple[str, str]) -> Any:
    return lambda *unused: [Change(name, None, value, "", "") for name, value in changes]


LOST = manifest.Mounts([{"name": "cloud", "mountPath": "/etc/kubernetes/cloud.conf"}], [{"name": "cloud", "hostPath": {"path": "/c"}}])
LITTLE = ETC.replace("    - {name: cloud, mountPath: /etc/kubernetes/cloud.conf}\n", "") + VOLUMES.replace("  - {name: cloud, hostPath: {path: /c}}\n", "")


def test_what_an_edit_took_away_is_known_and_comes_back_with_the_flag() -> None:
    before, ours = small(COMMAND + CONFIG, ETC + VOLUMES), small(COMMAND, LITTLE)
    assert manifest.lost_mounts(before, ours, KCM) == LOST
    assert manifest.lost_mounts(ours, before, KCM) == manifest.lost_mounts(small(COMMAND), ours, KCM) == ([], [])
    changes = back(("cloud-provider", "aws"), ("cloud-config", "/etc/kubernetes/cloud.conf"))
    after, unused, notes = manifest.edit(ours, KCM, (1, 29), changes, LOST)
    spec = yaml.safe_load(after)["spec"]
    assert [item["name"] for item in spec["volumes"]] == [item["name"] for item in spec["containers"][0]["volumeMounts"]] == ["etc", "cloud"]
    assert notes == [] and spec["volumes"][1] == LOST.volumes[0]
    assert spec["containers"][0]["command"] == [KCM, "--cloud-provider=aws", "--cloud-config=/etc/kubernetes/cloud.conf"]
    for alone in (back(("cloud-provider", "aws")), back(("cloud-config", ""))):
        spec = yaml.safe_load(manifest.edit(ours, KCM, (1, 29), alone, LOST)[0])["spec"]
        assert [item["name"] for item in spec["volumes"]] == ["etc"]


def test_a_new_flag_before_one_that_goes_does_not_keep_it() -> None:
    after = manifest.edit(small(COMMAND + CONFIG), KCM, (1, 29), lambda _, flags, unused: [
        Change("cloud-provider", None, "aws", "", ""), Change("cloud-config", flags[0], None, "", "")])[0]
    assert yaml.safe_load(after)["spec"]["containers"][0]["command"] == [KCM, "--cloud-provider=aws"]


def test_a_path_and_a_name_that_somebody_else_uses_by_now_stay_as_they_are() -> None:
    now = small(COMMAND, ETC.replace("cloud,", "theirs,") + VOLUMES.replace("/c}", "/theirs}"))
    after = manifest.edit(now, KCM, (1, 29), back(("cloud-config", "/x")), LOST)[0]
    assert after == now.replace(COMMAND, COMMAND + "    - --cloud-config=/x\n")


def test_the_volume_of_the_file_of_a_leader_migration_goes_with_its_flag() -> None:
    """Nothing reads the file any more, and if the file is missing, its mount keeps the Pod from starting."""
    rest = "    volumeMounts:\n    - {name: etc, mountPath: /etc}\n    - {name: leader, mountPath: /m.yaml}\n"
    volumes = "  volumes:\n  - {name: etc, hostPath: {path: /etc}}\n  - {name: leader, hostPath: {path: /m.yaml}}\n"
    command = f"    command: [{KCM}, --enable-leader-migration, --leader-migration-config=/m.yaml, --v=2]\n"
    after, changes, notes = manifest.edit(small(command, rest + volumes), KCM, (1, 33))
    spec = yaml.safe_load(after)["spec"]
    assert {change.name for change in changes} == {"enable-leader-migration", "leader-migration-config"}
    assert [item["name"] for item in spec["volumes"]] == [item["name"] for item in spec["containers"][0]["volumeMounts"]] == ["etc"]
    assert notes == ["volume mount leader (/m.yaml)", "volume leader"]


@pytest.mark.parametrize("rest", ["", LITTLE[:LITTLE.index("  volumes")], "    volumeMounts: []\n  volumes:\n"])
def test_mounts_come_back_where_their_lists_are_gone(rest: str) -> None:
    after = manifest.edit(small(COMMAND, rest), KCM, (1, 29), back(("cloud-config", "/x")), LOST)[0]
    spec = yaml.safe_load(after)["spec"]
    assert LOST.mounts[0] in spec["containers"][0]["volumeMounts"]
    assert LOST.volumes == spec["volumes"]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("both", ["    volumeMounts:\n    - {name: one, mountPath: /x}\n", ""])
def test_each_mount_decides_alone_whether_its_volume_goes(order: tuple[str, str], both: str) -> None:
    """If another container still mounts volume `one`, only volume `two` is removed."""
    mounts = "    volumeMounts:\n" + "".join(f"    - {{name: {name}, mountPath: /{name}}}\n" for name in order)
    volumes = "  volumes:\n" + "".join(f"  - {{name: {name}, hostPath: {{path: /{name}}}}}\n" for name in order) + "  - {name: other, hostPath: {path: /o}}\n"
    flags = f"    command:\n    - {KCM}\n    - --cloud-config=/one/c\n    - --cloud-config=/two/c\n    - --v=2\n"
    after, unused, notes = manifest.edit(small(flags, mounts + "  initContainers:\n  - name: i\n    image: i\n" + both + volumes), KCM, (1, 36))
    spec = yaml.safe_load(after)["spec"]
    assert "volumeMounts" not in spec["containers"][0] or spec["containers"][0]["volumeMounts"] == []
    assert [volume["name"] for volume in spec["volumes"]] == (["one", "other"] if both else ["other"])
    expected = [(f"volume mount {name} (/{name})", *([] if both and name == "one" else [f"volume {name}"])) for name in order]
    assert notes == [note for notes in expected for note in notes]

# SPDX-License-Identifier: Apache-2.0
"""Migration and rollback of generated ClusterConfigurations. Kubernetes' parser decides what each text means."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubeadm
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import MANAGED_FLAGS, Flag
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import control_plane_changes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import undo

from tests import drawn

from .conftest import Kubernetes
from .generated import MANAGED, OTHERS, Tally, edits_by_others, rewritten
from .writer import Writer

TEXTS = drawn.number(4000)
SECTIONS = {"apiServer": "kube-apiserver", "controllerManager": "kube-controller-manager"}


def arguments(chance: random.Random, listed: bool) -> Any:
    """Return a section's extraArgs: a list or a mapping, which may be empty, and may have an argument twice."""
    names = chance.sample([*MANAGED, *OTHERS], chance.choice([0, 1, 1, 2, 3, 5]))
    pairs = [(name, chance.choice({**MANAGED, **OTHERS}[name])) for name in names]
    if pairs and chance.random() < 0.1:
        again = chance.choice(pairs)
        pairs.append((again[0].replace("-", "_"), chance.choice({**MANAGED, **OTHERS}[again[0]])))
    pairs = [(name.replace("-", "_") if chance.random() < 0.05 else name, value) for name, value in pairs]
    if listed:
        return [
            {"name": name, "value": value} if chance.random() < 0.9 else {"value": value, "name": name}
            for name, value in pairs
        ]
    return dict(pairs)


def volumes(chance: random.Random) -> list[dict[str, Any]]:
    paths = chance.sample(
        [
            "/etc/kubernetes/cloud.conf",
            "/etc/cloud",
            "/etc/cloud/c.ini",
            "/etc/migration",
            "/var/log",
            "/etc/ssl/certs",
        ],
        chance.choice([0, 1, 2]),
    )
    return [
        {
            "name": f"v{index}",
            "hostPath": path,
            "mountPath": path,
            **({"readOnly": True} if chance.random() < 0.5 else {}),
        }
        for index, path in enumerate(paths)
    ]


def configuration(chance: random.Random, version: str) -> dict[str, Any]:
    data: dict[str, Any] = {
        "apiVersion": f"kubeadm.k8s.io/{version}",
        "kind": "ClusterConfiguration",
        "clusterName": "prod",
    }
    for key in SECTIONS:
        section: dict[str, Any] = {}
        if chance.random() < 0.85:
            section["extraArgs"] = arguments(chance, version != "v1beta3")
        if chance.random() < 0.4:
            section["extraVolumes"] = volumes(chance)
        if chance.random() < 0.3:
            section["certSANs"] = ["a.example", "b.example"]
        if section or chance.random() < 0.5:
            data[key] = section or chance.choice([{}, None])
    data.update(networking={"serviceSubnet": "10.96.0.0/12"}, kubernetesVersion="v1.30.4")
    return data


def pairs_of(section: Any) -> list[tuple[str, str]]:
    extra = (section or {}).get("extraArgs") or []
    pairs = extra.items() if isinstance(extra, dict) else [(item["name"], item.get("value")) for item in extra]
    return [(name.replace("_", "-"), value or "") for name, value in pairs]


def expected(data: Any, version: tuple[int, int]) -> dict[str, list[tuple[str, str]]]:
    """Return the arguments that each section should have after the migration."""
    result = {}
    for key, component in SECTIONS.items():
        pairs = pairs_of(data.get(key))
        changes = control_plane_changes(
            component, [Flag(*pair, index, 1) for index, pair in enumerate(pairs) if pair[0] in MANAGED_FLAGS], version
        )
        then = {change.flag.index: change.then for change in changes if change.flag is not None}
        left = [(name, then.get(index, value)) for index, (name, value) in enumerate(pairs)]
        result[key] = [(name, value) for name, value in left if value is not None]
        result[key] += [(change.name, change.then or "") for change in changes if change.flag is None]
    return result


def rest(data: Any) -> Any:
    """Return everything except the arguments and the volumes."""
    plain = {key: value for key, value in data.items() if key not in SECTIONS}
    for key in SECTIONS:
        plain[key] = {
            name: value for name, value in (data.get(key) or {}).items() if name not in ("extraArgs", "extraVolumes")
        }
    return plain


def mounts(data: Any) -> dict[str, list[str]]:
    return {
        key: sorted(volume["mountPath"] for volume in (data.get(key) or {}).get("extraVolumes") or [])
        for key in SECTIONS
    }


def left_mounts(before: Any, after: dict[str, list[tuple[str, str]]]) -> dict[str, list[str]]:
    """Return the volumes that stay in each section: a volume goes if it has a file that only a removed flag named."""
    result = {}
    for key, paths in mounts(before).items():
        gone = {
            value for name, value in pairs_of(before.get(key)) if name in ("cloud-config", "leader-migration-config")
        } - {value for unused, value in after[key]}
        result[key] = [path for path in paths if not any(file == path or file.startswith(path + "/") for file in gone)]
    return result


def add_argument(text: str, data: Any) -> str:
    """Add an argument to each section, as a program does that writes the whole text. Return the new text."""
    listed = not data["apiVersion"].endswith("v1beta3")
    for key in SECTIONS:
        section = data.get(key) or {}
        extra = section.get("extraArgs") or ([] if listed else {})
        section["extraArgs"] = [*extra, {"name": "later", "value": "1"}] if listed else {**extra, "later": "1"}
        data[key] = section
    return rewritten(data)


EDITS = edits_by_others(add_argument)


def same_flags(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> bool:
    """Return whether the arguments are equal. Order counts only among arguments with the same name, and not in lists of
    items."""

    def ordered(pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        split = [
            (
                name,
                ",".join(sorted(item.strip() for item in value.split(",") if item.strip()))
                if name in undo.LISTS
                else value,
            )
            for name, value in pairs
        ]
        return sorted(split, key=lambda pair: pair[0])

    return ordered(one) == ordered(other)


@pytest.mark.parametrize("api", ["v1beta3", "v1beta4"])
def test_generated_configurations_there_and_back(kubernetes: Kubernetes, api: str) -> None:
    chance, tally = random.Random(f"kubeadm {api}"), Tally(f"kubeadm-config {api}")
    for _ in range(TEXTS // 2):
        text = Writer(chance).document(configuration(chance, api))
        before = kubernetes.load(text)
        version = chance.choice([(1, 29), (1, 30), (1, 31), (1, 32), (1, 36)])
        tally.attempt(there_and_back, kubernetes, text, before, version, chance)
    tally.judge(TEXTS // 2, 0.01)


def there_and_back(
    kubernetes: Kubernetes, text: str, before: Any, version: tuple[int, int], chance: random.Random
) -> tuple[Any, ...]:
    try:
        after, changes = kubeadm.edit(text, version)
    except (EditRefused, kubeadm.BadClusterConfiguration) as exc:
        return "refused", text, exc
    data, wanted = kubernetes.load(after), expected(before, version)
    for key in SECTIONS:
        if not same_flags(pairs_of(data.get(key)), wanted[key]):
            return "wrong flags", text, after, version
    if rest(data) != rest(before) or mounts(data) != left_mounts(before, wanted):
        return "wrong rest", text, after, version
    if kubeadm.edit(after, version)[1] or (not changes and after != text):
        return "wrong second edit", text, after, version
    somebody = chance.choice(EDITS)
    now = somebody(after, data)
    try:
        undone = undo.undo(undo.ClusterConfiguration("kubeadm"), text, after, now, version)
    except undo.CannotUndo as exc:
        return "refused back", text, now, exc
    result, original = kubernetes.load(undone.text), kubernetes.load(somebody(text, before))
    if undone.kept:
        return ("right, with flags that do not come back",)
    if rest(result) != rest(original) or mounts(result) != mounts(original):
        return "wrong rest back", text, now, undone.text, version
    if not all(same_flags(pairs_of(result.get(key)), pairs_of(original.get(key))) for key in SECTIONS):
        return "wrong flags back", text, now, undone.text, version
    return ("right",)

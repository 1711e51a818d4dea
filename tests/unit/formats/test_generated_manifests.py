# SPDX-License-Identifier: Apache-2.0
"""Migration and rollback of generated manifests and patches. Kubernetes' parser decides what each text means."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest, patches
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags, render
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import control_plane_changes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import undo

from tests import drawn

from .conftest import Kubernetes
from .generated import MANAGED, OTHERS, Tally, edits_by_others, rewritten
from .writer import Writer

TEXTS = drawn.number(4000)
COMPONENTS = ("kube-apiserver", "kube-controller-manager")
FILES = ("cloud-config", "leader-migration-config")
PATHS = ("/etc/kubernetes/cloud.conf", "/etc/cloud", "/etc/cloud/c.ini", "/etc/migration", "/var/log", "/etc/ssl/certs")


def arguments(chance: random.Random) -> list[str]:
    names = chance.sample([*MANAGED, *OTHERS], chance.choice([0, 1, 1, 2, 3, 5]))
    found: list[str] = []
    for name in names:
        value = chance.choice({**MANAGED, **OTHERS}[name])
        spelled = name.replace("-", "_") if chance.random() < 0.05 else name
        two_words = chance.random() < 0.1 and value and name not in ("enable-leader-migration", "profiling")
        found += ["--" + spelled, value] if two_words else [render(spelled, value)]
    return found


def pod(chance: random.Random, component: str) -> dict[str, Any]:
    """Return a static Pod with arguments in its command, its args, or both, and with any number of mounts."""
    split = chance.random()
    container: dict[str, Any] = {"command": [component, *(arguments(chance) if split < 0.8 else [])]}
    if split > 0.6:
        container["args"] = arguments(chance)
    container.update(image=f"registry.k8s.io/{component}:v1.30.4", name=component)
    if chance.random() < 0.3:
        container = dict(sorted(container.items(), key=lambda unused: chance.random()))
    paths = chance.sample(PATHS, chance.choice([0, 1, 1, 2, 3]))
    volumes = [
        {"hostPath": {"path": path, "type": "DirectoryOrCreate"}, "name": f"v{index}"}
        for index, path in enumerate(paths)
    ]
    mounts = [{"mountPath": path, "name": f"v{index}", "readOnly": True} for index, path in enumerate(paths)]
    container["volumeMounts"] = mounts
    spec: dict[str, Any] = {"containers": [container], "hostNetwork": True, "volumes": volumes}
    if chance.random() < 0.2:
        spec["containers"].insert(0, {"name": "sidecar", "image": "x", "args": ["--cloud-provider=aws"]})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": component, "namespace": "kube-system"},
        "spec": spec,
    }


def of(data: Any, component: str) -> Any:
    return next(item for item in data["spec"]["containers"] if item["name"] == component)


def argv(data: Any, component: str) -> list[str]:
    container = of(data, component)
    return [*(container.get("command") or []), *(container.get("args") or [])]


def expected(before: list[str], component: str, version: tuple[int, int]) -> list[str]:
    """Return the arguments that the component should have after the migration."""
    words: list[str | None] = list(before)
    added = []
    for change in control_plane_changes(component, find_flags(before), version):
        if change.flag is None:
            added.append(render(change.name, change.then or ""))
            continue
        words[change.flag.index : change.flag.index + change.flag.width] = [None] * change.flag.width
        if change.then is not None:
            words[change.flag.index] = render(change.name, change.then)
    return [word for word in words if word is not None] + added


def plain(words: list[str]) -> list[tuple[str, str]]:
    """Return arguments sorted by flag, so that neither their order matters nor how a flag and its value are joined.
    Repeated flags keep their order; the items of a list are sorted.
    """
    flags = find_flags(words)
    inside = {index for flag in flags for index in range(flag.index, flag.index + flag.width)}
    pairs = [("", word) for index, word in enumerate(words) if index not in inside]
    for flag in flags:
        items = sorted(item.strip() for item in flag.value.split(",") if item.strip())
        pairs.append((flag.name, ",".join(items) if flag.name in undo.LISTS else flag.value))
    return sorted(pairs, key=lambda pair: (pair[0], pair[1] if not pair[0] else ""))


def rest(data: Any, component: str) -> Any:
    """Return everything except the arguments, the mounts and the volumes."""
    containers = [
        {key: value for key, value in item.items() if key not in ("command", "args", "volumeMounts")}
        if item["name"] == component
        else item
        for item in data["spec"]["containers"]
    ]
    spec = {key: value for key, value in data["spec"].items() if key not in ("containers", "volumes")}
    return {**data, "spec": {**spec, "containers": containers}}


def mounts(data: Any, component: str) -> tuple[list[str], list[str]]:
    volumes = sorted(item["hostPath"]["path"] for item in data["spec"].get("volumes") or [])
    return sorted(item["mountPath"] for item in of(data, component).get("volumeMounts") or []), volumes


def left_mounts(before: Any, component: str, wanted: list[str]) -> tuple[list[str], list[str]]:
    """Return the mounts and volumes that stay.

    A mount goes if it has a file that only a removed flag named; /etc/ssl/certs always stays.
    """
    gone = {flag.value for flag in find_flags(argv(before, component)) if flag.name in FILES} - {
        flag.value for flag in find_flags(wanted)
    }
    paths = [
        path
        for path in mounts(before, component)[0]
        if path in ("/etc/ssl/certs",) or not any(file == path or file.startswith(path + "/") for file in gone)
    ]
    return paths, paths


def add_argument(text: str, data: Any) -> str:
    """Return the text with another argument, as a program does that writes the whole text."""
    container = next(item for item in data["spec"]["containers"] if item["name"] in COMPONENTS)
    container["command"] = [*container["command"], "--later=1"]
    return rewritten(data)


EDITS = edits_by_others(add_argument)


def test_generated_manifests_there_and_back(kubernetes: Kubernetes) -> None:
    chance, tally = random.Random("manifests"), Tally("manifests")
    for _ in range(TEXTS):
        component, version = chance.choice(COMPONENTS), chance.choice([(1, 29), (1, 30), (1, 31), (1, 32), (1, 36)])
        text = Writer(chance).document(pod(chance, component))
        tally.attempt(there_and_back, kubernetes, text, component, version, chance)
    tally.judge(TEXTS, 0.01)


def there_and_back(
    kubernetes: Kubernetes, text: str, component: str, version: tuple[int, int], chance: random.Random
) -> tuple[Any, ...]:
    before = kubernetes.load(text)
    try:
        after, changes, _ = manifest.edit(text, component, version)
    except (EditRefused, manifest.BadManifest) as exc:
        return "refused", text, exc
    data, wanted = kubernetes.load(after), expected(argv(before, component), component, version)
    if plain(argv(data, component)) != plain(wanted):
        return "wrong flags", text, after, version
    if rest(data, component) != rest(before, component) or mounts(data, component) != left_mounts(
        before, component, wanted
    ):
        return "wrong rest", text, after, version
    if manifest.edit(after, component, version)[1] or (not changes and after != text):
        return "wrong second edit", text, after, version
    somebody = chance.choice(EDITS)
    now = somebody(after, data)
    try:
        undone = undo.undo(undo.Manifest(component), text, after, now, version)
    except undo.CannotUndo as exc:
        return "refused back", text, now, exc
    if undone.kept:
        return ("right, with flags that do not come back",)
    result, original = kubernetes.load(undone.text), kubernetes.load(somebody(text, before))
    if rest(result, component) != rest(original, component) or mounts(result, component) != mounts(original, component):
        return "wrong rest back", text, now, undone.text, version
    if plain(argv(result, component)) != plain(argv(original, component)):
        return "wrong flags back", text, now, undone.text, version
    return ("right",)


@pytest.mark.parametrize("number", [TEXTS])
def test_generated_patches(kubernetes: Kubernetes, number: int) -> None:
    """The migration removes from each patch of a file the flags that it removes from the manifest, and nothing else."""
    chance, tally = random.Random("patches"), Tally("kubeadm's patches")
    for _ in range(number):
        component, version = chance.choice(COMPONENTS), chance.choice([(1, 31), (1, 33), (1, 36)])
        datas = [pod(chance, component) for _ in range(chance.choice([1, 1, 2, 3]))]
        texts = [
            rewritten(data)
            if chance.random() < 0.5
            else re.sub(r"^%YAML 1.1\r?\n---\r?\n", "", Writer(chance).document(data))
            for data in datas
        ]
        texts = [text for text in texts if "\n---\nkind" not in text.replace("\r", "")] or [rewritten(datas[0])]
        text = "---\n".join(text if text.endswith("\n") else text + "\n" for text in texts)
        name = (
            f"/p/{component}{chance.choice(['', '0', '-x', '_10'])}{chance.choice(['', '+strategic', '+merge'])}.yaml"
        )
        tally.attempt(patched, kubernetes, name, text, component, version)
    tally.judge(number, 0.01)


def patched(kubernetes: Kubernetes, name: str, text: str, component: str, version: tuple[int, int]) -> tuple[Any, ...]:
    try:
        after, changes = patches.edit(name, text, version)
    except (EditRefused, patches.PatchRefused) as exc:
        return "refused", name, text, exc
    pairs = list(zip(patches.documents(text), patches.documents(after), strict=True))
    for (start, end), (begin, stop) in pairs:
        before, data = kubernetes.load(text[start:end]), kubernetes.load(after[begin:stop])
        if before is None:
            continue
        if plain(argv(data, component)) != plain(expected(argv(before, component), component, version)):
            return "wrong flags", name, text, after, version
        if rest(data, component) != rest(before, component):
            return "wrong rest", name, text, after, version
    if patches.edit(name, after, version)[1] or (not changes and after != text):
        return "wrong second edit", name, text, after, version
    return ("right",)

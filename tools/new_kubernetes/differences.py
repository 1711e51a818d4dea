# SPDX-License-Identifier: Apache-2.0
"""Compares two minors: what is new, changed or gone. Pure.

A thing has a kind, a component and a name. A difference is a thing and what became of it: new, changed or gone. The ID
of a difference contains both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bed.minors import Minor

from .sources import Sources

#: Kind -> the title of its part of the report, in the report's order.
KINDS = {
    "flag": "Flags",
    "controller": "Names of controllers",
    "gate": "Feature gates",
    "config": "Configuration types",
    "metric": "Metrics, with labels",
    "event": "Reasons of Events",
    "label": "Labels, taints and annotations",
    "plugin": "Admission plugins",
    "api": "API versions, and kinds that are removed",
    "kubeadm": "What kubeadm writes",
    "case": "Upstream's own test cases",
}
#: Components whose tests are a contract that our runtime keeps.
_TESTED = ("cloud-provider", "component-helpers")
_GATES = re.compile(r"(?:default|versioned)\w*FeatureGates|InitFeatureGates")
_TABLE = re.compile(r"(?:test|case|table|range|grid)", re.IGNORECASE)
_OURS = re.compile(r"(?:^|[/.])(?:config|kubeadm|apiserver|api)/v\d")
_LABEL = re.compile(r"^[a-z0-9.-]*(?:kubernetes\.io|k8s\.io)/[A-Za-z0-9./_-]*$")
Things = dict[str, str]


def things(sources: Sources) -> Things:
    """Return "KIND COMPONENT NAME" -> value for all things in the sources."""
    found: Things = {}
    for key, packages in sources.packages.items():
        component, _, module = key.rpartition(" ")
        for folder, facts in packages.items():
            for kind, name, value in _of_package(component, module, folder, facts, sources.minor):
                found[f"{kind} {component} {name}"] = value
    for component, files in sources.tables.items():
        for name, value in _cases(files):
            found[f"case {component} {name}"] = value
    return found


def _of_package(
    component: str, module: str, folder: str, facts: Mapping[str, Any], minor: Minor
) -> Iterator[tuple[str, str, str]]:
    if component == "api":
        yield from _api(folder, facts)
        return
    for name, about in facts.get("flags", {}).items():
        yield "flag", f"all flags {name}" if name.startswith("of ") else f"--{name}", about
    for name, about in facts.get("controllers", {}).items():
        yield "controller", name, about
    for test in facts.get("tests", ()) if component in _TESTED else ():
        yield "case", f"{folder} {test}", ""
    for name, labels in facts.get("metrics", {}).items():
        yield "metric", name, _text(labels)
    for reason in facts.get("events", {}):
        yield "event", reason, ""
    for variable, gates in facts.get("vars", {}).items():
        if _GATES.fullmatch(variable):
            yield from _gates(gates, minor)
        elif variable == "AllOrderedPlugins":
            yield from (("plugin", str(plugin), "") for plugin in gates if isinstance(plugin, str))
    if component == "kubeadm":
        yield from _kubeadm(folder, facts)
    for value in facts.get("consts", {}).values():
        if folder.rpartition("/")[2] == "names":
            yield "controller", f"name {value}", ""
        elif _LABEL.match(value) and component in ("cloud-provider", "kubeadm"):
            yield "label", value, ""
    if _OURS.search(folder) or (component == "cloud-provider" and "config" in folder.split("/")):
        yield "config", f"{module} {folder}", ""
        for kind, fields in facts.get("structs", {}).items():
            yield "config", f"{module} {folder} {kind}", ""
            for field, type_ in fields.items():
                yield "config", f"{module} {folder} {kind} {field}", type_


def _gates(gates: Any, minor: Minor) -> Iterator[tuple[str, str, str]]:
    for gate, specs in gates.items() if isinstance(gates, dict) else ():
        if isinstance(specs, list) and not gate.startswith("$"):
            yield "gate", gate, stage(specs, minor)


def stage(specs: list[Any], minor: Minor) -> str:
    """Return the stage of a feature gate in a Kubernetes minor: that of its newest spec up to this minor, "not yet" if
    there is none."""
    now = [spec for spec in specs if isinstance(spec, dict) and _minor(spec.get("Version")) <= minor]
    if not now:
        return "not yet"
    spec = max(now, key=lambda each: _minor(each.get("Version")))
    level = str(spec.get("PreRelease") or "GA").lower()
    locked = ", locked" if spec.get("LockToDefault") else ""
    return f"{level}, {'on' if spec.get('Default') else 'off'}{locked}"


def _minor(text: Any) -> Minor:
    found = re.fullmatch(r"(\d+)\.(\d+)", text) if isinstance(text, str) else None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _kubeadm(folder: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if "phases" in folder:
        yield from (("kubeadm", f"argument {name}", "") for name in facts.get("args", {}))
    if folder.endswith("/constants"):
        yield from (("kubeadm", f"constant {name}", value) for name, value in facts.get("consts", {}).items())
    if re.search(r"/apis/kubeadm/v\w+$", folder):
        yield "kubeadm", f"API {folder.rpartition('/')[2]}", ""


def _api(folder: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield things of a folder of API types: its API version, such as policy/v1, if it has kinds; the kinds that a
    release removes; and the labels of core/v1."""
    if re.fullmatch(r"[a-z]+/v\w+", folder) and facts.get("structs"):
        yield "api", f"version {folder}", ""
    for kind, version in facts.get("removed", {}).items():
        yield "api", f"{folder} {kind}", f"removed in {version}"
    if folder == "core/v1":
        for value in facts.get("consts", {}).values():
            if _LABEL.match(value):
                yield "label", value, ""


def _cases(files: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for file, tests in files.items():
        for test, variables in tests.items():
            for variable, rows in variables.items():
                if not _TABLE.match(variable):
                    continue
                for name, row in _named(rows):
                    if isinstance(row, dict):
                        yield f"{file} {test} {variable} {name!r}", json.dumps(row, sort_keys=True)


def _named(rows: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(rows, dict):
        yield from rows.items()
    else:
        yield from ((_name(row, index), row) for index, row in enumerate(rows))


def _name(row: Any, index: int) -> str:
    fields = ("name", "testName", "desc", "description", "title", "key")
    texts = (row[field] for field in fields if isinstance(row, dict) and isinstance(row.get(field), str))
    return next(filter(None, texts), str(index))


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else json.dumps(value)


def differences(old: Things, new: Things) -> list[str]:
    """Return the IDs of the differences, sorted by kind in the report's order."""
    found = []
    for thing in old.keys() | new.keys():
        if thing not in new:
            found.append(f"{thing}: gone")
        elif thing not in old:
            found.append(f"{thing}: new" + (f" ({new[thing]})" if _short(thing, new) else ""))
        elif old[thing] != new[thing]:
            told = _short(thing, old) or _short(thing, new)
            found.append(f"{thing}: changed" + (f" ({old[thing] or '-'} -> {new[thing] or '-'})" if told else ""))
    whole = {id for id in found if id.endswith((": gone", ": new"))}
    found = [id for id in found if not _is_part(id, whole)]
    order = list(KINDS)
    return sorted(found, key=lambda id: (order.index(kind_of(id)), id))


def _is_part(id: str, whole: set[str]) -> bool:
    """Return whether the difference is part of a larger one, as a field of a new type or a type of a removed version.
    """
    thing, _, what = id.partition(": ")
    words, became = thing.split(" "), what.partition(" (")[0]
    return kind_of(id) == "config" and any(
        f"{' '.join(words[:count])}: {became}" in whole for count in range(3, len(words))
    )


def _short(thing: str, things: Things) -> bool:
    return bool(things[thing]) and not thing.startswith("case ")


def kind_of(id: str) -> str:
    return id.partition(" ")[0]

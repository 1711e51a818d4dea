# SPDX-License-Identifier: Apache-2.0
"""`--config FILE` and `/configz`: the options in the shape of upstream's CloudControllerManagerConfiguration (7.9).

Upstream has the type but no flag to read it from a file. What it has no key for stands below `OutOfTree`, by the name
of its flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm.base.yaml_reader import Document, Path

from . import controller_sections, leader_migration
from .flags import FLAGS, IGNORED, IGNORED_KEYS, Flag
from .leader_migration import Migration

API_VERSION = "cloudcontrollermanager.config.k8s.io/v1alpha1"
KIND = "CloudControllerManagerConfiguration"
#: Under which `/configz` shows it.
CONFIGZ_KEY = "cloudcontrollermanager.config.k8s.io"
OURS = "OutOfTree"
_MIGRATION: Path = ("Generic", "LeaderMigration")
_SECTIONS: Path = (OURS, "controllers")


def place(flag: Flag) -> Path:
    """Where a flag stands in the file."""
    return tuple(flag.place.split(".")) if flag.place else (OURS, flag.name)


_FLAGS: Mapping[Path, Flag] = {place(flag): flag for flag in FLAGS}
_SHOWN: Mapping[Path, Any] = {
    tuple(path.split(".")): shown
    for path, shown in [*((i.place, i.shown) for i in IGNORED.values() if i.place), *IGNORED_KEYS.items()]
}
_CHECKS: Mapping[Path, Callable[[str], object]] = {
    tuple(entry.place.split(".")): entry.check for entry in IGNORED.values() if entry.place
}
_KEYS = [*_FLAGS, *_SHOWN, _MIGRATION, _SECTIONS]


def load(text: str, source: str) -> tuple[dict[str, Any], list[str]]:
    """Field of `Options` -> value, for what the file sets; and everything that is wrong with it."""
    document = Document.parse(text, source)
    if document.problems:
        return {}, document.problems
    data = document.mapping((), document.data)
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.pop(key, None) != expected:
            document.problem((key,), f"expected {expected}")
    values: dict[str, Any] = {}
    _walk(document, (), data, values)
    return values, document.problems


def _walk(document: Document, path: Path, data: Mapping[str, Any], values: dict[str, Any]) -> None:
    for key, value in data.items():
        inner = (*path, key)
        if inner in _FLAGS:
            if value is not None:
                _set(document, inner, value, values)
        elif inner == _MIGRATION:
            if value is not None:
                values["leader_migration"] = leader_migration.load(document, inner, value, lock=True)
        elif inner == _SECTIONS:
            values["sections"] = controller_sections.load(document, inner, value)
        elif inner in _SHOWN:
            if value is not None:
                _check_ignored(document, inner, value)
        elif any(known[: len(inner)] == inner for known in _KEYS):
            _walk(document, inner, document.mapping(inner, value), values)
        else:
            document.unknown(
                inner, dict.fromkeys(str(known[len(path)]) for known in _KEYS if known[: len(path)] == path)
            )


def _set(document: Document, path: Path, value: Any, values: dict[str, Any]) -> None:
    flag = _FLAGS[path]
    try:
        values[flag.field] = flag.kind.load(value)
    except ValueError as error:
        document.problem(path, str(error))


def _check_ignored(document: Document, path: Path, value: Any) -> None:
    try:
        _CHECKS.get(path, str)(str(value))
    except ValueError as error:
        document.problem(path, str(error))


def dump(values: Mapping[str, Any], moved: Migration | None) -> dict[str, Any]:
    """The whole configuration, from all fields of `Options`. `load` reads it back. It holds no secrets: options name
    files, never what is in them."""
    leaves: dict[Path, Any] = dict(_SHOWN)
    leaves |= {path: flag.kind.dump(values[flag.field]) for path, flag in _FLAGS.items()}
    leaves[_MIGRATION] = leader_migration.dump(moved or Migration())
    if values.get("sections"):
        leaves[_SECTIONS] = controller_sections.dump(values["sections"])
    tree: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for path, value in leaves.items():
        section = tree
        for part in path[:-1]:
            section = section.setdefault(str(part), {})
        section[str(path[-1])] = value
    return tree

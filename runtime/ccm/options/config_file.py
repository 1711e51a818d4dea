# SPDX-License-Identifier: Apache-2.0
"""`--config FILE` and `/configz`: the options in the format of upstream's CloudControllerManagerConfiguration.

Upstream has the type but no flag to read it from a file. Options without an upstream key are keys of `OutOfTree`, named
like their flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ccm.base.yaml_reader import Document, Path, spell

from . import controller_sections, leader_migration
from .declaration import Flag
from .flags import FLAGS
from .ignored_flags import IGNORED, IGNORED_KEYS
from .leader_migration import Migration

API_VERSION = "cloudcontrollermanager.config.k8s.io/v1alpha1"
KIND = "CloudControllerManagerConfiguration"
#: The key of the options in the response of `/configz`.
CONFIGZ_KEY = "cloudcontrollermanager.config.k8s.io"
OURS = "OutOfTree"
_MIGRATION: Path = ("Generic", "LeaderMigration")
_SECTIONS: Path = (OURS, "controllers")


def place(flag: Flag) -> Path:
    """Return the path of a flag in the file."""
    return tuple(flag.place.split(".")) if flag.place else (OURS, flag.name)


#: Where a key stood in the configuration of an older upstream minor -> the place of its flag now. Both are read.
_MOVED: Mapping[Path, Path] = {
    # until 1.36
    ("KubeCloudShared", "NodeMonitorPeriod"): ("NodeLifecycleController", "NodeMonitorPeriod"),
}
_SHOWN: Mapping[Path, Any] = {
    tuple(path.split(".")): shown
    for path, shown in [*((i.place, i.shown) for i in IGNORED.values() if i.place), *IGNORED_KEYS.items()]
}
_CHECKS: Mapping[Path, Callable[[str], object]] = {
    tuple(entry.place.split(".")): entry.check for entry in IGNORED.values() if entry.place
}


def load(text: str, source: str, flags: Iterable[Flag] = FLAGS) -> tuple[dict[str, Any], list[str]]:
    """Return field of `Options` -> value, for everything that the file sets, and all problems."""
    document = Document.parse(text, source)
    if document.problems:
        return {}, document.problems
    data = document.mapping((), document.data)
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if data.pop(key, None) != expected:
            document.problem((key,), f"expected {expected}")
    section = _Section(document, {place(flag): flag for flag in flags})
    section.walk((), data)
    return section.values, document.problems


class _Section:
    """Reads the keys below a path; `values` collects the results."""

    def __init__(self, document: Document, flags: Mapping[Path, Flag]) -> None:
        self._document, self._flags = document, flags
        self._keys = [*flags, *_SHOWN, _MIGRATION, _SECTIONS]
        self.values: dict[str, Any] = {}

    def walk(self, path: Path, data: Mapping[str, Any]) -> None:
        document = self._document
        for key, value in data.items():
            inner = (*path, key)
            if flag := self._flags.get(_MOVED.get(inner, inner)):
                if value is not None:
                    self._set(flag, inner, value)
            elif inner == _MIGRATION:
                if value is not None:
                    self.values["leader_migration"] = leader_migration.load(document, inner, value, lock=True)
            elif inner == _SECTIONS:
                self.values["sections"] = controller_sections.load(document, inner, value)
            elif inner in _SHOWN:
                if value is not None:
                    self._check_ignored(inner, value)
            elif any(known[: len(inner)] == inner for known in self._keys):
                self.walk(inner, document.mapping(inner, value))
            else:
                near = [str(known[len(path)]) for known in self._keys if known[: len(path)] == path]
                document.unknown(inner, dict.fromkeys(near))

    def _set(self, flag: Flag, path: Path, value: Any) -> None:
        if flag.field in self.values:
            self._document.problem(path, f"is set twice: keep {spell(place(flag))} only")
            return
        try:
            self.values[flag.field] = flag.kind.load(value)
        except ValueError as error:
            self._document.problem(path, str(error))

    def _check_ignored(self, path: Path, value: Any) -> None:
        try:
            _CHECKS.get(path, str)(str(value))
        except ValueError as error:
            self._document.problem(path, str(error))


def dump(values: Mapping[str, Any], moved: Migration | None, flags: Iterable[Flag] = FLAGS) -> dict[str, Any]:
    """Return the whole configuration, from all fields of `Options`. `load` can read it. The flags contain no secrets,
    because they name files, never their content."""
    leaves: dict[Path, Any] = dict(_SHOWN)
    leaves |= {place(flag): flag.kind.dump(values[flag.field]) for flag in flags}
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

# SPDX-License-Identifier: Apache-2.0
"""Leader migration: which controllers run under the Lease that this manager shares with another one.

While controllers move from kube-controller-manager to this process, instances of both run. Each of the two has a
main Lease of its own; a migrating controller runs only in the process that also holds the migration Lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ccm.base.yaml_reader import Document, Path
from ccm.controllers.controller_registry import BUILT_IN

from .controller_names import canonical

GROUP = "controllermanager.config.k8s.io"
KIND = "LeaderMigrationConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
#: The component name of this process.
COMPONENT = "cloud-controller-manager"
ANY = "*"


def _by_default() -> Mapping[str, str]:
    return {name: ANY for name, spec in BUILT_IN.items() if spec.migrated}


class Migration(msgspec.Struct, frozen=True):
    """A leader migration. `leader_name`: the name of the migration Lease. `leaders`: the current names of controllers
    -> the component that runs them, or "*"."""

    leader_name: str = "cloud-provider-extraction-migration"
    leaders: Mapping[str, str] = msgspec.field(default_factory=_by_default)


class Split(msgspec.Struct, frozen=True):
    """Where each controller runs. `own`: here, under the main Lease alone. `migrated`: here, also under the migration
    Lease. `elsewhere`: not here."""

    own: tuple[str, ...]
    migrated: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def split(controllers: Iterable[str], migration: Migration | None) -> Split:
    """Decide where each controller runs. `migration`: None if there is none, so that all controllers run here."""
    own, migrated, elsewhere = [], [], []
    for name in controllers:
        component = migration.leaders.get(name) if migration else None
        if component is None:
            own.append(name)
        elif component in (COMPONENT, ANY):
            migrated.append(name)
        else:
            elsewhere.append(name)
    return Split(tuple(own), tuple(migrated), tuple(elsewhere))


def parse(text: str, source: str) -> tuple[Migration, list[str]]:
    """Return the migration that a LeaderMigrationConfiguration describes, and all problems."""
    document = Document.parse(text, source)
    if document.problems:
        return Migration(), document.problems
    data = document.mapping((), document.data)
    kind, version = data.pop("kind", None), data.pop("apiVersion", None)
    versions = [f"{GROUP}/{name}" for name in VERSIONS]
    if kind != KIND:
        document.problem(("kind",), f"expected {KIND}, not {kind!r}")
    if version not in versions:
        document.problem(("apiVersion",), f"expected one of {', '.join(versions)}, not {version!r}")
    migration = load(document, (), data, lock=version != versions[0])
    return migration, document.problems


def load(document: Document, path: Path, value: Any, *, lock: bool) -> Migration:
    """Read the fields of a configuration and add problems to the document. `lock`: whether a field `resourceLock` is
    allowed (v1 has none: the lock is always leases)."""
    data = document.mapping(path, value)
    known = ["leaderName", "controllerLeaders", *(["resourceLock"] if lock else [])]
    for key in data:
        if key not in known:
            document.unknown((*path, key), known)
    if data.get("resourceLock", "leases") != "leases":
        document.problem((*path, "resourceLock"), f"expected leases, not {data['resourceLock']!r}")
    leader_name = _named(document, path, data, "leaderName")
    return Migration(leader_name, _leaders(document, (*path, "controllerLeaders"), data.get("controllerLeaders")))


def dump(migration: Migration) -> dict[str, Any]:
    """Return the configuration in the format that `load` reads, with `resourceLock`."""
    leaders = [{"name": name, "component": component} for name, component in migration.leaders.items()]
    return {"leaderName": migration.leader_name, "resourceLock": "leases", "controllerLeaders": leaders}


def _leaders(document: Document, path: Path, value: Any) -> dict[str, str]:
    if value is not None and not isinstance(value, list):
        document.problem(path, f"expected a list, not {value!r}")
        return {}
    components: dict[str, str] = {}
    for index, entry in enumerate(value or []):
        inner = (*path, index)
        data = document.mapping(inner, entry)
        for key in data:
            if key not in ("name", "component"):
                document.unknown((*inner, key), ("name", "component"))
        spelling = _named(document, inner, data, "name")
        name, component = canonical(spelling), _named(document, inner, data, "component")
        if components.get(name, component) != component:
            document.problem((*inner, "name"), f"{spelling!r} already has the component {components[name]!r}")
        components[name] = component
    return components


def _named(document: Document, path: Path, data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if value is None or value == "":
        document.problem((*path, key), "is missing")
        return ""
    if not isinstance(value, str):
        document.problem((*path, key), f"expected text, not {value!r}")
        return ""
    return value

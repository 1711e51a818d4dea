# SPDX-License-Identifier: Apache-2.0
"""The sources of a Kubernetes minor: the newest version of each module on the proxy, and what gotables reads there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bed import golang
from bed.errors import BedError
from bed.go_modules import download
from bed.minors import Minor, show
from bed.progress import Progress
from tests.peers.tables import gotables

HERE = Path(__file__).parent
_VERSION = re.compile(r"v[01]\.(\d+)\.(\d+)(?:-(alpha|beta|rc)\.(\d+))?")


class NoSuchMinor(BedError):
    """No module has a version of this minor."""


@dataclass(frozen=True)
class Sources:
    """`versions`: module -> version. `packages`: component -> module and folder -> facts. `tables`: component -> tests'
    tables."""

    minor: Minor
    versions: Mapping[str, str]
    packages: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, Any]


def components(path: Path = HERE / "components.yml") -> dict[str, dict[str, list[str]]]:
    table: dict[str, dict[str, list[str]]] = yaml.safe_load(path.read_text())
    return table


def modules_of(table: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted({f"k8s.io/{module}" for modules in table.values() for module in modules if module != "cases"})


def rank(version: str) -> tuple[int, ...]:
    """Sorts versions as semver: v0.38.0-alpha.2 before v0.38.0-rc.0 before v0.38.0."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return ()
    stage = ("alpha", "beta", "rc", None).index(found[3])
    return int(found[1]), int(found[2]), stage, int(found[4] or 0)


def newest(minor: Minor, known: Iterable[str]) -> str:
    """The newest version of a minor among those that the proxy names, a release before all that precede one; "" without
    any."""
    return max((version for version in known if rank(version)[:1] == minor[1:]), key=rank, default="")


def listed(modules: Sequence[str], progress: Progress) -> dict[str, list[str]]:
    """The versions of each module. Raises BedError if no proxy answers."""
    command = [str(golang.ensure(progress)), "list", "-m", "-versions", *modules]
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        raise BedError("Go's module proxy does not answer within two minutes (go env GOPROXY)") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no reason"]
        raise BedError(f"Go cannot list versions of Kubernetes (go env GOPROXY names the proxy): {last[0]}")
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()]
    return {row[0]: row[1:] for row in rows}


def choose(minor: Minor, known: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The newest version of each module, "" where there is none of this minor. Raises NoSuchMinor."""
    chosen = {module: newest(minor, versions) for module, versions in known.items()}
    if not any(chosen.values()):
        last = max((version for versions in known.values() for version in versions), key=rank, default="none")
        raise NoSuchMinor(f"the module proxy has no Kubernetes {show(minor)}: its newest module is of {last}")
    return chosen


def fetch(
    minor: Minor, known: Mapping[str, Sequence[str]], progress: Progress, get: Callable[..., Any] = download
) -> tuple[dict[str, str], dict[str, Path], list[str]]:
    """The version and the folder of each module that has one, and sentences about versions that this Go is too old for:
    then the one before is taken. Raises BedError with what cannot be had."""
    left, skipped = {module: list(versions) for module, versions in known.items()}, []
    while True:
        chosen = {module: version for module, version in choose(minor, left).items() if version}
        try:
            folders = {module: folder for (module, _), folder in get(chosen.items(), progress).items()}
        except BedError as error:
            needed = re.findall(r"(\S+)@(\S+) requires go >= (\S+)", str(error))
            too_new = {(module, version): go for module, version, go in needed if chosen.get(module) == version}
            if not too_new:
                raise
            for (module, version), go in sorted(too_new.items()):
                left[module].remove(version)
                skipped.append(f"{module}  {version} needs Go {go}, which is not here")
            if not any(newest(minor, versions) for versions in left.values()):
                raise BedError(f"this Go is too old for Kubernetes {show(minor)}: {skipped[-1]}") from None
            continue
        return chosen, folders, skipped


def read(minor: Minor, versions: Mapping[str, str], folders: Mapping[str, Path], progress: Progress) -> Sources:
    """What the modules in these folders say. Raises BedError if one has another layout than components.yml says."""
    table = components()
    places = {module: str(folder) for module, folder in folders.items()}
    facts, suites = {}, {}
    for component, modules in table.items():
        for name, packages in modules.items():
            module = f"k8s.io/{name}"
            if module in places:
                facts[f"{component} {name}"] = {"dir": places[module], "packages": packages, "modules": places}
    packages = gotables({"facts": facts}, progress)
    for component, modules in table.items():
        own = f"k8s.io/{component}"
        if "cases" in modules and own in places:
            # Only folders that have tests have tables.
            within = {prefix.removesuffix("/...") for prefix in modules["cases"]}
            tested = [
                folder
                for folder, found in packages[f"{component} {component}"].items()
                if found.get("tests") and any(folder == each or folder.startswith(f"{each}/") for each in within)
            ]
            suites[component] = {"dir": places[own], "packages": tested, "modules": places}
    return Sources(minor, versions, packages, gotables({"suites": suites}, progress))

# SPDX-License-Identifier: Apache-2.0
"""Gets the sources of a Kubernetes minor: the newest version of each module on Go's module proxy, and what the Go
program gotables reads in the modules.
"""

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
    """The sources of a minor release of Kubernetes. `versions`: module -> version. `packages`: "COMPONENT MODULE" ->
    folder -> what `gotables` found in it. `tables`: component -> its table-driven tests."""

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
    """Return a key that sorts versions as semver does: v0.38.0-alpha.2, v0.38.0-rc.0, v0.38.0; () for other texts."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return ()
    stage = ("alpha", "beta", "rc", None).index(found[3])
    return int(found[1]), int(found[2]), stage, int(found[4] or 0)


def newest(minor: Minor, known: Iterable[str]) -> str:
    """Return the newest version of a minor among those that the proxy lists; a release is newer than its candidates.
    Return "" if the minor has none."""
    return max((version for version in known if rank(version)[:1] == minor[1:]), key=rank, default="")


def listed(modules: Sequence[str], progress: Progress) -> dict[str, list[str]]:
    """Return the versions of each module. Raises BedError if no proxy answers."""
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
    """Return the newest version of each module for this minor, or "". Raises NoSuchMinor if no module has one."""
    chosen = {module: newest(minor, versions) for module, versions in known.items()}
    if not any(chosen.values()):
        last = max((version for versions in known.values() for version in versions), key=rank, default="none")
        raise NoSuchMinor(f"the module proxy has no Kubernetes {show(minor)}: its newest module is of {last}")
    return chosen


def fetch(
    minor: Minor, known: Mapping[str, Sequence[str]], progress: Progress, get: Callable[..., Any] = download
) -> tuple[dict[str, str], dict[str, Path], list[str]]:
    """Return version and folder of each module that has a version of the minor, and sentences about skipped versions.
    If a version needs a newer Go, the version before it is taken. Raises BedError if a module cannot be downloaded, or
    if every version needs a newer Go, and NoSuchMinor if no module has a version of the minor.
    """
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
                skipped.append(f"{module}  {version} needs Go {go}, and the installed Go is older")
            if not any(newest(minor, versions) for versions in left.values()):
                raise BedError(f"this Go is too old for Kubernetes {show(minor)}: {skipped[-1]}") from None
            continue
        return chosen, folders, skipped


def read(minor: Minor, versions: Mapping[str, str], folders: Mapping[str, Path], progress: Progress) -> Sources:
    """Read the modules in these folders. Raises BedError if a module's layout differs from components.yml."""
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
            # Only folders with tests have tables.
            within = {prefix.removesuffix("/...") for prefix in modules["cases"]}
            tested = [
                folder
                for folder, found in packages[f"{component} {component}"].items()
                if found.get("tests") and any(folder == each or folder.startswith(f"{each}/") for each in within)
            ]
            suites[component] = {"dir": places[own], "packages": tested, "modules": places}
    return Sources(minor, versions, packages, gotables({"suites": suites}, progress))

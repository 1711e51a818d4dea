# SPDX-License-Identifier: Apache-2.0
"""`make outdated`: lists pins that have a newer release and no reason in outdated.yml, and entries there without a pin.
If there are any, the status is 1.

It asks PyPI through uv, the module proxy through Go, and npm. Dependabot watches the actions of workflows
(.github/dependabot.yml), and base_image.py the base image of a release.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bed import golang, minors, paths, versions
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from tests.peers import tables
from tools.docs import mermaid

from . import actionlint
from .environments import CANDIDATES, CORES, REPOSITORY, UV
from .locks import locks

#: Files with versions that somebody chose. The file that uv makes from each one is next to it.
CHOSEN = (REPOSITORY / "tools/bed/moto/requirements.in", REPOSITORY / "tools/clouds/openstack/requirements.in")
ARGUED = Path(__file__).with_name("outdated.yml")
Versions = dict[str, str]


@dataclass(frozen=True)
class Pin:
    """A pinned version that is not the newest one, and the file with the pin. `newest`: "" if it is unknown."""

    file: str
    name: str
    version: str
    newest: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name} {self.version}, " + (
            f"newest {self.newest}" if self.newest else "and no source names the newest version"
        )


def pins(text: str) -> Versions:
    """Return the version of each package in a requirements file; packages without == are left out."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


def older(where: str, pinned: Versions, newest: Versions) -> Iterator[Pin]:
    """Yield each pin that differs from the newest version. Packages whose newest version is unknown are left out."""
    for name, version in sorted(pinned.items()):
        if newest.get(name, version) != version:
            yield Pin(where, name, version, newest[name])


def judged(
    pins: Iterable[Pin], argued: list[dict[str, Any]], has: Callable[[str, str], bool]
) -> tuple[list[str], int]:
    """Return a line for each pin or entry that needs a decision, and the number of pins that are outdated for a known
    reason. `argued`: the entries of outdated.yml.

    `has(file, text)`: whether a file contains a text. An entry whose file no longer has the pin is reported, too.
    """
    by_pin = {(each["file"], each["name"], each["version"], each.get("unlisted", False)): each for each in argued}
    pins_found = list(pins)
    open_pins = [pin for pin in pins_found if (pin.file, pin.name, pin.version, not pin.newest) not in by_pin]
    gone = [
        f"outdated.yml: {file} no longer has {name} {version}: delete the entry"
        for file, name, version, _ in by_pin
        if not has(file, version)
    ]
    lines = [*map(str, open_pins), *gone]
    return lines, len(pins_found) - len(open_pins)


def of_pypi(names: list[str], python: str = "3.11", *options: str) -> Versions:
    """Return the newest version of each package that runs on this Python."""
    command = [UV, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--python-version", python, *options, "-"]
    done = subprocess.run(command, input="\n".join(names), text=True, check=True, capture_output=True)
    return pins(done.stdout)


def of_locks() -> Iterator[Pin]:
    for lock in locks():
        with tempfile.TemporaryDirectory() as scratch:
            fresh = Path(scratch, lock.path.name)
            lock.written(upgrade=True, to=fresh)
            yield from older(shown(lock.path), pins(lock.path.read_text()), pins(fresh.read_text()))


def of_choices() -> Iterator[Pin]:
    for path in CHOSEN:
        pinned = pins(path.read_text())
        yield from older(shown(path), pinned, of_pypi(list(pinned)))


def of_ansible() -> Iterator[Pin]:
    """Ask PyPI, and yield outdated pins of ansible-core."""
    newest = of_pypi(["ansible-core"], "3.14")["ansible-core"]
    candidate = of_pypi(["ansible-core"], "3.14", "--prerelease", "allow")["ansible-core"]
    yield from of_cores(newest, candidate, list(CORES), CANDIDATES)


def of_cores(newest: str, candidate: str, cores: list[str], candidates: Versions) -> Iterator[Pin]:
    """Yield a pin for each of the two newest versions whose minor is not tested, and each outdated release candidate.

    `newest`: the newest release. `candidate`: the newest version of all, which is `newest` if no candidate is newer.
    Betas do not count.
    """
    where = "tools/packaging/environments.py"
    published = [newest, *([candidate] if "rc" in candidate else [])]
    for version in published:
        if minor(version) not in cores:
            yield Pin(where, "ansible-core", cores[-1], version)
    for core, pinned in candidates.items():
        current = next((version for version in published if minor(version) == core), pinned)
        yield from older(where, {"ansible-core": pinned}, {"ansible-core": current})


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def required(text: str) -> Versions:
    """Return the modules that a go.mod is about: those of its tools, and those that it needs directly."""
    every = re.findall(r"^\s*(?:require )?(\S+) (v\S+)( // indirect)?$", text, re.MULTILINE)
    tools = re.findall(r"^(?:tool )?\s*([\w.-]+\.[\w.-]+/\S+)$", text, re.MULTILINE)
    return {
        module: version
        for module, version, indirect in every
        if not indirect or any(f"{tool}/".startswith(f"{module}/") for tool in tools)
    }


def newest_of(known: list[str], version: str, same_minor: bool) -> str:
    """Return the newest release of the same major, or with `same_minor` of the same minor, but none below `version`.
    Versions that are not releases are left out."""
    major, minor, _ = version.split(".", 2)
    releases = [each for each in known if re.fullmatch(r"v\d+\.\d+\.\d+", each) and each.startswith(f"{major}.")]
    of_minor = [each for each in releases if each.startswith(f"{major}.{minor}.")] if same_minor else releases
    return max([*of_minor, version], key=lambda each: [int(part) for part in re.findall(r"\d+", each)])


def of_modules(ask: Callable[[str], list[str]]) -> Iterator[Pin]:
    """Yield outdated Go modules. Those below tools/bed/kubernetes stay at their minor on purpose, and the specs at the
    minor of the bed."""
    for path in sorted(REPOSITORY.glob("t*s/**/go.mod")):
        minors = (paths.BED / "kubernetes", REPOSITORY / "tools/e2e/suite")
        one_minor = any(path.is_relative_to(folder) for folder in minors)
        for module, version in required(path.read_text()).items():
            yield from of_module(ask, shown(path), module, version, one_minor)


def of_peers(ask: Callable[[str], list[str]]) -> Iterator[Pin]:
    """Yield outdated modules among those whose tests' tables `make peers-tests` reads."""
    for root in tables.roots().values():
        yield from of_module(ask, "tests/peers/roots.yml", root.module, root.version)


def of_module(
    ask: Callable[[str], list[str]], where: str, module: str, version: str, one_minor: bool = False
) -> Iterator[Pin]:
    try:
        newest = newest_of(ask(module), version, one_minor)
    except BedError:
        yield Pin(where, module, version, "")
    else:
        yield from older(where, {module: version}, {module: newest})


def of_tools(ask: Callable[[str], list[str]]) -> Iterator[Pin]:
    pinned = {"actionlint": actionlint.VERSION, "Kubernetes": versions.DEFAULT}
    newest = {
        name: newest_of(ask(module), pinned[name], same_minor=False)
        for name, module in (("actionlint", "github.com/rhysd/actionlint"), ("Kubernetes", minors.MODULE))
    }
    yield from older("bed and make", pinned, newest)


def of_npm() -> Iterator[Pin]:
    newest = run("npm", "view", "mermaid", "version", check=False).strip()
    if newest != mermaid.VERSION:
        yield Pin("tools/docs/mermaid.py", "mermaid", mermaid.VERSION, newest)


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def main() -> int:
    go = str(golang.ensure(Progress()))

    @functools.cache
    def ask(module: str) -> list[str]:
        return run(go, "list", "-m", "-versions", module, cwd="/").split()[1:]

    found = [*of_locks(), *of_choices(), *of_ansible(), *of_modules(ask), *of_peers(ask), *of_tools(ask), *of_npm()]
    lines, argued = judged(found, yaml.safe_load(ARGUED.read_text()), has)
    print("\n".join(lines) or f"everything that is pinned is current, but for {argued} with a reason (outdated.yml)")
    return 1 if lines else 0


def has(file: str, text: str) -> bool:
    path = REPOSITORY / file
    return path.is_file() and text in path.read_text()


if __name__ == "__main__":
    sys.exit(main())

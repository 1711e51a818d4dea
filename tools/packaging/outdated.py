# SPDX-License-Identifier: Apache-2.0
"""`make outdated`: what is pinned here and has a newer release. Ends with 1 if outdated.yml has no reason for one.

It asks PyPI through uv, the module proxy through Go, and npm. Dependabot follows actions of workflows
(.github/dependabot.yml), and base_image.py the image on which a release stands.
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

#: Files with versions that somebody chose. Each has beside it what uv made of it.
CHOSEN = (REPOSITORY / "tools/bed/moto/requirements.in", REPOSITORY / "tools/clouds/openstack/requirements.in")
ARGUED = Path(__file__).with_name("outdated.yml")
Versions = dict[str, str]


@dataclass(frozen=True)
class Pin:
    """A version that is not the newest one, and the file that has it. `newest` is "" if nobody says what is newest."""

    file: str
    name: str
    version: str
    newest: str

    def __str__(self) -> str:
        return f"{self.file}: {self.name} {self.version}, " + (
            f"newest {self.newest}" if self.newest else "and nobody says what is newest"
        )


def pins(text: str) -> Versions:
    """Version by package of a requirements file; those without == are left out."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


def older(where: str, pinned: Versions, newest: Versions) -> Iterator[Pin]:
    """Each that differs from the newest. What nobody knows the newest of is left out."""
    for name, version in sorted(pinned.items()):
        if newest.get(name, version) != version:
            yield Pin(where, name, version, newest[name])


def judged(
    found: Iterable[Pin], argued: list[dict[str, Any]], has: Callable[[str, str], bool]
) -> tuple[list[str], int]:
    """The lines of what somebody must look at, and how many pins stay behind for a reason.

    `has` says whether a file has a text: an entry without its pin argues nothing.
    """
    by_pin = {(each["file"], each["name"], each["version"], each.get("unlisted", False)): each for each in argued}
    pins_found = list(found)
    open_pins = [pin for pin in pins_found if (pin.file, pin.name, pin.version, not pin.newest) not in by_pin]
    gone = [
        f"outdated.yml: {file} no longer has {name} {version}: delete the entry"
        for file, name, version, _ in by_pin
        if not has(file, version)
    ]
    lines = [*map(str, open_pins), *gone]
    return lines, len(pins_found) - len(open_pins)


def of_pypi(names: list[str], python: str = "3.11", *options: str) -> Versions:
    """The newest version of each package that runs on a Python."""
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
    """The newest release, and the newest release candidate."""
    newest = of_pypi(["ansible-core"], "3.14")["ansible-core"]
    candidate = of_pypi(["ansible-core"], "3.14", "--prerelease", "allow")["ansible-core"]
    yield from of_cores(newest, candidate, list(CORES), CANDIDATES)


def of_cores(newest: str, candidate: str, cores: list[str], candidates: Versions) -> Iterator[Pin]:
    """`candidate` is the newest of all, and the release itself when no candidate is newer. A beta does not count."""
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
    """Of a go.mod, the modules that it is about: those of its tools, and those that it needs directly."""
    every = re.findall(r"^\s*(?:require )?(\S+) (v\S+)( // indirect)?$", text, re.MULTILINE)
    tools = re.findall(r"^(?:tool )?\s*([\w.-]+\.[\w.-]+/\S+)$", text, re.MULTILINE)
    return {
        module: version
        for module, version, indirect in every
        if not indirect or any(f"{tool}/".startswith(f"{module}/") for tool in tools)
    }


def newest_of(known: list[str], version: str, same_minor: bool) -> str:
    """The newest release among versions, of the same major, or of the same minor; what is no release is left out."""
    major, minor, _ = version.split(".", 2)
    releases = [each for each in known if re.fullmatch(r"v\d+\.\d+\.\d+", each) and each.startswith(f"{major}.")]
    of_minor = [each for each in releases if each.startswith(f"{major}.{minor}.")] if same_minor else releases
    return max([*of_minor, version], key=lambda each: [int(part) for part in re.findall(r"\d+", each)])


def of_modules(ask: Callable[[str], list[str]]) -> Iterator[Pin]:
    """Modules below tools/bed/kubernetes are of one minor, on purpose; the specs are of that which the bed raises."""
    for path in sorted(REPOSITORY.glob("t*s/**/go.mod")):
        minors = (paths.BED / "kubernetes", REPOSITORY / "tools/e2e/suite")
        one_minor = any(path.is_relative_to(folder) for folder in minors)
        for module, version in required(path.read_text()).items():
            yield from of_module(ask, shown(path), module, version, one_minor)


def of_peers(ask: Callable[[str], list[str]]) -> Iterator[Pin]:
    """Those whose test tables are tried (`make peers-tests`)."""
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

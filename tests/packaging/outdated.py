# SPDX-License-Identifier: Apache-2.0
"""`make outdated`: what is pinned here and has a newer release. Ends with 1 if there is any.

It asks PyPI through uv, and the module proxy through Go. Dependabot follows actions of workflows and base images
(.github/dependabot.yml).
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bed import golang, minors, paths, versions
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run

from . import actionlint
from .environments import CORES, REPOSITORY, UV
from .locks import locks

#: Files with versions that somebody chose. Each has beside it what uv made of it.
CHOSEN = (REPOSITORY / "tests/bed/moto/requirements.in", REPOSITORY / "tests/openstack/requirements.in")
Versions = dict[str, str]


def pins(text: str) -> Versions:
    """Version by package of a requirements file; those without == are left out."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


def older(where: str, pinned: Versions, newest: Versions) -> Iterator[str]:
    """A line for each that differs from the newest. What nobody knows the newest of is left out."""
    for name, version in sorted(pinned.items()):
        if newest.get(name, version) != version:
            yield f"{where}: {name} {version}, newest {newest[name]}"


def of_pypi(names: list[str], python: str = "3.11") -> Versions:
    """The newest version of each package that runs on a Python."""
    command = [UV, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--python-version", python, "-"]
    done = subprocess.run(command, input="\n".join(names), text=True, check=True, capture_output=True)
    return pins(done.stdout)


def of_locks() -> Iterator[str]:
    for lock in locks():
        with tempfile.TemporaryDirectory() as scratch:
            fresh = Path(scratch, lock.path.name)
            lock.written(upgrade=True, to=fresh)
            yield from older(shown(lock.path), pins(lock.path.read_text()), pins(fresh.read_text()))


def of_choices() -> Iterator[str]:
    for path in CHOSEN:
        pinned = pins(path.read_text())
        yield from older(shown(path), pinned, of_pypi(list(pinned)))


def of_ansible() -> Iterator[str]:
    newest = of_pypi(["ansible-core"], "3.14")["ansible-core"]
    if ".".join(newest.split(".")[:2]) not in CORES:
        yield f"tests/packaging/environments.py: ansible-core {max(CORES)}, newest {newest}"


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


def of_modules(ask: Callable[[str], list[str]]) -> Iterator[str]:
    """A module below tests/bed/kubernetes is of one minor, on purpose."""
    for path in sorted(REPOSITORY.glob("tests/**/go.mod")):
        one_minor = path.is_relative_to(paths.BED / "kubernetes")
        for module, version in required(path.read_text()).items():
            try:
                newest = newest_of(ask(module), version, one_minor)
            except BedError:
                yield f"{shown(path)}: {module} {version}, and nobody says what is newest"
                continue
            yield from older(shown(path), {module: version}, {module: newest})


def of_tools(ask: Callable[[str], list[str]]) -> Iterator[str]:
    pinned = {"actionlint": actionlint.VERSION, "Kubernetes": versions.DEFAULT}
    newest = {
        name: newest_of(ask(module), pinned[name], same_minor=False)
        for name, module in (("actionlint", "github.com/rhysd/actionlint"), ("Kubernetes", minors.MODULE))
    }
    yield from older("bed and make", pinned, newest)


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def main() -> int:
    go = str(golang.ensure(Progress()))

    @functools.cache
    def ask(module: str) -> list[str]:
        return run(go, "list", "-m", "-versions", module, cwd="/").split()[1:]

    found = [*of_locks(), *of_choices(), *of_ansible(), *of_modules(ask), *of_tools(ask)]
    print("\n".join(found) or "everything that is pinned is current")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

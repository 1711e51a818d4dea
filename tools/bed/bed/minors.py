# SPDX-License-Identifier: Apache-2.0
"""Minors of Kubernetes. For a minor that the bed does not know, finds the newest patch, and writes a Go module that
names the binaries."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from bed import golang, paths
from bed.errors import BedError
from bed.progress import Progress
from bed.run import run
from bed.versions import DEFAULT, KUBERNETES, Version, find

MODULE = "k8s.io/kubernetes"
Minor = tuple[int, int]


def minor_of(text: str) -> Minor:
    """Return a minor, such as (1, 37) for 1.37, v1.37 or v1.37.2. Raises BedError for a text of another form."""
    found = re.fullmatch(r"v?1\.(\d+)(?:\.\d+)?", text)
    if found is None:
        raise BedError(f"VERSION={text}: write a minor such as 1.38")
    return 1, int(found[1])


def show(minor: Minor) -> str:
    return f"{minor[0]}.{minor[1]}"


def find_or_write(minor: Minor, progress: Progress) -> Version:
    """Return the newest patch of a minor; its module is in the cache. Raises BedError if Go knows no release of it."""
    go = str(golang.ensure(progress))
    name = f"v{show(minor)}"
    patch = newest(minor, run(go, "list", "-m", "-versions", MODULE, cwd="/").split())
    folder = paths.cache() / "modules" / patch
    if not (folder / "go.sum").is_file():
        with progress.step(f"Go module that names the binaries of Kubernetes {patch}"):
            write(go, name, patch, folder)
    return Version(patch, str(folder), find(DEFAULT).etcd)


def newest(minor: Minor, known: list[str]) -> str:
    """Return the newest patch of a minor among versions such as v1.34.4. Raises BedError if there is none."""
    patches = [found for version in known if (found := re.fullmatch(rf"v{minor[0]}\.{minor[1]}\.(\d+)", version))]
    if not patches:
        raise BedError(f"Go knows no release of Kubernetes {show(minor)}")
    return max(patches, key=lambda patch: int(patch[1]))[0]


def write(go: str, name: str, patch: str, folder: Path) -> None:
    """Write a module like those of tools/bed/kubernetes. Its folder appears when it is complete."""
    scratch = folder.with_suffix(".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    source = run(go, "mod", "download", "-json", f"{MODULE}@{patch}", cwd="/")
    found = re.search(r'"GoMod": "([^"]+)"', source)
    if found is None:
        raise BedError(f"Go did not say where the go.mod of {MODULE}@{patch} is: {source}")
    (scratch / "go.mod").write_text(text(Path(found[1]).read_text(), name, patch))
    run(go, "mod", "tidy", cwd=str(scratch))
    scratch.rename(folder)


def text(own: str, name: str, patch: str) -> str:
    """Return the go.mod, made from Kubernetes' own go.mod. Parts below staging/ become modules with versions such as
    v0.34.4."""
    staged = "v0" + patch.removeprefix("v1")
    heading = f"""\
// Names the Kubernetes {name[1:]} binaries that the test bed builds; there is no source here.
module outoftree.example/bed/kubernetes/{name}"""
    # Replace Kubernetes' own heading, which is about its repository.
    own = re.sub(r"\A.*?^module .*?$", heading, own, flags=re.MULTILINE | re.DOTALL)
    own = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {staged}", own)
    tools = "".join(f"\t{MODULE}/cmd/{program}\n" for program in KUBERNETES)
    return f"{own}\nrequire {MODULE} {patch}\n\ntool (\n{tools})\n"

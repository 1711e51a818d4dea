# SPDX-License-Identifier: Apache-2.0
"""The tables of peers' tests: Go fetches the released modules into its own cache, and gotables reads them there.

Nothing of a peer is stored here. The program is compiled once, into the bed's cache.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bed import go_programs
from bed.errors import BedError
from bed.go_modules import download
from bed.progress import Progress

HERE = Path(__file__).parent
#: File -> test -> variable -> rows, as gotables prints them.
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Root:
    """A released module, the packages whose tests are read, and the modules that these import."""

    module: str
    version: str
    packages: tuple[str, ...]
    imports: tuple[str, ...] = ()


def roots(path: Path = HERE / "roots.yml") -> dict[str, Root]:
    return {
        name: Root(row["module"], row["version"], tuple(row["packages"]), tuple(row.get("imports", ())))
        for name, row in yaml.safe_load(path.read_text()).items()
    }


def read(asked: Mapping[str, Root], progress: Progress) -> dict[str, Tables]:
    """Return the tables of these modules. Raises BedError if a module cannot be downloaded, or lacks one of the
    packages."""
    folders = download({(root.module, root.version) for root in asked.values()}, progress)
    imports = {name: _imports(folders[root.module, root.version], root) for name, root in asked.items()}
    folders |= download({pair for pairs in imports.values() for pair in pairs}, progress)
    request = {
        name: {
            "dir": str(folders[root.module, root.version]),
            "packages": root.packages,
            "modules": {
                module: str(folders[module, version])
                for module, version in (*imports[name], (root.module, root.version))
            },
        }
        for name, root in asked.items()
    }
    return gotables({"suites": request}, progress)


def gotables(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Return what gotables prints for a request (its main.go describes both). Raises BedError if gotables refuses
    it."""
    program = go_programs.ensure("gotables", progress)
    done = subprocess.run(
        [program], input=json.dumps(request), capture_output=True, text=True, timeout=200, check=False
    )
    if done.returncode:
        raise BedError(done.stderr.strip() or f"gotables ended with status {done.returncode} and printed no error")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _imports(folder: Path, root: Root) -> list[tuple[str, str]]:
    """Return the root's imported modules with their versions in its go.mod. Raises BedError if one is missing there."""
    required = dict(re.findall(r"^\s*(?:require )?(\S+) (v\S+)", (folder / "go.mod").read_text(), re.MULTILINE))
    if absent := [module for module in root.imports if module not in required]:
        raise BedError(
            f"{root.module}@{root.version} does not require {', '.join(absent)} any more: "
            "change its imports in tests/peers/roots.yml"
        )
    return [(module, required[module]) for module in root.imports]

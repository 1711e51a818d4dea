# SPDX-License-Identifier: Apache-2.0
"""`make lock`: writes the files that pin packages of PyPI, each from its source:

    python -m tools.packaging.locks [--upgrade]

Without --upgrade, packages keep their present versions if the sources allow them.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .environments import REPOSITORY, UV

RUNTIME = REPOSITORY / "runtime"
_HASHES = ("--universal", "--generate-hashes")
#: The extras that the image installs; the Containerfile has the same.
EXTRAS = ("aws", "openstack", "uvloop", "vsphere")


@dataclass(frozen=True)
class Lock:
    """A file, what uv makes it from (a file, or lines of requirements), and uv's options."""

    path: Path
    source: Path | str
    options: tuple[str, ...] = ()

    def written(self, upgrade: bool, to: Path) -> None:
        """Write the lock to the file `to`. Without `upgrade`, the versions that the file has now are kept."""
        text = isinstance(self.source, str)
        command = [UV, "pip", "compile", "--quiet", "--python-version", "3.11", "--no-header", *self.options]
        command += ["--upgrade"] if upgrade else []
        command += ["--output-file", to, "-" if text else self.source]
        subprocess.run(command, input=self.source if text else None, text=True, check=True, cwd=to.parent)


def build_backend() -> str:
    """Return the requirements of the build system in pyproject.toml."""
    requires: list[str] = tomllib.loads((RUNTIME / "pyproject.toml").read_text())["build-system"]["requires"]
    return "\n".join(requires)


def locks() -> list[Lock]:
    """Return the locks of the image. The locks of moto and of the OpenStack services are made by hand: their
    `requirements.in` say how.
    """
    extras = tuple(word for name in EXTRAS for word in ("--extra", name))
    return [
        Lock(RUNTIME / "requirements.lock", RUNTIME / "pyproject.toml", (*_HASHES, *extras)),
        Lock(RUNTIME / "build.lock", build_backend(), (*_HASHES, "--no-annotate")),
    ]


def main() -> int:
    for lock in locks():
        lock.written("--upgrade" in sys.argv[1:], lock.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

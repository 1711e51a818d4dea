# SPDX-License-Identifier: Apache-2.0
"""Finds, in this machine's pyenv, a version of Python that no Debian release has."""

from __future__ import annotations

import os
from pathlib import Path

from bed.errors import BedError


def folder(version: str) -> Path:
    """Return the folder of pyenv's newest Python of this version, such as 3.8. That Python works only at this path.

    Raises BedError when pyenv has none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    found = [path.parent.parent for path in pyenv.glob(f"versions/{version}.*/bin/python{version}")]
    if not found:
        raise BedError(f"pyenv has no Python {version} below {pyenv}/versions: `pyenv install {version}`")
    return max(found, key=lambda path: int(path.name.rpartition(".")[2]))


def program(version: str) -> Path:
    """Return the interpreter in that folder. Raises BedError when pyenv has none."""
    return folder(version) / "bin" / f"python{version}"

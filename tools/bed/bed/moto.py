# SPDX-License-Identifier: Apache-2.0
"""Installs moto, a simulated AWS in one process, into the cache: a bed's gateway runs it as its machines' cloud."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from bed import locks, paths
from bed.progress import Progress
from bed.run import run

REQUIREMENTS = paths.BED / "moto" / "requirements.txt"
#: The Python of the bed's images, which may differ from this machine's.
PYTHON = "3.11"


def ensure(progress: Progress) -> Path:
    """Return the folder of moto's packages, for PYTHONPATH; install them first if the requirements have changed."""
    key = hashlib.sha256(f"{PYTHON}\n".encode() + REQUIREMENTS.read_bytes()).hexdigest()[:16]
    folder = paths.cache() / "moto" / key
    with locks.held("moto"):
        if not folder.exists():
            partial = folder.with_suffix(".tmp")
            shutil.rmtree(partial, ignore_errors=True)
            with progress.step("moto from PyPI"):
                uv = str(paths.BUILD / "venv" / "bin" / "uv")
                run(uv, "pip", "install", "--quiet", "--only-binary", ":all:", "--python-version", PYTHON,
                    "--target", str(partial), "--requirements", str(REQUIREMENTS))  # fmt: skip
            partial.replace(folder)
    return folder

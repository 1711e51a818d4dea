# SPDX-License-Identifier: Apache-2.0
"""Makes the virtual environment of the services, in the cache: pinned versions, and the rig's own drivers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bed import locks, paths
from bed.progress import Progress
from bed.run import run
from rig import places


def ensure(progress: Progress) -> Path:
    """Return the folder of the environment; make a new one if requirements or drivers have changed."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = places.fingerprint(places.REQUIREMENTS, places.DRIVERS, more=[version])
    venv = paths.cache() / "openstack" / f"venv-{key}"
    with locks.held("openstack-venv"):
        if not (venv / "complete").exists():
            with progress.step("keystone, neutron, octavia, nova, placement, glance, cinder from PyPI"):
                _make(venv)
    return venv


def _make(venv: Path) -> None:
    uv = str(paths.BUILD / "venv" / "bin" / "uv")
    shutil.rmtree(venv, ignore_errors=True)
    run(uv, "venv", "--quiet", "--python", sys.executable, str(venv))
    # Use a copy: setuptools writes into the folder that it builds.
    source = venv / "rig-drivers"
    shutil.copytree(places.DRIVERS, source, ignore=shutil.ignore_patterns("__pycache__"))
    python = str(venv / "bin" / "python")
    run(uv, "pip", "install", "--quiet", "--python", python, "-r", str(places.REQUIREMENTS), str(source))
    (venv / "complete").touch()


def variables() -> dict[str, str]:
    """Return the environment variables for the programs of the virtual environment. The programs always write bytecode,
    even if this process does not, because compiling takes longer than starting.
    """
    ours = {"PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH"}
    return {name: value for name, value in os.environ.items() if name not in ours} | {"PYTHONWARNINGS": "ignore"}

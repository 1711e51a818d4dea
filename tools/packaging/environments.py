# SPDX-License-Identifier: Apache-2.0
"""Makes Python environments in build/cores: one for each supported ansible-core, and a few for single purposes.

All have ansible-core and the library `kubernetes`. Those for an ansible-core also have what `ansible-test units` needs,
and the collections of build/venv. Each ansible-core supports certain Pythons; one of these must be on this machine,
because none is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "build"
FOLDER = BUILD / "cores"
UV = BUILD / "venv" / "bin" / "uv"
#: The program that runs galaxy-importer.
IMPORTER = REPOSITORY / "tools" / "packaging" / "importer.py"

#: The releases of ansible-core to test (the supported ones and `CANDIDATES`), and the Pythons on which each runs as the
#: controller, best first.
CORES = {
    "2.18": ("3.11", "3.12", "3.13"),
    "2.19": ("3.11", "3.12", "3.13"),
    "2.20": ("3.12", "3.13", "3.14"),
    "2.21": ("3.12", "3.13", "3.14"),
    "2.22": ("3.13", "3.14"),
}
#: The cores that have only release candidates, and the oldest candidate to use. They are tested before users have them;
#: the README promises nothing about them.
CANDIDATES = {"2.22": "2.22.0rc1"}
#: The Pythons that a managed node may have. `ansible-test sanity` imports the modules with those on this machine.
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
#: What the tests of the collection import in addition to ansible-core and the library `kubernetes`, and what runs them.
FOR_TESTS = ("hypothesis", "markdown-it-py", "pytest>=8", "pytest-mock", "pytest-timeout", "pytest-xdist", "pyyaml")
_SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class NoPython(Exception):
    """No Python on this machine runs this ansible-core; the message says which Pythons would."""


def python(version: str) -> Path | None:
    """Return a working Python of this version from the PATH or pyenv, or None."""
    for candidate in _candidates(version):
        found = subprocess.run(
            [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if found.stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or "~/.pyenv").expanduser()
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"), reverse=True)
    for folder in os.get_exec_path():
        path = Path(folder, f"python{version}")
        if os.access(path, os.X_OK):
            yield path


def pythons() -> Path:
    """Return a folder with links to all working Pythons: pyenv's own links work only for the selected versions."""
    folder = FOLDER / "pythons"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for version in PYTHONS:
        found = python(version)
        if found:
            (folder / f"python{version}").symlink_to(found)
    return folder


def environment(core: str, version: str = "") -> Path:
    """Return the environment with the newest release of this ansible-core, made or brought up to date.

    With `version`, it has this Python, so that cores can be compared. Raises NoPython.
    """
    folder = FOLDER / (f"{core}-python{version}" if version else core)
    _make(folder, core, *FOR_TESTS, version=version)
    return _with_collections(folder)


def _with_collections(folder: Path) -> Path:
    """Link build/venv's collections into an environment, and return its folder."""
    link = next((folder / "lib").glob("python3*")) / "site-packages" / "ansible_collections"
    if not link.is_symlink():
        link.symlink_to(next((BUILD / "venv" / "lib").glob("python3*/site-packages/ansible_collections")))
    return folder


def of_a_user() -> Path:
    """Return an environment with only what the README requires: ansible-core, and the library `kubernetes`. Raises
    NoPython."""
    folder = FOLDER / "user"
    _make(folder, "2.19")
    return folder


def of_galaxy() -> Path:
    """Return an environment with galaxy-importer, which Galaxy runs on every tarball. It is not in build/venv, because
    it needs other releases of libraries."""
    folder = FOLDER / "galaxy"
    _make(folder, "2.19", "galaxy-importer>=0.4.30")
    return folder


def of_release() -> Path:
    """Return an environment with the programs that make and check the files of a release, and Ansible's own."""
    folder = FOLDER / "release"
    _make(folder, "2.19", "cyclonedx-bom>=7", "twine>=6")
    return folder


def of_events() -> Path:
    """Return an environment with ansible-rulebook, ansible-runner (which AWX uses), and awxkit, AWX's own client.

    ansible-rulebook also needs Java 17.
    """
    folder = FOLDER / "events"
    _make(folder, "2.19", "ansible-rulebook>=1.3", "awxkit>=24.6")
    return _with_collections(folder)


def _make(folder: Path, core: str, *packages: str, version: str = "") -> None:
    program = folder / "bin" / "python"
    if not program.exists():
        allowed = [each for each in CORES[core] if version in ("", each)]
        found = next((path for path in map(python, allowed) if path), None)
        if found is None:
            raise NoPython(f"ansible-core {core} needs one of Python {', '.join(allowed)}, and none is here")
        _uv("venv", "--python", str(found), str(folder))
    of_ansible = f"ansible-core~={CANDIDATES.get(core, core + '.0')}"
    _uv("pip", "install", "--python", str(program), of_ansible, "kubernetes>=29", *packages)


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables for programs of this environment, without the caller's for Ansible, Python and
    Kubernetes."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "K8S_AUTH_", "PYTHON"))
    }
    kept.pop("KUBECONFIG", None)
    return kept | {"PATH": f"{folder / 'bin'}:{FOLDER / 'pythons'}:{_SYSTEM}", "LANG": "C.UTF-8"}


def _uv(*arguments: str) -> None:
    done = subprocess.run([UV, *arguments, "--quiet"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"uv {' '.join(arguments)}: {done.stderr.strip()}")

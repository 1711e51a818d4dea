# SPDX-License-Identifier: Apache-2.0
"""Tests the collection with the supported releases of ansible-core, by default everything with each of them:

    python -m tools.packaging.cores [--do WHAT,...] [CORE ...]

WHAT is one of
  sanity       every test of `ansible-test sanity`, ignoring nothing, for each Python here that a managed node may have;
               a test whose requirements are at an address that does not answer is left out, and named
  units        `ansible-test units`
  syntax       every playbook and the documentation of every role, of the installed tarball
  integration  tests/integration/collection: the modules and playbooks against a real API server and hosts of files
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from . import artifact, environments
from .environments import FOLDER, REPOSITORY

# `ansible-test` makes environments without pip, and downloads a script that installs pip. This script does the same
# from the wheel that Python brings, so that the tests need only a package index.
_BOOTSTRAP = """import ensurepip, glob, os, runpy, sys, sysconfig
folder = sysconfig.get_config_var("WHEEL_PKG_DIR") or os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
sys.path.insert(0, glob.glob(os.path.join(folder, "pip-*.whl"))[0])
sys.argv[1:] = ["install"] + [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_PIP_OF = (
    "from ansible_test._internal import python_requirements as r, host_configs as h;"
    "print(r.get_venv_packages(h.NativePythonConfig(version='3.11', path='python'))['pip'])"
)


class Failed(Exception):
    """A command ended with an error; its output has been shown."""


def run(core: str, what: str, environment: Path, *command: str | Path, cwd: Path, home: str) -> None:
    """Run a command. If it fails, print the end of its output and raise Failed."""
    done = subprocess.run(
        command, cwd=cwd, env=environments.variables(environment) | {"HOME": home}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    log = FOLDER / f"{what}-{core}.log"
    log.write_text(done.stdout)
    if done.returncode:
        print(*done.stdout.splitlines()[-100:], sep="\n")
        raise Failed(f"ansible-core {core}: {what} failed; its output is in {log.relative_to(REPOSITORY)}")


def test_home(environment: Path) -> str:
    """Return a home folder in which `ansible-test` keeps its environments from run to run, with a script for pip."""
    folder = FOLDER / "home"
    python = environment / "bin" / "python"
    version = subprocess.run([python, "-c", _PIP_OF], capture_output=True, text=True, check=True).stdout.strip()
    cache = folder / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"get_pip_{version.replace('.', '_')}.py").write_text(_BOOTSTRAP)
    return str(folder)


def answers(address: str) -> bool:
    """Return whether a server answers a request for this address, whatever the answer is."""
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=20).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def out_of_reach(requirements: Path) -> dict[str, str]:
    """Return the sanity tests whose requirements are at an address that does not answer here. Tests of a candidate may
    need packages that no index has yet."""
    needed = {
        path.name.split(".")[1]: address
        for path in sorted(requirements.glob("sanity.*.txt"))
        for address in re.findall(r"^[^#\n]*@ *(https?://\S+)", path.read_text(), re.MULTILINE)
    }
    return {test: address for test, address in needed.items() if not answers(address)}


def sanity(core: str, environment: Path) -> None:
    environments.pythons()
    with tempfile.TemporaryDirectory() as scratch:
        root = artifact.tree(Path(scratch))
        ignored = [path for path in (root / "tests").glob("sanity/ignore-*.txt") if path.read_text().strip()]
        if ignored:
            raise Failed(f"{ignored[0].relative_to(root)} is not empty: fix what it ignores")
        program = environment / "bin" / "ansible-test"
        left_out = out_of_reach(next(environment.glob("lib/python3*/site-packages/ansible_test/_data/requirements")))
        for test, address in left_out.items():
            print(f"left out: ansible-core {core}: the sanity test {test} needs {address}, and no server answers there")
        skipped = [word for test in left_out for word in ("--skip-test", test)]
        arguments = ("sanity", "-v", "--color", "no", *skipped)
        run(core, "sanity", environment, program, *arguments, cwd=root, home=test_home(environment))


def units(core: str, environment: Path) -> None:
    version = next(environment.glob("lib/python3*")).name.removeprefix("python")
    with tempfile.TemporaryDirectory() as scratch:
        root = artifact.tree(Path(scratch))
        program = environment / "bin" / "ansible-test"
        arguments = ("units", "--color", "no", "--python", version)
        run(core, "units", environment, program, *arguments, cwd=root, home=test_home(environment))


def syntax(core: str, environment: Path) -> None:
    programs = environment / "bin"
    inventory = str(REPOSITORY / "docs" / "inventories" / "kubeadm.yml")
    with tempfile.TemporaryDirectory() as scratch:
        artifact.install(Path(scratch), environment)
        books = [f"outoftree.ccm.{book.stem}" for book in sorted(REPOSITORY.glob("playbooks/*.yml"))]
        playbook = (programs / "ansible-playbook", "--syntax-check", "-i", inventory, *books)
        run(core, "syntax", environment, *playbook, cwd=Path(scratch), home=scratch)
        roles = [f"outoftree.ccm.{role}" for role in ("ccm_install", "ccm_runtime")]
        doc = (programs / "ansible-doc", "--type", "role", *roles)
        run(core, "documentation", environment, *doc, cwd=Path(scratch), home=scratch)


def integration(core: str, environment: Path) -> None:
    """Run the integration tests with the checkout's own pytest, which runs the programs of that ansible-core."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/integration/collection"], cwd=REPOSITORY,
        env=os.environ | {"OUTOFTREE_ANSIBLE": str(environment / "bin")},
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"ansible-core {core}: the tests of tests/integration/collection failed")


WHAT: dict[str, Callable[[str, Path], None]] = {
    "sanity": sanity,
    "units": units,
    "syntax": syntax,
    "integration": integration,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--do", metavar="WHAT,...", default=",".join(WHAT), help="default: %(default)s")
    parser.add_argument("cores", metavar="CORE", nargs="*", help=f"default: {' '.join(environments.CORES)}")
    asked = parser.parse_args()
    unknown = [word for word in asked.do.split(",") if word not in WHAT]
    unknown += [word for word in asked.cores if word not in environments.CORES]
    if unknown:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join([*WHAT, *environments.CORES])}")
    failures = []
    for core in asked.cores or environments.CORES:
        try:
            environment = environments.environment(core)
        except environments.NoPython as reason:
            print(f"skipped: {reason}", flush=True)
            continue
        for what in asked.do.split(","):
            begun = time.monotonic()
            try:
                WHAT[what](core, environment)
            except Failed as failure:
                failures.append(str(failure))
            else:
                print(f"ok  ansible-core {core}: {what}, {time.monotonic() - begun:.0f} s", flush=True)
    for failure in failures:
        print(f"FAILED  {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

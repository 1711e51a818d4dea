# SPDX-License-Identifier: Apache-2.0
"""The tests' binaries do not start with any flag that the table of version facts calls fatal for their release.

Rows about kubeadm, about newer releases and about the kubelet's in-tree clouds are not tested. The summary of a run
says how many are about newer releases.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from ..cluster import MissingBinaries, binaries

REPOSITORY = Path(__file__).resolve().parents[3]


def table() -> ModuleType:
    path = REPOSITORY / "plugins" / "module_utils" / "facts" / "versions.py"
    spec = importlib.util.spec_from_file_location("version_facts", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERSIONS = table()


def argument(component: str, flag: str, value: str | None) -> str:
    """Return the command-line argument that the fact is about.

    A gate without a value becomes `GATE=true`, `in-tree` becomes `aws`, and a fact about every value gets `x`.
    """
    if flag == "feature-gates":
        return f"--{flag}={value}" if value and "=" in value else f"--{flag}={value}=true"
    return f"--{flag}={'aws' if value == 'in-tree' else value or 'x'}"


def release() -> tuple[int, int] | None:
    """Return the release of the binaries; None if they are missing, so that every row becomes a test, which fails."""
    try:
        program = binaries() / "kube-apiserver"
    except MissingBinaries:
        return None
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found: tuple[int, int] = VERSIONS.parse(done.stdout)
    return found


ROWS = [
    fact
    for fact in VERSIONS.FACTS
    if fact.fatal_in is not None
    and fact.component != "kubeadm"
    # On a host with cgroup v1, this kubelet fails before it reads the value.
    and (fact.component, fact.value) != ("kubelet", "in-tree")
]
RELEASE = release()
NEWER = [fact for fact in ROWS if RELEASE is not None and fact.fatal_in > RELEASE]
CASES = [
    pytest.param(fact, id=f"{fact.component}-{fact.flag}-{fact.value or 'any'}") for fact in ROWS if fact not in NEWER
]


def test_rows_of_newer_releases_are_counted(record_property: Callable[[str, object], None]) -> None:
    assert CASES and len(CASES) + len(NEWER) == len(ROWS)
    if NEWER:
        newer = VERSIONS.show(min(fact.fatal_in for fact in NEWER))
        record_property(
            "unchecked",
            f"{len(NEWER)} of {len(ROWS)} rows, fatal from {newer} on: the binaries are {VERSIONS.show(RELEASE)}",
        )


@pytest.mark.parametrize("fact", CASES)
def test_a_flag_that_is_called_fatal_is_fatal(fact: VERSIONS.Fact):  # type: ignore[name-defined]
    program = str(binaries() / fact.component)
    given = [program, argument(fact.component, fact.flag, fact.value)]
    if fact.component == "kube-apiserver":
        given.append("--etcd-servers=http://127.0.0.1:1")
    done = subprocess.run(given, capture_output=True, text=True)
    name = fact.flag if fact.value is None else "aws" if fact.value == "in-tree" else fact.value.split("=")[0]
    assert done.returncode != 0
    known = (
        r"unknown flag|unrecognized feature gate|is unknown|built-in cloud providers are disabled|feature is locked"
        r"|is not in the list of known controllers"
    )
    assert any(re.search(known, line) and name in line for line in done.stderr.splitlines()), done.stderr[-600:]

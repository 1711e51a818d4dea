# SPDX-License-Identifier: Apache-2.0
"""What the table of version facts calls fatal at the release of the tests' binaries, those refuse to start with."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from ..cluster import binaries

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
    """The flag as it would be left over; a value that is wrong in itself is part of the fact."""
    if flag == "feature-gates":
        return f"--{flag}={value}" if value and "=" in value else f"--{flag}={value}=true"
    return f"--{flag}={'aws' if value == 'in-tree' else value or 'x'}"


@functools.cache
def release_of(program: str) -> tuple[int, int]:
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    release: tuple[int, int] = VERSIONS.parse(done.stdout)
    return release


CASES = [
    # A host with cgroup v1 keeps this kubelet from starting before it looks at the value.
    pytest.param(fact, id=f"{fact.component}-{fact.flag}-{fact.value or 'any'}")
    for fact in VERSIONS.FACTS
    if fact.fatal_in is not None
    and fact.component != "kubeadm"
    and (fact.component, fact.value) != ("kubelet", "in-tree")
]


@pytest.mark.parametrize("fact", CASES)
def test_a_flag_that_is_called_fatal_is_fatal(fact: VERSIONS.Fact):  # type: ignore[name-defined]
    program = str(binaries() / fact.component)
    release = release_of(program)
    if release < fact.fatal_in:
        pytest.skip(f"the binaries are {VERSIONS.show(release)}")
    given = [program, argument(fact.component, fact.flag, fact.value)]
    if fact.component == "kube-apiserver":
        given.append("--etcd-servers=http://127.0.0.1:1")
    done = subprocess.run(given, capture_output=True, text=True, timeout=30)
    name = fact.flag if fact.value is None else "aws" if fact.value == "in-tree" else fact.value.split("=")[0]
    assert done.returncode != 0
    known = (
        r"unknown flag|unrecognized feature gate|is unknown|built-in cloud providers are disabled|feature is locked"
        r"|is not in the list of known controllers"
    )
    assert any(re.search(known, line) and name in line for line in done.stderr.splitlines()), done.stderr[-600:]

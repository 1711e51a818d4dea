# SPDX-License-Identifier: Apache-2.0
"""Compares all arguments of a process with the arguments in its unit's files."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit

UNIT, ENV = "/etc/systemd/system/kubelet.service", "/etc/default/kubelet"


def difference(command: str, environment: str, argv: list[str], specifiers: dict[str, str] | None = None) -> str:
    sources = _unit.Sources((UNIT,), (ENV,), {UNIT: f"[Service]\nUnsetEnvironment=D\nExecStart={command}\n", ENV: environment})
    return compare.difference(sources, "kubelet", argv, specifiers)


@pytest.mark.parametrize(("command", "environment", "running"), [
    ("/usr/bin/kubelet --v=2 $A", 'A="\n  --node-ip=10.0.0.1\n  --max-pods=200\n"\n', ["--v=2", "--node-ip=10.0.0.1", "--max-pods=200"]),
    ("@/usr/bin/kubelet other --v=2", "", ["--v=2"]),
    ("-/usr/bin/kubelet $A", "A='--x=a b'\n", ["--x=a", "b"]),
    ("/usr/bin/kubelet ${A}", "A='--x=a b'\n", ["--x=a b"]),
    ("/usr/bin/kubelet --hostname-override=%H --a", "", ["--hostname-override=worker-1", "--a"]),
    ("/usr/bin/kubelet --root-dir=${HOME}/k", "", ["--root-dir=/srv/k"]),
    ("/usr/bin/kubelet --name=%N", "", ["--name=kubelet"]),
    ("/usr/bin/start-kubelet $A", "A=--v=2\n", ["--v=2", "--added-by-the-wrapper"]),
])
def test_arguments_that_the_files_explain(command: str, environment: str, running: list[str]) -> None:
    assert difference(command, environment, ["/usr/bin/kubelet", *running]) == ""


@pytest.mark.parametrize(("running", "words"), [
    (["--v=3", "--node-ip=10.0.0.1"], f"argument 1 of the process is '--v=3' instead of '--v=2' ({UNIT} line 3)"),
    (["--v=2", "--node-ip=10.0.0.2"], f"argument 2 of the process is '--node-ip=10.0.0.2' instead of '--node-ip=10.0.0.1' ({ENV} line 3)"),
    (["--v=2"], f"does not have the argument '--node-ip=10.0.0.1' ({ENV} line 3)"),
    (["--v=2", "--node-ip=10.0.0.1", "a\nb"], "one more argument, 'a\\nb'"),
])
def test_the_first_difference_names_the_file_and_the_line(running: list[str], words: str) -> None:
    assert words in difference("/usr/bin/kubelet --v=2 $A", 'B=1\nA="\n--node-ip=10.0.0.1"\n', ["kubelet", *running])


@pytest.mark.parametrize(("command", "names"), [
    ("/usr/bin/kubelet $A", "$A"), ("/usr/bin/kubelet $A $B ${C}", "$A and $C"), ("/usr/bin/kubelet --x=${A}${A} $B", "$A"), ("/usr/bin/kubelet $B", ""),
    ("/usr/bin/kubelet $$A --x=$A", ""), ("/usr/bin/kubelet $D ${D}", ""),
])
def test_a_variable_that_no_file_sets_may_be_systemds_own(command: str, names: str) -> None:
    """The values of PassEnvironment=, DefaultEnvironment= and 'systemctl set-environment' are in no file of the unit."""
    found = difference(command, 'B=""\n', ["kubelet", *["--one"] * 5])
    assert "the process" in found and (f". No file sets {names}, which {UNIT} uses: systemd itself may have it (PassEnvironment=" in found) == bool(names)
    assert difference("/usr/bin/kubelet --x=${A}", "", ["kubelet", "--x=1"]) == ""


def test_specifiers_that_the_host_knows_are_compared() -> None:
    assert difference("/usr/bin/kubelet --x=%H", "", ["kubelet", "--x=b"], {"H": "b"}) == ""
    assert "'--x=c'" in difference("/usr/bin/kubelet --x=%H", "", ["kubelet", "--x=c"], {"H": "b"})


def test_others_are_the_arguments_without_managed_flags() -> None:
    argv = ["kubelet", "--a", "--cloud-provider", "aws", "b", "--cloud-config=/c", "--controllers=*"]
    assert [argument.value for argument in compare.others(argv)] == ["--a", "b"]


@pytest.mark.parametrize("length", [0, 1, 199, 200, 201, 202, 5000])
def test_a_long_argument_is_shown_with_200_characters_at_most(length: int) -> None:
    argument = "".join(chr(ord("a") + index % 26) for index in range(length))
    found = compare.shown(argument)[1:-1]
    assert found == (argument if length <= 200 else argument[:197] + "...") and len(found) == min(length, 200)

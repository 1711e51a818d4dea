# SPDX-License-Identifier: Apache-2.0
"""The table of specs, and the command that runs them."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bed import images, machines, paths, plan
from bed.cluster import Bed
from tools.e2e import __main__ as e2e
from tools.e2e import results
from tools.e2e.results import Result

SUITE = paths.REPOSITORY / "tools/e2e/suite"
LABELS = "[sig-network] LoadBalancers [Feature:LoadBalancer] should be able to switch affinity [Slow] [LinuxOnly]"
ONE = Result(LABELS, "passed", 21.04)


def test_a_line_for_each_spec_with_its_reason_and_a_sum() -> None:
    skipped = Result("b", "skipped", 1.5, "LoadBalancer uses\n 'Proxy' IPMode")
    failed = Result("c", "timedout", 900, "x" * 1000)
    found = results.read([json.dumps(vars(each)) for each in (ONE, skipped, failed)] + [""])
    lines = results.table(found).splitlines()
    assert lines[0] == "passed     21.0 s  LoadBalancers should be able to switch affinity"
    assert lines[2].strip() == "LoadBalancer uses 'Proxy' IPMode"
    assert lines[4].strip() == "x" * 200
    assert lines[-1] == "1 of 3 specs passed, 1 skipped, 1 failed"


@pytest.mark.parametrize(
    ("states", "success"),
    [
        (["passed", "passed"], True),
        (["passed", "skipped"], True),
        (["passed", "failed"], False),
        (["passed", "panicked"], False),
        (["passed", "interrupted"], False),
        (["skipped"], False),
        ([], False),
    ],
)
def test_only_a_run_in_which_something_passed_and_nothing_failed_is_a_success(states: list[str], success: bool) -> None:
    assert results.is_success([Result("a", state, 1.0) for state in states]) is success


def test_the_program_writes_what_the_table_reads() -> None:
    source = (SUITE / "main.go").read_text()
    assert set(re.findall(r'json:"(\w+)"', source)) == set(Result.__dataclass_fields__)


def test_the_specs_are_of_the_release_that_the_bed_raises() -> None:
    from bed.versions import DEFAULT

    text = (SUITE / "go.mod").read_text()
    assert f"k8s.io/kubernetes {DEFAULT}\n" in text
    staging = set(re.findall(r"=> k8s.io/\S+ (\S+)", text))
    assert staging == {DEFAULT.replace("v1.", "v0.")}


def options(**more: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"mode": "pass-through", "focus": "", "quick": False, "keep": False} | more)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, []),
        ({"focus": "UDP"}, ["--ginkgo.focus=UDP"]),
        ({"quick": True}, ["--ginkgo.skip=rolling update"]),
    ],
)
def test_which_specs_run(more: dict[str, Any], words: list[str]) -> None:
    command = e2e.spec_command(options(**more))
    assert [word for word in command if "focus" in word or "skip" in word] == words
    assert "--ginkgo.label-filter=Feature: containsAny LoadBalancer" in command


def test_the_client_is_of_another_network_and_goes_with_the_bed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2e.binaries, "ensure", lambda *_: Path("/cache/v1"))
    bed = Bed(plan.make("e2e", "v1.37.2"), {})
    command = e2e.client_command(bed, Path("/cache/e2e"), Path("/out"), options())
    subnet, address = bed.plan.subnet, command[command.index("--ip") + 1]
    assert command[command.index("--label") + 1] == f"{machines.LABEL}=e2e"
    assert address not in {node.address for node in bed.plan.nodes} and address.endswith(".252")
    (start,) = [word for word in command if "ip route" in word]
    assert f"ip route replace {subnet} dev eth0 src 203.0.113.7" in start
    assert command[command.index("client") + 1] == "/e2e"
    assert images.PYTHON_IMAGE in command


def test_the_newest_agnhost_is_the_one_of_the_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "registry.k8s.io/e2e-test-images/agnhost:2.9\nregistry.k8s.io/e2e-test-images/agnhost:2.66.1\nother:1\n"
    monkeypatch.setattr(e2e, "run", lambda *_: listed)
    assert e2e.agnhost_image(Path("e2e")) == "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
    monkeypatch.setattr(e2e, "run", lambda *_: "other:1\n")
    with pytest.raises(e2e.BedError, match="names no image"):
        e2e.agnhost_image(Path("e2e"))

# SPDX-License-Identifier: Apache-2.0
"""The table of specs' results, and the command that runs the specs."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from bed import images, machines, paths, plan
from bed.cluster import Bed
from bed.progress import Progress, Step
from tools.e2e import __main__ as e2e
from tools.e2e import openstack, page, results
from tools.e2e.results import Result

SUITE = paths.REPOSITORY / "tools/e2e/suite"
LABELS = "[sig-network] LoadBalancers [Feature:LoadBalancer] should be able to switch affinity [Slow] [LinuxOnly]"
ONE = Result(LABELS, "passed", 21.04)
DUAL_STACK = "[sig-network] [Feature:IPv6DualStack]"


def test_a_line_for_each_spec_with_its_reason_and_a_sum() -> None:
    skipped = Result("b", "skipped", 1.5, "LoadBalancer uses\n 'Proxy' IPMode")
    failed = Result("c", "timedout", 900, "x" * 1000)
    found = results.read([json.dumps(vars(each)) for each in (ONE, skipped, failed)] + [""])
    lines = results.table(found).splitlines()
    assert lines[0] == "passed     21.0 s  LoadBalancers should be able to switch affinity"
    assert lines[2].strip() == "LoadBalancer uses 'Proxy' IPMode"
    assert lines[4].strip() == "x" * 200
    assert lines[-1] == "1 of 3 specs passed, 1 skipped, 1 failed"
    lossy = results.table([Result("d", "passed", 650, "", 31_000, 2)])
    assert lossy.splitlines()[1].strip() == "2 of 31,000 requests lost"


@pytest.mark.parametrize(
    ("states", "strict", "lenient"),
    [
        (["passed", "passed"], True, True),
        (["passed", "skipped"], False, True),
        (["passed", "failed"], False, False),
        (["passed", "panicked"], False, False),
        (["passed", "interrupted"], False, False),
        (["skipped"], False, False),
        ([], False, False),
    ],
)
def test_only_a_run_in_which_specs_passed_and_none_failed_is_a_success(
    states: list[str], strict: bool, lenient: bool
) -> None:
    found = [Result("a", state, 1.0) for state in states]
    assert (results.is_success(found), results.is_success(found, may_skip=True)) == (strict, lenient)


def test_what_cannot_be_compiled_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise e2e.BedError("`go build` ended with 1: no space left on device")

    monkeypatch.setattr(e2e.prerequisites, "need_root", lambda _: None)
    monkeypatch.setattr(e2e.go_programs, "ensure", refuse)
    assert e2e.main([]) == 1
    assert capsys.readouterr().err == "e2e: `go build` ended with 1: no space left on device\n"


@pytest.mark.parametrize("less", ["--quick", "--focus=UDP"])
def test_only_a_whole_run_is_recorded(less: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        e2e.main(["--record", less])
    assert "--record is for a run of all specs" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_spec_and_a_column_for_each_mode(tmp_path: Path) -> None:
    page.record("pass-through", [ONE, Result("b", "passed", 2, "", 31_000, 1)], tmp_path)
    page.record("proxy", [Result("b", "skipped", 1, "uses\n 'Proxy' IPMode"), Result("c", "failed", 3, "no")], tmp_path)
    assert page.table(page.TABLES["Load balancers"], tmp_path).splitlines() == [
        "| Spec | Pass-through | Proxy |",
        "|---|---|---|",
        "| LoadBalancers should be able to switch affinity | passed, 21 s | not run |",
        "| b | passed, 2 s, 1 of 31,000 requests lost | skipped: uses 'Proxy' IPMode |",
        "| c | not run | failed, 3 s: no |",
    ]


def test_all_specs_passed_in_the_mode_in_which_nothing_may_be_missing() -> None:
    rows = json.loads((page.RECORDED / "pass-through.json").read_text())
    assert {row["state"] for row in rows} == {"passed"}
    assert sum(row["spec"].startswith("LoadBalancers") for row in rows) == 17
    assert sum(row["spec"].startswith("Nodes") for row in rows) == 1


def test_the_page_about_testing_has_what_was_recorded() -> None:
    text = page.PAGE.read_text()
    assert page.filled(text) == text, "run `make docs`"
    with pytest.raises(ValueError, match="no line"):
        page.filled("# Testing")


@pytest.mark.parametrize(("mode", "kind", "count"), [("conformance", "Services", 15), ("dual-stack", "Granular", 13)])
def test_specs_have_the_same_results_before_a_migration_after_it_and_after_the_rollback(
    mode: str, kind: str, count: int
) -> None:
    stages = [json.loads((page.RECORDED / f"{column}.json").read_text()) for column in e2e.MODES[mode]]
    before, migrated, rolled_back = [{row["spec"]: row["state"] for row in rows} for rows in stages]
    assert before == migrated == rolled_back
    assert set(before.values()) == {"passed"} and sum(spec.startswith(kind) for spec in before) == count


def test_each_column_that_can_be_recorded_is_in_a_table() -> None:
    recordable = [column for columns in e2e.MODES.values() for column in columns]
    assert recordable == [column for columns in page.TABLES.values() for column in columns]


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
    ("more", "balancers", "nodes"),
    [
        (
            {},
            [["skip=rolling update"], ["focus=rolling update.*Cluster"], ["focus=rolling update.*Local"]],
            [],
        ),
        ({"focus": "UDP"}, [["focus=UDP"]], ["focus=UDP"]),
        ({"quick": True}, [["skip=rolling update"]], []),
        ({"focus": "UDP", "quick": True}, [["focus=UDP", "skip=rolling update"]], ["focus=UDP"]),
        (
            {"mode": "proxy"},
            [
                ["skip=without NodePort", "skip=rolling update"],
                ["focus=rolling update.*Cluster", "skip=without NodePort"],
                ["focus=rolling update.*Local", "skip=without NodePort"],
            ],
            ["skip=without NodePort"],
        ),
    ],
)
def test_which_specs_of_load_balancers_run(more: dict[str, Any], balancers: list[list[str]], nodes: list[str]) -> None:
    asked = options(**more)
    commands = [[e2e.spec_command(part, asked) for part in parts] for parts in e2e.rounds(asked)]

    def chosen(command: list[str]) -> list[str]:
        words = [word.removeprefix("--ginkgo.") for word in command]
        return [word for word in words if word.startswith(("focus=", "skip="))]

    assert [[chosen(command) for command in each] for each in commands] == [balancers, [nodes]]
    files = [word for each in commands for command in each for word in command if word.startswith("--report-prefix=")]
    assert len(set(files)) == len(files) and len(balancers) <= len(e2e.CLIENTS)
    assert all("--ginkgo.label-filter=Feature: containsAny LoadBalancer" in command for command in commands[0])
    assert "--ginkgo.label-filter=Feature: containsAny CloudProvider" in commands[1][0]


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("pass-through", LABELS),
        ("pass-through", "[sig-network] LoadBalancers not have disruption during rolling update with policy=Cluster"),
        ("pass-through", "[sig-network] LoadBalancers not have disruption during rolling update with policy=Local"),
        ("conformance", "[sig-network] Services should serve a basic endpoint from pods [Conformance]"),
        ("conformance", "[sig-network] EndpointSlice should support a Service [Conformance]"),
        ("conformance", "[sig-network] EndpointSliceMirroring should mirror Endpoints [Conformance]"),
        ("conformance", "[sig-network] Ingress API should support Services [Conformance]"),
        ("dual-stack", f"{DUAL_STACK} should create service with ipv6 cluster ip"),
        ("dual-stack", f"{DUAL_STACK} Granular Checks: Services should function for pod-Service: udp"),
        ("dual-stack", f"{DUAL_STACK} Granular Checks: should function for client IP based session affinity: udp"),
    ],
)
def test_a_spec_is_run_by_one_client_alone(mode: str, name: str) -> None:
    (parts, *_) = e2e.rounds(options(mode=mode))
    chosen = [re.search(part.only, name) and not (part.without and re.search(part.without, name)) for part in parts]
    assert sum(map(bool, chosen)) == 1 and len(parts) == len(e2e.CLIENTS)
    assert len({part.prefix for part in parts}) == len(parts)
    assert [[part.only] for part in e2e.rounds(options(mode=mode, focus="UDP"))[0]] == [["UDP"]]


def test_specs_on_openstack_delete_no_machine_of_the_simulated_cloud() -> None:
    rounds = e2e.rounds(options(mode="openstack"))
    assert [[part.deletes for part in parts] for parts in rounds] == [[False] * 3]
    ((alone,),) = e2e.rounds(options(mode="openstack", focus="UDP"))
    assert (alone.only, alone.deletes) == ("UDP", False)


def test_both_controllers_of_openstack_get_the_same_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openstack, "FOLDER", tmp_path)
    monkeypatch.setattr(openstack.images, "ensure_vendor", lambda *_: tmp_path / "vendor.tar")
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls/ca.crt").write_text("authority")
    (tmp_path / "cloud.conf").write_text("[Global]")
    bed = Bed(plan.make("e2e", "v1.37.2", cloud=False), {})
    bed.folder = tmp_path
    files = [openstack.variables(bed, column, Progress()) for column in e2e.MODES["openstack"]]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    ours, theirs = [json.loads(file.read_text()) for file in files]
    assert (ours["ccm_runtime_cloud_provider"], theirs["ccm_runtime_vendor"]) == ("openstack", "openstack")
    same = ("ccm_runtime_cloud_config", "ccm_runtime_credentials", "ccm_runtime_cluster_cidr")
    assert [ours[name] for name in same] == [theirs[name] for name in same]
    assert theirs["ccm_runtime_image_archive"] != ours["ccm_runtime_image_archive"]


def test_the_client_is_of_another_network_and_goes_with_the_bed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e2e.binaries, "ensure", lambda *_: Path("/cache/v1"))
    bed = Bed(plan.make("e2e", "v1.37.2"), {})
    subnet, (part, *_) = bed.plan.subnet, e2e.rounds(options())[0]
    addresses = set()
    for client, outside in enumerate(e2e.CLIENTS):
        command = e2e.client_command(bed, Path("/cache/e2e"), Path("/out"), part, client, options())
        addresses |= {command[command.index("--ip") + 1]}
        assert command[command.index("--label") + 1] == f"{machines.LABEL}=e2e"
        (start,) = [word for word in command if "ip route" in word]
        assert f"ip route replace {subnet} dev eth0 src {outside}" in start
    assert addresses == {bed.plan.host(number) for number in (252, 253, 254)}
    assert not addresses & {node.address for node in bed.plan.nodes}
    assert command[command.index("client") + 1] == "/e2e"
    assert images.PYTHON_IMAGE in command
    assert f"--cloud-url=http://{bed.plan.gateway}:9440/v1/projects/demo" in command


@pytest.mark.parametrize(
    ("state", "status", "message"),
    [("passed", 0, ""), ("failed", 1, ""), ("passed", 125, "load balancers ended with 125, and none failed")],
)
def test_a_client_that_ends_without_a_reason_is_an_error(
    state: str, status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(vars(Result("a", state, 1)))
    script = f"echo '{line}' >> {tmp_path}/results.jsonl; exit {status}"
    monkeypatch.setattr(e2e, "client_command", lambda *_: ["sh", "-c", script])
    monkeypatch.setattr(e2e, "podman", lambda *_, **__: "")
    wait = machines.wait_until
    monkeypatch.setattr(e2e.machines, "wait_until", lambda *words, pause: wait(*words, pause=0.01))
    (tmp_path / "results.jsonl").touch()
    bed, asked = Bed(plan.make("e2e", "v1.37.2"), {}), options(quick=True)
    with pytest.raises(e2e.BedError, match=message) if message else contextlib.nullcontext():
        e2e.run_at_once(bed, Path("e2e"), tmp_path, asked, e2e.rounds(asked)[0], Step("specs"))


def test_a_machine_ends_with_its_instance_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(plan.make("e2e", "v1.37.2"), {})
    names, ended = {node.name for node in bed.plan.nodes}, list[str]()
    monkeypatch.setattr(e2e.cluster, "instances", lambda _: names - {"e2e-worker-2"})
    for _ in range(2):
        e2e.end_deleted_machines(bed, ended.append)
    assert ended == ["e2e-worker-2"]


def test_the_newest_agnhost_is_the_one_of_the_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "registry.k8s.io/e2e-test-images/agnhost:2.9\nregistry.k8s.io/e2e-test-images/agnhost:2.66.1\nother:1\n"
    monkeypatch.setattr(e2e, "run", lambda *_: listed)
    assert e2e.image_of(Path("e2e"), e2e.AGNHOST) == "registry.k8s.io/e2e-test-images/agnhost:2.66.1"
    monkeypatch.setattr(e2e, "run", lambda *_: "other:1\n")
    with pytest.raises(e2e.BedError, match="names no image"):
        e2e.image_of(Path("e2e"), e2e.PAUSE)

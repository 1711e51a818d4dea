# SPDX-License-Identifier: Apache-2.0
"""Batches of workers: a canary comes first, and the operator's own program may stop the run after each batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import CHANGE, LOOK, WORKER, run, states

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

__all__ = ["cluster"]


def workers(cluster: Cluster, count: int) -> None:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for number in range(1, count + 1):
        cluster.add(f"w-{number}", WORKER)


def runs(pid: str) -> bool:
    return Path("/proc", pid).exists()


async def test_a_health_command_that_hangs_is_ended_and_stops_the_run_after_the_canary(cluster: Cluster):
    workers(cluster, 2)
    program = cluster.folder / "check"
    pid = cluster.folder / "pid"
    program.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    program.chmod(0o755)
    told = await run(
        cluster,
        LOOK + CHANGE,
        ccm_install_worker_serial=[1, "100%"],
        ccm_install_batch_command=[str(program)],
        ccm_install_batch_command_timeout=20,
    )
    assert told.status != 0 and "Traceback" not in told.output
    expected = f"The health command ({program}) did not end within 20 s, so it was ended"
    assert any(message.startswith(expected) for message in told.failures), told.failures
    assert states(cluster) == {"kubeadm-cp": "not begun", "w-1": "changed", "w-2": "not begun"}
    assert not runs(pid.read_text().strip())


async def test_a_health_command_judges_each_batch(cluster: Cluster):
    workers(cluster, 3)
    program = cluster.folder / "check"
    calls = cluster.folder / "calls"
    program.write_text(
        f'#!/bin/sh\necho "$1" >> {calls}\n[ "$(wc -l < {calls})" -lt 2 ] || {{ echo too slow >&2; exit 3; }}\n'
    )
    program.chmod(0o755)
    told = await run(
        cluster, LOOK + CHANGE, ccm_install_worker_serial=1, ccm_install_batch_command=[str(program), "a b"]
    )
    assert calls.read_text() == "a b\na b\n"
    assert any("ended with exit status 3: too slow" in message for message in told.failures), told.failures
    assert states(cluster)["w-2"] == "changed" and states(cluster)["w-3"] == "not begun"
    assert "Worker 2 of 3 (batch 2 of 3)" in told.output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ccm_install_worker_serial": "0%"}, "ccm_install_worker_serial is '0%'"),
        ({"ccm_install_batch_pause": -1}, "ccm_install_batch_pause is -1"),
        ({"ccm_install_batch_command": ["check --all"]}, "one word with spaces"),
        ({"ccm_install_batch_command_timeout": 0}, "ccm_install_batch_command_timeout is 0"),
        ({"ccm_install_adopt_parallel": 0}, "ccm_install_adopt_parallel is 0"),
    ],
)
async def test_invalid_settings_are_refused_before_the_first_change(
    cluster: Cluster, settings: dict[str, Any], message: str
):
    workers(cluster, 0)
    told = await cluster.play("/dev/stdin", stdin=json.dumps(LOOK), **settings)
    assert told.status != 0
    assert told.failures[-1].startswith("Nothing was changed. ") and message in told.failures[-1], told.failures

# SPDX-License-Identifier: Apache-2.0
"""The command line: each wrong input gives one message, and the process starts and stops as requested."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from ccm_simcloud import main
from tests.ports import free_port

GOOD = "projects: [{name: demo, token: secret-token}]\n"


def test_all_problems_of_a_configuration_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(
        """
projects:
- name: demo
  token: secret-token
  load_balancer_addresses: 10.0.0.9-10.0.0.1
- token: ""
  regoin: south
  instances:
  - {name: w1, state: asleep, addresses: [{type: InternalIP, address: 10.0.0.256}, {type: Odd, address: x}]}
limits: {page_size: 0}
timing: {latency: soon}
faults: {rules: [{action: explode}]}
"""
    )
    assert main(["--config", str(path)]) == 2
    printed = capsys.readouterr().err
    for place in (
        "projects[0]: load_balancer_addresses: '10.0.0.9-10.0.0.1'",
        "projects[1].name: is missing",
        "projects[1].token:",
        "projects[1].regoin: unknown key",
        "projects[1].instances[0].state:",
        "projects[1].instances[0].addresses[0]: '10.0.0.256' is not an IP address",
        "projects[1].instances[0].addresses[1].type:",
        "limits.page_size:",
        "timing.latency:",
        "faults.rules[0].action:",
    ):
        assert f"ccm sim: {path}: {place}" in printed
    assert "secret-token" not in printed and "Traceback" not in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "projects: is missing"),
        ("projects: []", "projects: at least one is required"),
        ("- a", "expected a mapping"),
        ("projects: {]", "line 1, column 12: not YAML"),
        ("projects: [{name: a, token: t}, {name: a, token: u}]", "each needs a unique name"),
        ("projects: [{name: a, token: t, instances: [{name: w}, {name: w}]}]", "duplicate names: w"),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(text)
    assert main(["--config", str(path)]) == 2
    assert message in capsys.readouterr().err


def test_files_and_addresses_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: cannot be read: No such file" in capsys.readouterr().err
    assert main(["--listen", "here"]) == 2
    assert "'here' is not HOST:PORT" in capsys.readouterr().err
    assert main(["--speed", "9"]) == 2
    capsys.readouterr()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["--listen", f"127.0.0.1:{taken.getsockname()[1]}"]) == 1
    assert "cannot listen on 127.0.0.1" in capsys.readouterr().err


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(GOOD)
    port = free_port()
    code = "import sys; from ccm_simcloud import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--config", str(path), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert f"http://127.0.0.1:{port}" in process.stderr.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.read() == b"ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.stderr.read()

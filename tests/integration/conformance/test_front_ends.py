# SPDX-License-Identifier: Apache-2.0
"""`ccm check-provider` and `pytest --pyargs ccm.conformance`, as a provider's author runs them; and which texts they
hide as secrets."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm.conformance import CASES
from ccm.conformance.subject import secrets_in
from ccm_simcloud.testing import Simulator, running_simulator
from tests.kit import PATIENT

from ..runtime.support import DEADLINE
from .simworld import CONFIG, TOKEN


@pytest.fixture
async def cloud() -> AsyncIterator[Simulator]:
    async with running_simulator(CONFIG) as simulator:
        simulator.add_instances(3)
        yield simulator


@pytest.fixture
def conf(cloud: Simulator, tmp_path: Path) -> Path:
    path = tmp_path / "cloud.conf"
    path.write_text(cloud.conf(request_timeout=PATIENT))
    return path


async def run(module: str, *arguments: object) -> tuple[int, str]:
    """Run `python -m MODULE`; return exit status and all output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def test_check_provider_only_reads_unless_it_may_write(cloud: Simulator, conf: Path) -> None:
    status, output = await run("ccm.cli", "check-provider", "sim", "--cloud-config", conf)
    assert status == 0, output
    lines = {line.split()[0]: line for line in output.splitlines() if line.split()}
    assert "passed" in lines["instances.getting_agrees_with_listing"]
    created_nothing = "not proven      creates resources in the cloud: allow it with --allow-writes"
    assert created_nothing in lines["routes.a_route_is_there_once"]
    assert "not proven      needs a cloud that fails on request" in lines["failures.a_server_error_is_transient"]
    assert re.search(r"^provider 'sim': \d+ passed, 0 FAILED, \d+ not proven, 0 not applicable$", output, re.MULTILINE)
    assert re.search(r"^A pass says nothing about the \d+ cases that are not proven", output, re.MULTILINE)
    assert not [entry for entry in cloud.journal() if entry.write and not entry.path.endswith("/tokens")]
    assert TOKEN not in output


async def test_check_provider_with_writes_leaves_nothing_behind(cloud: Simulator, conf: Path) -> None:
    arguments = ("check-provider", "sim", "--cloud-config", conf, "--allow-writes", "--case", "*ou*")
    status, output = await run("ccm.cli", *arguments)
    assert status == 0, output
    assert re.search(r"routes.a_route_lives_from_create_to_delete +passed", output)
    assert cloud.calls("routes.create") and not cloud.project().routes.rows
    assert not cloud.project().load_balancers.rows


async def test_check_provider_fails_and_says_why(cloud: Simulator, conf: Path) -> None:
    cloud.fault(action="status", status=503, match={"operation": "instances.list"})
    status, output = await run("ccm.cli", "check-provider", "sim", "--cloud-config", conf, "--case", "instances.*")
    assert status == 1
    assert re.search(r"instances.all_pages_are_the_whole +FAILED +Transient: .* 503 internal", output)


async def test_interrupted_it_removes_what_it_has_made(cloud: Simulator, conf: Path) -> None:
    cloud.server.world.timing = replace(cloud.server.world.timing, load_balancer_create=20.0)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ccm.cli", "check-provider", "sim", "--cloud-config", str(conf), "--allow-writes"),
        *("--case", "load_balancers.it_lives_from_ensure_to_delete"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # A shell starts jobs in the background with SIGINT ignored, and every process that they start inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    async with asyncio.timeout(DEADLINE):
        while not cloud.project().load_balancers.rows:
            await cloud.changed()
        await asyncio.sleep(0.5)
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert output.decode() == "ccm: interrupted; what the case created is removed, unless a line says LEFT BEHIND\n"
    assert not cloud.project().load_balancers.rows


async def test_a_cloud_that_refuses_is_told_once(cloud: Simulator, conf: Path) -> None:
    cloud.rotate_token("another-secret-token")
    status, output = await run("ccm.cli", "check-provider", "sim", "--cloud-config", conf)
    assert status == 1
    assert output.startswith("ccm: provider 'sim' cannot be started: Unauthorized: ") and output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["nonesuch"], "unknown cloud provider 'nonesuch': installed providers are", id="unknown-provider"),
        pytest.param([], "the provider is missing: set NAME to one of", id="no-provider"),
        pytest.param(["sim", "--cloud-config", "/no/such/file"], "/no/such/file: No such file", id="no-file"),
        pytest.param(["sim"], "endpoint: is missing", id="no-configuration"),
        pytest.param(["sim", "--case", "nonesuch"], "no case matches 'nonesuch'", id="no-such-case"),
        pytest.param(["sim", "--route-cidr", "10.0.0.1/8"], "argument --route-cidr: invalid", id="not-a-network"),
        pytest.param(["sim", "--patience", "0"], "argument --patience: invalid", id="no-patience"),
    ],
)
async def test_what_cannot_be_used_is_exit_status_2_and_one_message(arguments: list[str], message: str) -> None:
    status, output = await run("ccm.cli", "check-provider", *arguments)
    assert status == 2
    assert message in output and "Traceback" not in output


async def test_the_list_tells_every_case() -> None:
    status, output = await run("ccm.cli", "check-provider", "--list")
    assert status == 0
    assert [line for line in output.splitlines() if not line.startswith(" ")] == [case.name for case in CASES]
    assert all(case.summary for case in CASES)


async def test_the_kit_as_tests(cloud: Simulator, conf: Path, tmp_path: Path) -> None:
    options = ("--ccm-provider", "sim", "--ccm-cloud-config", conf, "--ccm-allow-writes")
    plugin = ("-p", "no:cacheprovider", "-rs", "-c", "/dev/null", "--rootdir", tmp_path)
    status, output = await run("pytest", "--pyargs", "ccm.conformance", *plugin, *options)
    assert status == 0, output
    assert re.search(r"\d+ passed, \d+ skipped", output)
    assert "needs a cloud that fails on request" in output
    assert not cloud.project().load_balancers.rows


async def test_the_kit_as_tests_without_a_provider(tmp_path: Path) -> None:
    plugin = ("-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tmp_path, "-x")
    status, output = await run("pytest", "--pyargs", "ccm.conformance", *plugin)
    assert status == 1
    assert "the provider is missing: set --ccm-provider NAME" in output


def test_secrets_are_found_in_all_usual_formats() -> None:
    text = """
    token: plain-yaml
    "api_key": "quoted-json",
    password = ini-style
      client_secret: 'single quoted is cut at the space'
    token_file: /etc/token
    name: harmless-value
    short_token: abc
    monkey: no-secret
    key = bare-key
    """
    assert secrets_in(text) == ("plain-yaml", "quoted-json", "ini-style", "single", "bare-key")

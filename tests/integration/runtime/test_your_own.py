# SPDX-License-Identifier: Apache-2.0
"""docs/providers/your-own.md: every command runs as written, and the page shows the real files.

The scenario molecule/own_provider takes the commands that need a cluster from the page, and runs them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from ccm import cloud
from ccm.engine.client import KubeClient
from tests.ports import free_port

from ..cluster import ApiServer, binaries

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "runtime/examples/ccm-provider-acme"
PAGE = (ROOT / "docs/providers/your-own.md").read_text()
#: Seconds for the commands. The page's hour is the time for writing a provider.
PATIENCE = 300


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.mark.timeout(PATIENCE + 60)
async def test_every_command_of_the_page_works(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    port = str(free_port())
    script = "set -euo pipefail\ntrap 'kill $(jobs -p)' EXIT\n" + "\n".join(blocks("sh")).replace("9450", port)
    tools = f"{ROOT / 'build/venv/bin'}:{binaries()}"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON", "PYTEST"))
    } | {"KUBECONFIG": str(apiserver.kubeconfig()), "PATH": f"{os.environ['PATH']}:{tools}"}
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        cwd=tmp_path,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output = (await process.communicate())[0].decode()
    except TimeoutError:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, output
    for shown in blocks("text"):
        assert shown in output, output
    assert list((tmp_path / "ccm-provider-acme/dist").glob("*.whl"))


@pytest.mark.parametrize(
    ("language", "files"),
    [("python", ["ccm_provider_acme/*.py", "test_acme.py"]), ("toml", ["pyproject.toml"])],
)
def test_what_is_shown_stands_in_the_example(language: str, files: list[str]) -> None:
    there = "\n".join(path.read_text() for pattern in files for path in sorted(EXAMPLE.glob(pattern)))
    assert blocks(language)
    for shown in blocks(language):
        assert shown in there, shown


def test_what_the_role_is_told_is_what_the_scenario_tells_it() -> None:
    told = (ROOT / "molecule/own_provider/inventory/group_vars/all.yml").read_text()
    (shown,) = blocks("yaml")
    assert shown in told


def test_the_commands_that_are_not_run_here_are_run_by_the_scenario() -> None:
    """The scenario takes all lines with certain beginnings: the first ones build the image, the others need a
    cluster."""
    scenario = yaml.safe_load((ROOT / "molecule/own_provider/inventory/scenario.yml").read_text())
    pattern = re.search(r"regex_findall\('(.*)'\)", scenario["all"]["vars"]["own_commands"])
    assert pattern is not None
    taken = re.findall(pattern[1], PAGE)
    here = [line for block in blocks("sh") for line in block.splitlines()]
    elsewhere = [line for block in blocks("console") for line in block.splitlines()]
    assert elsewhere and all(line.startswith("$ ") for line in elsewhere)
    assert [f"$ {command}" for command in taken if command not in here] == elsewhere
    assert [command.split()[0] for command in taken] == [
        "uv",
        "podman",
        "podman",
        "ansible-playbook",
        "ansible-playbook",
    ]


def test_every_error_of_the_contract_is_told() -> None:
    errors = {
        name
        for name in cloud.__all__
        if isinstance(kind := getattr(cloud, name), type) and issubclass(kind, cloud.CloudError)
    }
    section = PAGE.partition("\n## 3. ")[2].partition("\n## ")[0]
    assert errors - {"CloudError"} == set(re.findall(r"^\| `(\w+)` \|", section, re.M))

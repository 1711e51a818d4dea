# SPDX-License-Identifier: Apache-2.0
"""The contents of the wheels. The controller's has nothing of the simulated cloud, whose fault API needs no
credentials. The image contains only that wheel (tests/integration/test_production_image.py)."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.packaging.environments import BUILD, REPOSITORY

UV = BUILD / "venv" / "bin" / "uv"


def run(*command: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    variables = inherited | (environment or {})
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)


def wheel(source: Path, folder: Path) -> Path:
    done = run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, source)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(REPOSITORY / "runtime", tmp_path_factory.mktemp("controller"))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(REPOSITORY / "runtime/simcloud", tmp_path_factory.mktemp("simulator"))


def test_the_controller_is_all_that_its_wheel_contains(controller: Path) -> None:
    with zipfile.ZipFile(controller) as made:
        names = made.namelist()
        texts = {name: made.read(name) for name in names}
    assert {name.split("/")[0] for name in names} == {"ccm", "outoftree_ccm-0.1.0.dist-info"}
    assert "ccm/providers/sim/__init__.py" in names  # a client of the simulated cloud, no part of it
    assert not [name for name in names if "simcloud" in name]
    assert not [name for name, text in texts.items() if b"/admin/" in text]


def test_the_simulator_is_all_that_its_wheel_contains(simulator: Path) -> None:
    with zipfile.ZipFile(simulator) as made:
        names = made.namelist()
    assert {name.split("/")[0] for name in names} == {"ccm_simcloud", "outoftree_ccm_simcloud-0.1.0.dist-info"}


def test_the_suite_is_all_that_its_wheel_contains_and_needs_no_controller(tmp_path: Path) -> None:
    made = wheel(REPOSITORY / "suite", tmp_path)
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {"ccm_suite", "ccm_suite-0.1.0.dist-info"}
    assert run(UV, "venv", "--quiet", tmp_path / "venv").returncode == 0
    installed = run(UV, "pip", "install", "--quiet", made, environment={"VIRTUAL_ENV": str(tmp_path / "venv")})
    assert installed.returncode == 0, installed.stderr
    shown = run(tmp_path / "venv/bin/ccm-suite", "list", "--only=node.taint")
    assert shown.stdout.startswith("node.taint "), shown.stderr


def test_the_command_runs_the_simulator_where_it_is_installed(
    controller: Path, simulator: Path, tmp_path: Path
) -> None:
    assert run(UV, "venv", "--quiet", tmp_path / "venv").returncode == 0
    python = {"VIRTUAL_ENV": str(tmp_path / "venv")}
    ccm = tmp_path / "venv/bin/ccm"
    assert run(UV, "pip", "install", "--quiet", controller, environment=python).returncode == 0
    without = run(ccm, "sim", "--help")
    assert (without.returncode, without.stdout) == (1, "")
    assert "ccm sim: the simulated cloud is not installed." in without.stderr
    assert "outoftree-ccm-simcloud" in without.stderr and "Traceback" not in without.stderr
    assert re.search(r"ccm sim .*if it is installed", run(ccm, "--help").stdout)
    assert run(UV, "pip", "install", "--quiet", simulator, environment=python).returncode == 0
    assert "Run a simulated cloud" in run(ccm, "sim", "--help").stdout


def test_the_simulator_needs_no_controller(simulator: Path, tmp_path: Path) -> None:
    assert run(UV, "venv", "--quiet", tmp_path / "venv").returncode == 0
    installed = run(UV, "pip", "install", "--quiet", simulator, environment={"VIRTUAL_ENV": str(tmp_path / "venv")})
    assert installed.returncode == 0, installed.stderr
    shown = run(tmp_path / "venv/bin/python", "-m", "ccm_simcloud", "--help")
    assert "Run a simulated cloud" in shown.stdout, shown.stderr

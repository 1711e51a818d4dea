# SPDX-License-Identifier: Apache-2.0
"""Runs the README's two commands that install from git, each with a checkout and with a bare repository."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tools.packaging import artifact
from tools.packaging.environments import REPOSITORY, variables

from .conftest import User

pytestmark = pytest.mark.timeout(600)
PLACE = "git+https://github.com/outoftree/ccm"
LINES = [f"`ansible-galaxy collection install {PLACE}`", f"`pip install '{PLACE}#subdirectory=runtime'`"]
each_kind = pytest.mark.parametrize("kind", [[], ["--bare"]], ids=["checkout", "bare"])


@pytest.mark.parametrize("line", LINES)
def test_the_readme_shows_the_line(line: str):
    assert line in (REPOSITORY / "README.md").read_text()


@each_kind
def test_one_line_installs_what_the_tarball_has(user: User, tmp_path: Path, kind: list[str]):
    """Dependencies usually come from Galaxy. Tests do not call Galaxy, so the required collection is a local file."""
    source = tmp_path / "ccm"
    subprocess.run(["git", "clone", "--quiet", *kind, str(REPOSITORY), str(source)], check=True)
    needed = artifact.repacked("kubernetes.core", tmp_path)
    arguments = ["collection", "install", "--offline", str(needed), f"git+file://{source}"]
    done = subprocess.run(
        [user.environment / "bin" / "ansible-galaxy", *arguments],
        env=variables(user.environment) | {"HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    root = tmp_path / ".ansible/collections/ansible_collections/outoftree/ccm"
    installed = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    committed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    parts = ("extensions/", "meta/", "playbooks/", "plugins/", "roles/")
    assert {path for path in committed.stdout.split() if path.startswith(parts)} <= installed
    assert {Path(path).parts[0] for path in installed}.isdisjoint({"tests", "runtime", "docs", "molecule", ".git"})
    assert json.loads((root / "MANIFEST.json").read_text())["collection_info"]["name"] == "ccm"


@each_kind
def test_one_line_installs_the_runtime(tmp_path: Path, kind: list[str]):
    """pip installs only the runtime. Its dependencies come from build/venv, because pip would download the newest."""
    source, folder = tmp_path / "ccm", tmp_path / "environment"
    subprocess.run(["git", "clone", "--quiet", *kind, str(REPOSITORY), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    words = ["pip", "install", "--quiet", "--no-deps", f"git+file://{source}#subdirectory=runtime"]
    done = subprocess.run(
        [folder / "bin/python", "-m", *words], env=variables(folder), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (site / "ccm" / "cli.py").is_file() and not (site / "ccm_simcloud").exists()
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    version = subprocess.run(
        [folder / "bin/ccm", "--version"], env=variables(folder), cwd=tmp_path, capture_output=True, text=True
    )
    assert version.returncode == 0 and "0.1.0" in version.stdout, version.stdout + version.stderr

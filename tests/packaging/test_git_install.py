# SPDX-License-Identifier: Apache-2.0
"""The README's one line, `ansible-galaxy collection install git+...`, from a checkout and from a bare repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tools.packaging import artifact
from tools.packaging.environments import REPOSITORY, variables

from .conftest import User

pytestmark = pytest.mark.timeout(600)
LINE = "`ansible-galaxy collection install git+https://github.com/outoftree/ccm`"


def test_the_readme_shows_the_line():
    assert LINE in (REPOSITORY / "README.md").read_text()


@pytest.mark.parametrize("kind", [[], ["--bare"]], ids=["checkout", "bare"])
def test_one_line_installs_what_the_tarball_has(user: User, tmp_path: Path, kind: list[str]):
    """Dependencies come from Galaxy, which no test asks: the one that is needed lies beside it."""
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

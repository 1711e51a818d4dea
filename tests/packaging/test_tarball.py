# SPDX-License-Identifier: Apache-2.0
"""The published tarball contains what users need, and nothing else."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from tools.packaging import artifact
from tools.packaging.environments import REPOSITORY

from .conftest import User

pytestmark = pytest.mark.timeout(600)
TOP = {"COPYING", "LICENSE", "README.md", "MANIFEST.json", "FILES.json", "changelogs", "meta", "playbooks", "plugins"}
TOP |= {"SECURITY.md", "extensions", "requirements.yml", "roles"}
SUFFIXES = {"", ".j2", ".json", ".md", ".py", ".txt", ".yaml", ".yml"}


@pytest.fixture(scope="module")
def files(user: User) -> set[str]:
    (made,) = user.home.glob("outoftree-ccm-*.tar.gz")
    with tarfile.open(made) as tar:
        return {member.name for member in tar if member.isfile()}


def test_it_has_every_part_that_works_for_users(files: set[str]):
    assert set(artifact.tracked("extensions", "meta", "playbooks", "plugins", "roles")) <= files


def test_it_has_nothing_else(files: set[str]):
    # `make release-prepare` renders CHANGELOG.md, so it may be missing.
    assert {Path(name).parts[0] for name in files} - {"CHANGELOG.md"} == TOP
    assert {name for name in files if name.startswith("changelogs/")} == {
        "changelogs/changelog.yaml",
        "changelogs/config.yaml",
    }
    # Galaxy's own files and CHANGELOG.md are not in git. Any other file must be, so no stray file is published.
    assert files - {"MANIFEST.json", "FILES.json", "CHANGELOG.md"} <= set(artifact.tracked("."))
    odd = {name for name in files if Path(name).suffix not in SUFFIXES}
    assert not odd, "add them to build_ignore, or their kind to SUFFIXES"


def test_what_it_depends_on_is_said_once_in_each_place_that_is_asked(user: User):
    manifest = json.loads((user.collections / "outoftree" / "ccm" / "MANIFEST.json").read_text())["collection_info"]
    required = yaml.safe_load((REPOSITORY / "requirements.yml").read_text())["collections"]
    assert manifest["dependencies"] == {item["name"]: item["version"] for item in required}
    assert "kubernetes>=29.0.0" in (REPOSITORY / "meta" / "ee-requirements.txt").read_text()


def test_an_installed_collection_is_listed(user: User):
    listed = user.run("ansible-galaxy", "collection", "list", "--format", "json")
    found = {name for path in json.loads(listed.stdout).values() for name in path}
    # The list includes the collections of ansible-core.
    assert {name for name in found if not name.startswith("ansible.")} == {"outoftree.ccm", "kubernetes.core"}

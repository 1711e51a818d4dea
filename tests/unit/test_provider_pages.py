# SPDX-License-Identifier: Apache-2.0
"""docs/providers tells of every provider that is there, with a page that says how it was proven."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/providers"


def names() -> list[str]:
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    return sorted(project["entry-points"]["ccm.providers"])


def test_every_provider_is_in_the_table_and_has_a_page_with_its_evidence() -> None:
    index = (FOLDER / "index.md").read_text()
    assert sorted(re.findall(r"^\| \[`(\w+)`\]\(\1\.md\)", index, re.M)) == names()
    for name in names():
        assert "**Evidence: " in (FOLDER / f"{name}.md").read_text(), name


def test_the_role_knows_the_providerids_of_every_provider() -> None:
    """Without that it would take any providerID for the provider's own."""
    variables = yaml.safe_load((ROOT / "roles/ccm_install/vars/main.yml").read_text())
    assert set(names()) <= set(variables["__ccm_install_prefixes"])


def test_links_between_files_lead_somewhere() -> None:
    for page in FOLDER.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (FOLDER / link).exists(), f"{page.name}: {link}"

# SPDX-License-Identifier: Apache-2.0
"""The changelog of the first release, rendered from the fragments as `make release-prepare` will."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tools.packaging import fragments
from tools.packaging.environments import REPOSITORY

pytestmark = pytest.mark.timeout(600)

CONFIG = yaml.safe_load((REPOSITORY / "changelogs/config.yaml").read_text())


def test_the_first_release_has_every_entry_and_plugin_in_the_order_of_the_sections(tmp_path: Path):
    before = {path: path.read_bytes() for path in (REPOSITORY / "changelogs").rglob("*") if path.is_file()}
    text = fragments.check("1.0.0", fragments.copied(tmp_path, "1.0.0"))
    assert {path: path.read_bytes() for path in before} == before and not (REPOSITORY / "CHANGELOG.md").exists()
    assert list((tmp_path / "changelogs/fragments").glob("*.yml")) == [], "the fragments go into the release"
    assert yaml.safe_load((tmp_path / "changelogs/changelog.yaml").read_text())["releases"].keys() == {"1.0.0"}
    assert re.findall(r"^## (\S+)", text, re.M) == ["v1\\.0\\.0"]
    titles = re.findall(r"^### (.+)$", text, re.M)
    order = ["Release Summary", *(title for _, title in CONFIG["sections"])]
    assert [title for title in titles if title in order] == [title for title in order if title in titles]
    assert {"Release Summary", "Major Changes", "New Modules"} <= set(titles)
    assert "SPDX" not in text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {"release_summary": "It has ``sim``.", "bugfixes": ["role_x - a *bug* is fixed.", "M(a.b.c) is fixed."]}
    (tmp_path / "0001-x.yml").write_text(yaml.safe_dump(texts))
    return tmp_path


def test_what_is_missing_or_unreadable_is_named(folder: Path):
    whole = "It has `sim`\\.\n\n* role\\_x \\- a *bug* is fixed\\.\n* M\\(a\\.b\\.c\\) is fixed\\.\n"
    whole += "* ccm\\_image \\- Imports it\\.\n"
    (markup,) = fragments.problems(whole, folder, {"ccm_image"}, {"sim"})
    assert markup == "0001-x.yml: readers see M(a.b.c) as it stands there: write ``name``"
    without = whole.replace("* role\\_x \\- a *bug* is fixed\\.\n", "")
    found = list(fragments.problems(without, folder, {"ccm_image", "ccm_new"}, {"sim", "aws"}))
    assert found[:2] == [
        "0001-x.yml: an entry of bugfixes is missing: role_x - a *bug* is fixed.",
        markup,
    ]
    assert found[2:] == ["0001-x.yml: the summary does not name aws", "the new plugin ccm_new is missing"]

# SPDX-License-Identifier: Apache-2.0
"""The site has a folder for each version, and publishing a version keeps the others."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEMPLATE = re.sub(
    r"\{#-.*?-#\}", "", (ROOT / "docs/docsite/templates/sidebar/versions.html").read_text(), flags=re.DOTALL
)


@pytest.fixture
def site_versions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "docs"))
    return importlib.import_module("site_versions")


def build(site: Path, version: str, *pages: str) -> None:
    """Write what Sphinx builds for one version."""
    for name in ("index.html", *pages):
        page = site / version / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"<html><body>{version} {name}{TEMPLATE}</body></html>")


class Links(HTMLParser):
    """The entries of a page's list of versions: address, text, and whether the page belongs to that version."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.entries: list[tuple[str, str, bool]] = []
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tag, self.attributes = tag, dict(attrs)

    def handle_data(self, data: str) -> None:
        if self.tag == "a" and data.strip():
            self.entries.append((self.attributes["href"] or "", data, "aria-current" in self.attributes))

    def handle_endtag(self, tag: str) -> None:
        self.tag = ""


def targets(page: Path) -> dict[str, Path]:
    return {text: (page.parent / address).resolve() for address, text, _ in Links(page).entries}


def test_each_page_leads_to_the_same_page_of_each_version_or_to_its_first(site_versions: ModuleType, tmp_path: Path):
    build(tmp_path, "1.9.0", "how-to/old.html", "how-to/migrate.html")
    build(tmp_path, "1.10.0", "how-to/migrate.html")
    build(tmp_path, "devel", "how-to/migrate.html", "how-to/new.html")
    site_versions.publish(tmp_path)
    names = ["latest (1.10.0)", "devel", "1.10.0", "1.9.0"]
    for folder in ("devel", "latest", "1.10.0", "1.9.0"):
        for page in (tmp_path / folder).rglob("*.html"):
            assert [text for _, text, _ in Links(page).entries] == names
            assert all(target.is_file() for target in targets(page).values())
            (here,) = [address for address, _, current in Links(page).entries if current]
            assert (page.parent / here).resolve() == page
    assert targets(tmp_path / "devel/how-to/migrate.html")["1.9.0"] == tmp_path / "1.9.0/how-to/migrate.html"
    assert targets(tmp_path / "devel/how-to/new.html")["1.9.0"] == tmp_path / "1.9.0/index.html"
    assert targets(tmp_path / "1.9.0/how-to/old.html")["devel"] == tmp_path / "devel/index.html"


def test_a_release_appears_in_the_pages_of_earlier_ones_and_becomes_the_latest(
    site_versions: ModuleType, tmp_path: Path
):
    build(tmp_path, "devel")
    site_versions.publish(tmp_path)
    assert "url=devel/index.html" in (tmp_path / "index.html").read_text()
    build(tmp_path, "1.0.0", "gone.html")
    site_versions.publish(tmp_path)
    build(tmp_path, "1.1.0")
    site_versions.publish(tmp_path)
    assert "1.1.0" in targets(tmp_path / "1.0.0/index.html")
    assert (tmp_path / "latest/index.html").read_text().startswith("<html><body>1.1.0 ")
    assert not (tmp_path / "latest/gone.html").exists()
    assert "url=latest/index.html" in (tmp_path / "index.html").read_text()
    assert json.loads((tmp_path / "versions.json").read_text()) == [
        {"name": "latest (1.1.0)", "folder": "latest"},
        {"name": "devel", "folder": "devel"},
        {"name": "1.1.0", "folder": "1.1.0"},
        {"name": "1.0.0", "folder": "1.0.0"},
    ]


def test_publishing_again_changes_nothing(site_versions: ModuleType, tmp_path: Path):
    build(tmp_path, "devel")
    build(tmp_path, "1.0.0")

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    site_versions.publish(tmp_path)
    first = content()
    site_versions.publish(tmp_path)
    assert content() == first


def test_the_first_page_needs_no_script(site_versions: ModuleType, tmp_path: Path):
    build(tmp_path, "devel")
    site_versions.publish(tmp_path)
    pages = (tmp_path / "index.html").read_text() + (tmp_path / "devel/index.html").read_text()
    assert "<script" not in pages and not re.search(r"https?://", pages)


MAKE = """#!/bin/sh
# In place of `make docs-site`: one page of the version instead of all.
exec {python} -c '
import os, pathlib, sys
sys.path[:0] = ["{root}", "{root}/tools/docs"]
import site_versions
from tests.unit import test_site_versions as tests
site = pathlib.Path("build/site")
tests.build(site, os.environ["VERSION"] or "devel", *sys.argv[2:])
site_versions.publish(site)
' "$@"
"""


def workflow_steps() -> list[dict[str, str]]:
    steps = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())["jobs"]["build"]["steps"]
    return [step for step in steps if "run" in step]


def test_the_workflow_keeps_the_versions_that_were_published_before(tmp_path: Path):
    """Run the workflow's own steps, each in a fresh clone, as on a runner."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "make").write_text(MAKE.format(python=sys.executable, root=ROOT))
    (programs / "make").chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        **{f"GIT_{who}_{what}": "a@b.example" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def git(*arguments: str, cwd: Path = tmp_path) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=cwd, env=environment, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q", "--bare", "-b", "main", "origin")
    git("clone", "-q", "origin", "first")
    (tmp_path / "first/.gitignore").write_text("/build\n")
    git("add", ".gitignore", cwd=tmp_path / "first")
    git("commit", "-qm", "Begin", cwd=tmp_path / "first")
    git("push", "-q", "origin", "HEAD:main", cwd=tmp_path / "first")
    for number, version in enumerate(["", "1.0.0", "1.1.0", ""]):
        clone = tmp_path / f"run{number}"
        git("clone", "-q", "--depth=1", f"file://{tmp_path}/origin", str(clone))
        for step in workflow_steps():
            given = {key: value for key, value in step.get("env", {}).items() if "${{" not in value}
            subprocess.run(
                ["bash", "-e", "-c", step["run"]], cwd=clone, env=environment | given | {"VERSION": version}, check=True
            )
    published = set(git("ls-tree", "-r", "--name-only", "site", cwd=tmp_path / "origin").split())
    assert published == {
        "index.html", "versions.json", "devel/index.html", "latest/index.html", "1.0.0/index.html", "1.1.0/index.html",
    }  # fmt: skip
    assert "1.1.0 index.html" in git("show", "site:latest/index.html", cwd=tmp_path / "origin")
    assert git("rev-list", "--count", "site", cwd=tmp_path / "origin").strip() == "1"
    assert git("status", "--porcelain", cwd=clone) == ""


def test_a_version_has_every_picture_that_its_pages_show(
    site_versions: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The module has the name of one of Python's own.
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools/docs/site.py")
    assert spec is not None and spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    monkeypatch.setattr(site, "SOURCE", tmp_path / "source")
    site.write_sources("main")
    pictures = {
        (page, address)
        for page in (tmp_path / "source").rglob("*.md")
        for address in re.findall(r"!\[[^\]]*\]\(([^)\s]+)", page.read_text())
    }
    assert {Path(address).suffix for _, address in pictures} == {".svg", ".png"}
    assert not {(page.name, address) for page, address in pictures if not (page.parent / address).is_file()}

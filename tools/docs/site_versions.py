# SPDX-License-Identifier: Apache-2.0
"""The site's versions in one folder: devel/, one for each release such as 1.0.0/, and latest/, a copy of the newest.

Each page of each version has a list of all versions in its sidebar. The list is part of the page, so it needs no
script. A later release also appears in the pages of the earlier ones. versions.json has the same list for programs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

DEVEL = "devel"
LATEST = "latest"
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_LIST = re.compile(r"<!-- versions -->.*?<!-- /versions -->", re.DOTALL)
_FRONT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={folder}/index.html">
<title>outoftree.ccm documentation</title>
</head>
<body><p><a href="{folder}/index.html">outoftree.ccm documentation</a></p></body>
</html>
"""


@dataclass(frozen=True)
class Version:
    """A version of the site: its title for readers, and its folder."""

    name: str
    folder: str


def releases(site: Path) -> list[str]:
    """Return the releases in the site's folder, the newest first."""
    folders = [path.name for path in site.iterdir() if RELEASE.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def versions(site: Path) -> list[Version]:
    """Return all versions in the order of the pages' list."""
    found = releases(site)
    newest = [Version(f"latest ({found[0]})", LATEST)] if found else []
    devel = [Version(DEVEL, DEVEL)] if (site / DEVEL).is_dir() else []
    return [*newest, *devel, *(Version(name, name) for name in found)]


def publish(site: Path) -> list[Version]:
    """Combine the versions in a folder into one site, and return the versions."""
    if found := releases(site):
        shutil.rmtree(site / LATEST, ignore_errors=True)
        shutil.copytree(site / found[0], site / LATEST)
    listed = versions(site)
    for version in listed:
        for page in (site / version.folder).rglob("*.html"):
            text = page.read_text()
            page.write_text(_LIST.sub(lambda _, page=page, version=version: choice(site, page, version, listed), text))
    (site / "versions.json").write_text(json.dumps([asdict(version) for version in listed], indent=2) + "\n")
    (site / "index.html").write_text(_FRONT.format(folder=listed[0].folder))
    return listed


def choice(site: Path, page: Path, here: Version, listed: list[Version]) -> str:
    """Return the list for a page. Each entry leads to the same page of another version, or to that version's first page
    if it does not have the page."""
    inside = page.relative_to(site / here.folder)
    up = "../" * len(inside.parts)

    def entries() -> Iterator[str]:
        for version in listed:
            there = inside if (site / version.folder / inside).exists() else Path("index.html")
            current = ' aria-current="true"' if version == here else ""
            yield f'<li><a href="{up}{version.folder}/{there.as_posix()}"{current}>{version.name}</a></li>'

    return (
        f"<!-- versions --><details><summary>Version: {here.name}</summary><ul>{''.join(entries())}</ul></details>"
        "<!-- /versions -->"
    )

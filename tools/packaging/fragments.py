# SPDX-License-Identifier: Apache-2.0
"""Renders the changelog of the next release: python -m tools.packaging.fragments [--version VERSION]

Prints CHANGELOG.md, rendered from the fragments, and fails if something is missing or wrong in it. The checkout stays
as it is.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

from . import artifact, versions
from .environments import BUILD, REPOSITORY

#: The paths that antsibull-changelog needs: the fragments, and the plugins and roles among which it finds new ones.
PLACES = ("COPYING", "README.md", "changelogs", "galaxy.yml", "meta", "playbooks", "plugins", "roles")
SUMMARY = "release_summary"
#: The tags that replace reStructuredText's markup in the Markdown.
_TAG = re.compile(r"</?(?:code|em|strong)>")
#: Markup of Ansible's documentation. A fragment is reStructuredText, where this markup would show as plain text.
_MARKUP = re.compile(r"\b[BCIMOPLUVE]\([^)]*\)")


class BadChangelog(Exception):
    """The changelog could not be rendered, or something is missing in it. The message says what."""


def rendered(version: str, root: Path) -> str:
    """Render the release in ROOT, a copy of a checkout, and return its CHANGELOG.md. Raises BadChangelog."""
    _run(root, "lint")
    if version not in versions.released(root):
        _run(root, "release", "--version", version)
    _run(root, "lint-changelog-yaml", "changelogs/changelog.yaml")
    return (root / "CHANGELOG.md").read_text()


def _run(root: Path, *arguments: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "VIRTUAL_ENV"))}
    path = f"{BUILD / 'venv' / 'bin'}:{os.environ['PATH']}"
    command = (BUILD / "venv" / "bin" / "antsibull-changelog", *arguments)
    done = subprocess.run(command, cwd=root, env=kept | {"PATH": path}, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise BadChangelog(f"{done.stdout}{done.stderr}\nantsibull-changelog {' '.join(arguments)} failed")


def entries(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield file, section and text of each entry of the fragments."""
    for path in sorted(folder.glob("*.yml")):
        for section, texts in yaml.safe_load(path.read_text()).items():
            for text in [texts] if isinstance(texts, str) else texts:
                yield path.name, section, text


def words(text: str) -> str:
    """Return only a text's letters and digits, because fragments and Markdown differ in blanks, marks and escapes."""
    return re.sub(r"[^A-Za-z0-9]+", "", text)


def problems(text: str, folder: Path, plugins: set[str], providers: set[str]) -> Iterator[str]:
    """Yield what is wrong with a rendered changelog. `folder`: the folder of its fragments. `plugins`: names that it
    must list as new. `providers`: names that its summary must contain."""
    plain = words(html.unescape(_TAG.sub("", text)))
    for file, section, entry in entries(folder):
        if words(entry) not in plain:
            yield f"{file}: an entry of {section} is missing: {entry[:60]}"
        for markup in _MARKUP.findall(entry):
            yield f"{file}: readers see {markup} as it stands there: write ``name``"
        if section == SUMMARY:
            unnamed = sorted(name for name in providers if f"``{name}``" not in entry)
            yield from (f"{file}: the summary does not name {name}" for name in unnamed)
    listed = set(re.findall(r"^\* (?:outoftree\\?\.ccm\\?\.)?([\w\\]+) \\?- ", text, re.M))
    for name in sorted(plugins - {each.replace("\\", "") for each in listed}):
        yield f"the new plugin {name} is missing"


def new_plugins(root: Path) -> set[str]:
    """Return the names of the collection's modules, filters and callbacks."""
    return {path.stem for kind in ("modules", "filter", "callback") for path in (root / "plugins" / kind).glob("*.py")}


def providers(root: Path = REPOSITORY) -> set[str]:
    """Return the names of the built-in providers."""
    project = tomllib.loads((root / "runtime" / "pyproject.toml").read_text())["project"]
    return set(project["entry-points"]["ccm.providers"])


def copied(folder: Path, version: str) -> Path:
    """Copy the sources of the changelog to FOLDER, which is empty; set the release's version there. Return FOLDER."""
    for path in artifact.tracked(*PLACES, *versions.DECLARED):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, target)
    versions.put(version, folder, artifact.tracked(*PLACES, *versions.DECLARED))
    return folder


def check(version: str, root: Path) -> str:
    """Return the rendered changelog of a copy of the checkout. Raises BadChangelog if something is missing or wrong in
    it."""
    first = not versions.released(root)
    fragments = root / "fragments-before"
    shutil.copytree(root / "changelogs" / "fragments", fragments)
    text = rendered(version, root)
    found = list(problems(text, fragments, new_plugins(root) if first else set(), providers() if first else set()))
    shutil.rmtree(fragments)
    if f'<a id="v{version.replace(".", "-")}"></a>' not in text:
        found.insert(0, f"CHANGELOG.md has no chapter v{version}")
    if found:
        raise BadChangelog("\n".join(found))
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="1.0.0", help="the release (default: %(default)s)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            print(check(asked.version, copied(Path(scratch), asked.version)), end="")
        except (BadChangelog, versions.Disagreement, ValueError) as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

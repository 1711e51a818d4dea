# SPDX-License-Identifier: Apache-2.0
"""The project's one version: python -m tools.packaging.versions [--set VERSION]

Prints the version, or sets it in every file that names it. Collection, runtime, simulator, suite and image share it.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import yaml

from . import artifact
from .environments import REPOSITORY

#: Where the version is declared, and the text around it.
DECLARED = {
    "galaxy.yml": "version: {}\n",
    "runtime/pyproject.toml": 'version = "{}"\n',
    "runtime/ccm/__init__.py": '__version__ = "{}"\n',
    "runtime/simcloud/pyproject.toml": 'version = "{}"\n',
    "suite/pyproject.toml": 'version = "{}"\n',
}
#: Where the version is used: image tags and file names. Example providers (ccm-acme) have versions of their own.
_USED = r"(outoftree[-_]ccm(?:[-_]simcloud)?[-:]){}\b"
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SUFFIXES = {"", ".md", ".py", ".toml", ".yml", ".yaml"}


class Disagreement(Exception):
    """A file does not declare the version that galaxy.yml has."""


def released(root: Path = REPOSITORY) -> set[str]:
    """Return the versions that the changelog has."""
    return set(yaml.safe_load((root / "changelogs" / "changelog.yaml").read_text())["releases"])


def current(root: Path = REPOSITORY) -> str:
    """Return the version. Raises Disagreement if a file declares another one."""
    version = str(yaml.safe_load((root / "galaxy.yml").read_text())["version"])
    for path, form in DECLARED.items():
        if form.format(version) not in (root / path).read_text():
            raise Disagreement(f"{path} does not declare the version {version} of galaxy.yml")
    return version


def put(version: str, root: Path, paths: list[str]) -> list[str]:
    """Set the version in the files PATHS below ROOT; return those that changed. Raises Disagreement, ValueError."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"{version!r} is not a version such as 1.0.0")
    before = current(root)
    used = re.compile(_USED.format(re.escape(before)))
    changed = []
    for path in paths:
        file = root / path
        if file.suffix not in _SUFFIXES or path.startswith("changelogs/"):
            continue
        text = old = file.read_text()
        if path in DECLARED:
            text = text.replace(DECLARED[path].format(before), DECLARED[path].format(version), 1)
        text = used.sub(rf"\g<1>{version}", text)
        if path.startswith("plugins/") and before not in released(root):
            text = text.replace(f"version_added: {before}\n", f"version_added: {version}\n")
        if text != old:
            file.write_text(text)
            changed.append(path)
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", metavar="VERSION", help="set it everywhere and print the files that changed")
    asked = parser.parse_args()
    try:
        print(*(put(asked.set, REPOSITORY, artifact.tracked()) if asked.set else [current()]), sep="\n")
    except (Disagreement, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

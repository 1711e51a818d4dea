# SPDX-License-Identifier: Apache-2.0
"""`make release-tag`: makes the signed tag of a release that `make release-prepare` prepared and that is committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import versions
from .environments import REPOSITORY


def git(*arguments: str, cwd: Path) -> str:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout.strip()


def refusals(root: Path) -> list[str]:
    """Return why there can be no tag yet; [] if there can be one."""
    try:
        version = versions.current(root)
    except versions.Disagreement as problem:
        return [f"{problem}: run `make release-prepare`"]
    reasons = []
    if changed := git("status", "--porcelain", cwd=root):
        reasons.append(f"the checkout has changes: commit or remove them\n{changed}")
    if fragments := sorted(path.name for path in (root / "changelogs" / "fragments").glob("*.yml")):
        reasons.append(f"changelogs/fragments still has {', '.join(fragments)}: run `make release-prepare`")
    if version not in versions.released(root):
        reasons.append(f"changelogs/changelog.yaml has no release {version}: run `make release-prepare`")
    if git("tag", "--list", version, cwd=root):
        reasons.append(f"the tag {version} exists: a version is released once, choose the next one")
    return reasons


def main(root: Path = REPOSITORY) -> int:
    if reasons := refusals(root):
        print(*reasons, sep="\n", file=sys.stderr)
        return 1
    version = versions.current(root)
    subprocess.run(["git", "tag", "--sign", "--message", f"Release {version}", version], cwd=root, check=True)
    print(f"Tagged. Publish it with: git push origin {version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

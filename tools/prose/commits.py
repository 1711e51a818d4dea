# SPDX-License-Identifier: Apache-2.0
"""Checks that commits have a subject of at most 72 characters, and a body: python tools/prose/commits.py [FILE]

With a FILE, it checks that message (Git's hook commit-msg passes it); otherwise every commit since `FIRST`. A clone
without `FIRST`, such as a shallow one, starts from the last tag, or from origin/main if there is no tag.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MOST = 72
#: The last commit that is not checked. No rule required a body before November 2026, and four commits up to this one
#: have none because they only break lines.
FIRST = "8590300b795514f2869c2464fa9d34b69edfea93"
#: What `git commit --fixup` and `--squash` write; a rebase removes such a commit before it lands.
TEMPORARY = ("fixup! ", "squash! ", "amend! ")


class Commit(NamedTuple):
    name: str
    subject: str
    body: str

    @classmethod
    def of(cls, name: str, message: str) -> Commit:
        subject, _, body = message.strip().partition("\n")
        return cls(name, subject, body.strip())


def git(*arguments: str, cwd: Path = ROOT) -> str:
    """Run git and return what it prints; "" if it fails."""
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True).stdout.strip()


def base(first: str, cwd: Path) -> str:
    """Return the commit after which commits are checked; "" if there is none."""
    return (
        git("merge-base", first, "HEAD", cwd=cwd)
        or git("describe", "--tags", "--abbrev=0", cwd=cwd)
        or git("rev-parse", "--verify", "-q", "origin/main", cwd=cwd)
    )


def since(first: str = FIRST, cwd: Path = ROOT) -> list[Commit]:
    """Return the commits to check, the newest first."""
    start = base(first, cwd)
    text = git("log", "--no-merges", "--format=%h%n%B%x00", f"{start}..HEAD", cwd=cwd) if start else ""
    parts = (each.strip().partition("\n") for each in text.split("\0") if each.strip())
    return [Commit.of(name, message) for name, _, message in parts]


def of_file(path: Path) -> Commit:
    lines = path.read_text().partition("# ------------------------ >8")[0].splitlines()
    return Commit.of("message", "\n".join(line for line in lines if not line.startswith("#")))


def problems(commits: list[Commit]) -> list[str]:
    found = []
    for name, subject, body in commits:
        if len(subject) > MOST:
            found.append(f"{name}: the subject has {len(subject)} characters, at most {MOST} are allowed: {subject}")
        if not body and not subject.startswith(TEMPORARY):
            found.append(f"{name}: no body: write why, below an empty line: {subject}")
    return found


def main() -> int:
    found = problems([of_file(Path(sys.argv[1]))] if len(sys.argv) > 1 else since())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Subjects of commits have at most 72 characters: python tests/prose/subjects.py [FILE]

With a FILE, that message (Git's hook commit-msg gives it); else every commit since the last tag, or since origin/main
where there is no tag.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 72


def git(*arguments: str, cwd: Path = ROOT) -> str:
    """What git answers, "" when it refuses."""
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True).stdout.strip()


def since(cwd: Path = ROOT) -> list[str]:
    """`hash subject` of each commit to check."""
    base = git("describe", "--tags", "--abbrev=0", cwd=cwd) or git(
        "rev-parse", "--verify", "-q", "origin/main", cwd=cwd
    )
    return git("log", "--no-merges", "--format=%h %s", f"{base}..HEAD", cwd=cwd).splitlines() if base else []


def problems(subjects: list[str]) -> list[str]:
    found = []
    for line in subjects:
        commit, _, subject = line.partition(" ")
        if len(subject) > MOST:
            found.append(f"{commit}: the subject has {len(subject)} characters, at most {MOST} are allowed: {subject}")
    return found


def main() -> int:
    if len(sys.argv) > 1:
        lines = [line for line in Path(sys.argv[1]).read_text().splitlines() if not line.startswith("#")]
        subjects = [f"message {next((line for line in lines if line.strip()), '')}"]
    else:
        subjects = since()
    found = problems(subjects)
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

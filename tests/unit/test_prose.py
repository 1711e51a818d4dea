# SPDX-License-Identifier: Apache-2.0
"""The linter of the project's words, and the linter of commits (`make lint` runs both)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.prose import check, commits
from tools.prose.commits import Commit

ROOT = Path(__file__).parents[2]
FENCE = "```"


def found(path: str, text: str) -> list[str]:
    return list(check.problems(path, text))


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.md", "one\nread it anew\n", ['a.md:2: "anew": write "again"']),
        ("a.md", f"{FENCE}console\nanew\n{FENCE}\n`anew` and [x](anew.md)\n", []),
        ("a.md", f"{FENCE}\nanew\n{FENCE}\nTell\n", ['a.md:4: "Tell": write "report"']),
        ("a.py", "x = 1  # it is lacking one\n", ['a.py:1: "lacking": write "missing"']),  # prose: keep
        ("a.py", '"""One.\n\nIt was mended.\n"""\n', ['a.py:3: "mended": write "fix"']),  # prose: keep
        ("a.py", 'raise E(f"{x} is lacking {y}")\n', ['a.py:1: "lacking": write "missing"']),  # prose: keep
        ("a.py", 'raise E(f"no {told} here")\nx = {"tell": wish}\n', []),
        ("a.py", "x = 1  # it says anew  prose: keep\n", []),
        ("a.yml", "a:\n  msg: >-\n    one\n    anew two\n  anew: anew anew\n", ['a.yml:4: "anew": write "again"']),
        ("a.yml", "# read anew\na: 1\n", ['a.yml:1: "anew": write "again"']),
        ("a.yml", "a:\n  notes:\n    - one two\n    - O(anew) is\n    - is anew\n", ['a.yml:5: "anew": write "again"']),
        ("a.yml", '- name: "{{ anew }} is"\n', []),
        ("changelogs/1.yml", "bugfixes:\n  - was anew\n", ['changelogs/1.yml:2: "anew": write "again"']),
        ("a.yml", "x: [\n# anew\n", ['a.yml:2: "anew": write "again"']),
        ("a.json", "anew", []),
    ],
)  # fmt: skip
def test_it_reads_what_people_read(path: str, text: str, expected: list[str]):
    assert found(path, text) == expected


@pytest.mark.parametrize(
    ("text", "write"),
    [
        ("It makes a Node.", "create"),
        ("It runs `make a`, and makes the list.", None),
        ("The process ends.", "start, run or stop"),
        ("The end of the process.", None),
        ("It waits, since it has no Lease.", "because"),
        ("Gone since 1.31, since then unknown.", None),
        ("A foretelling, untold, the wishbone.", None),
    ],
)
def test_a_term_is_found_where_it_is_meant(text: str, write: str | None):
    assert [problem.rpartition("write ")[2].strip('"') for problem in found("a.md", text)] == ([write] if write else [])


def test_contributing_shows_the_list():
    section = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \| `([^|`]+)` \|$", section, re.MULTILINE)
    assert rows == [(term["write"], term["not"]) for term in yaml.safe_load(check.TERMS.read_text())["terms"]]


def test_what_contributing_calls_wrong_is_found():
    for term in yaml.safe_load(check.TERMS.read_text())["terms"]:
        problems = found("a.md", f"So {term['not']}.")
        assert any(problem.endswith(f'write "{term["write"]}"') for problem in problems), term


def test_finished_files_exist():
    for glob in yaml.safe_load(check.TERMS.read_text())["finished"]:
        assert check.files(glob), f"{glob} is on the list of tools/prose/terms.yml and names no file"


@pytest.mark.parametrize(
    ("commit", "problem"),
    [
        (Commit("abc", "x" * 72, "why"), ""),
        (Commit("abc", "x" * 73, "why"), "abc: the subject has 73 characters, at most 72 are allowed: "),
        (Commit("abc", "One", ""), "abc: no body: write why, below an empty line: One"),
        (Commit("abc", "fixup! One", ""), ""),
    ],
)
def test_a_commit_has_a_short_subject_and_a_body(commit: Commit, problem: str):
    assert commits.problems([commit]) == ([problem + "x" * 73 * problem.endswith(": ")] if problem else [])


def test_the_message_of_a_hook_is_read_without_comments_and_the_diff(tmp_path: Path):
    path = tmp_path / "COMMIT_EDITMSG"
    path.write_text("One\n\n# a comment\n# ------------------------ >8 ------------------------\ndiff\n")
    assert commits.of_file(path) == Commit("message", "One", "")
    path.write_text("One\n\nWhy,\nand more.\n# a comment\n")
    assert commits.of_file(path) == Commit("message", "One", "Why,\nand more.")


def test_commits_are_read_since_a_fixed_one_or_the_last_tag_or_the_common_branch(tmp_path: Path):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def seen(first: str = commits.FIRST) -> list[tuple[str, str]]:
        return [(each.subject, each.body) for each in commits.since(first, tmp_path)]

    git("init", "-q")
    git("commit", "--allow-empty", "-m", "One")
    assert seen() == []
    one = commits.git("rev-parse", "HEAD", cwd=tmp_path)
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("commit", "--allow-empty", "-m", "Two", "-m", "Why.")
    assert seen() == [("Two", "Why.")]
    git("tag", "1.0.0")
    git("commit", "--allow-empty", "-m", "Three")
    assert seen() == [("Three", "")]
    assert seen(one) == [("Three", ""), ("Two", "Why.")]

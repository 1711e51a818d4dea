# SPDX-License-Identifier: Apache-2.0
"""A check that passed does not run again as long as everything that it may depend on has the same contents."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tools import kept

COUNT = ("sh", "-c", "echo x >> ../count; test ! -e bad.yml")


class Checkout:
    """A repository with a file in it; `runs`: how many times its check ran."""

    def __init__(self, folder: Path, name: str = "here") -> None:
        self.root, self.folder = folder / name, folder
        self.root.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)
        (self.root / ".gitignore").write_text("*.log\n")
        (self.root / "a.yml").write_text("a: 1\n")

    def check(self, *paths: str, command: tuple[str, ...] = COUNT) -> int:
        return kept.check("it", paths or (".",), command, self.root, self.folder / "kept")

    @property
    def runs(self) -> int:
        return len((self.folder / "count").read_text().splitlines())


@pytest.fixture
def here(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    assert made.check() == 0
    assert made.runs == 1
    return made


def test_nothing_runs_again_on_the_same_contents(here: Checkout):
    os.utime(here.root / "a.yml")
    (here.root / "b.log").write_text("ignored by git")
    assert here.check() == 0
    assert here.runs == 1


def test_another_checkout_of_the_same_contents_has_it_too(here: Checkout):
    assert Checkout(here.folder, "there").check() == 0
    assert here.runs == 1


@pytest.mark.parametrize("change", ["content", "new", "gone", "name", "mode", "link", "command"])
def test_it_runs_again_after_a_change(here: Checkout, change: str):
    path, command = here.root / "a.yml", COUNT
    if change == "content":
        path.write_text("a: 2\n")
    elif change == "new":
        (here.root / "b.yml").write_text("")
    elif change == "gone":
        path.unlink()
    elif change == "name":
        path.rename(here.root / "b.yml")
    elif change == "mode":
        path.chmod(0o755)
    elif change == "link":
        path.rename(here.root / "ignored.log")
        path.symlink_to("ignored.log")
    else:
        command = (*COUNT[:2], f"{COUNT[2]} ")
    assert here.check(command=command) == 0
    assert here.runs == 2


def test_what_is_not_below_the_paths_does_not_count(here: Checkout):
    assert here.check("a.yml") == 0
    assert here.runs == 2, "fewer files"
    (here.root / "b.yml").write_text("")
    assert here.check("a.yml") == 0
    assert here.runs == 2
    assert here.check() == 0
    assert here.runs == 3


def test_new_packages_are_a_change(here: Checkout, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept, "packages", lambda: ["ansible-lint=99"])
    assert here.check() == 0
    assert here.runs == 2


def test_a_failure_is_not_kept(here: Checkout):
    (here.root / "bad.yml").write_text("")
    assert here.check() == 1 and here.check() == 1
    assert here.runs == 3


def test_what_nobody_asks_for_is_forgotten(here: Checkout):
    (old,) = (here.folder / "kept").glob("it-*")
    linters_own = here.folder / "kept" / "mypy"
    linters_own.mkdir()
    for path in (old, linters_own):
        os.utime(path, (0, time.time() - (kept.DAYS + 1) * 86400))
    (here.root / "a.yml").write_text("a: 2\n")
    assert here.check() == 0
    assert not old.exists() and len(list((here.folder / "kept").glob("it-*"))) == 1
    assert linters_own.is_dir()


def test_arguments_are_paths_and_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    assert kept.main(["nothing", "galaxy.yml", "--", "true"]) == 0
    assert kept.main(["nothing", "galaxy.yml", "--", "false"]) == 1

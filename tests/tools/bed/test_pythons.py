# SPDX-License-Identifier: Apache-2.0
"""Which of pyenv's Pythons a machine gets."""

from pathlib import Path

import pytest

from bed import pythons
from bed.errors import BedError


def installed(pyenv: Path, *releases: str) -> None:
    for release in releases:
        version = release.rpartition(".")[0]
        program = pyenv / "versions" / release / "bin" / f"python{version}"
        program.parent.mkdir(parents=True)
        program.touch()


def test_the_newest_release_of_the_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    installed(tmp_path, "3.8.9", "3.8.18", "3.9.1")
    assert pythons.folder("3.8") == tmp_path / "versions" / "3.8.18"
    assert pythons.program("3.8") == tmp_path / "versions" / "3.8.18" / "bin" / "python3.8"


def test_without_one_the_error_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    installed(tmp_path, "3.9.1")
    with pytest.raises(BedError, match=r"no Python 3\.8 below .*: `pyenv install 3\.8`"):
        pythons.folder("3.8")

# SPDX-License-Identifier: Apache-2.0
"""Missing prerequisites: root installs them, and without root a message says exactly how."""

import io

import pytest

from bed import cli, prerequisites
from bed.errors import BedError
from bed.progress import Progress


def test_a_program_that_is_missing_is_named_by_its_package() -> None:
    assert prerequisites.missing_packages(lambda program: program not in ("ip", "nft")) == ["iproute2", "nftables"]
    assert prerequisites.missing_packages(lambda program: True) == []


def test_without_root_the_exact_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "missing_packages", lambda: ["podman", "runc"])
    with pytest.raises(BedError, match="sudo apt-get install --yes --no-install-recommends podman runc"):
        prerequisites.ensure(Progress(io.StringIO()), root=False)


def test_root_installs_and_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(prerequisites, "missing_packages", lambda: ["podman"])
    monkeypatch.setattr(prerequisites, "run", lambda *command, **_: commands.append(command))
    monkeypatch.setattr(prerequisites.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(prerequisites.golang, "ensure", lambda progress: None)
    out = io.StringIO()
    prerequisites.ensure(Progress(out), root=True)
    assert commands == [
        ("apt-get", "update"),
        ("apt-get", "install", "--yes", "--no-install-recommends", "podman"),
    ]
    assert "--no-install-recommends podman" in out.getvalue()


@pytest.mark.parametrize(("there", "installed"), [(True, []), (False, ["openjdk-17-jre-headless"])])
def test_java_comes_when_a_test_needs_it(monkeypatch: pytest.MonkeyPatch, there: bool, installed: list[str]) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(prerequisites, "_has", lambda program: there or program != "java")
    monkeypatch.setattr(prerequisites, "_install", lambda packages, progress: asked.append(packages))
    prerequisites.ensure_java(Progress(io.StringIO()))
    assert asked == [installed]


def test_a_mistake_at_the_command_line_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--name", "no-such-bed"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("bed status: there is no bed named no-such-bed")
    assert "Traceback" not in error

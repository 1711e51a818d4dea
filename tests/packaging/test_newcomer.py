# SPDX-License-Identifier: Apache-2.0
"""The list of commands that `make newcomer` runs. These tests do not run the commands, which takes minutes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.docs.commands import commands, entries, fitting, pages
from tools.packaging import newcomer

HERE = newcomer.World(Path("/here"), "http://127.0.0.1/", Path("/here/kubeconfig"))


def masked(command: str) -> str:
    """Return a command with its ports replaced, because each run uses other free ports."""
    return re.sub(r"\b\d{4,5}\b", "PORT", command)


def test_it_runs_every_command_that_the_list_says_it_runs():
    played = {masked(command) for part in newcomer.PARTS.values() for command in part(HERE)}
    promised = [
        (page, command)
        for page in pages()
        for command in commands(page)
        for entry in fitting(command, [entry for entry in entries() if entry.page == page])
        if entry.by == "tools/packaging/newcomer.py"
    ]
    assert promised
    assert [(page, command) for page, command in promised if masked(command) not in played] == []


def test_both_lines_that_install_from_git_are_run_with_their_dependencies():
    played = newcomer.from_git(HERE)
    assert [each for each in played if "git+https" in each] == [
        "ansible-galaxy collection install git+https://github.com/outoftree/ccm",
        "pip install 'git+https://github.com/outoftree/ccm#subdirectory=runtime'",
    ]
    assert not any("--no-deps" in each or "clone" in each for each in played) and played[-2].startswith("ccm --help")


def test_what_a_page_needs_is_installed_as_it_says():
    assert newcomer.needed("README.md") == "apt install git python3-venv"
    with pytest.raises(newcomer.Failed, match=r"docs/faq\.md does not say what to install"):
        newcomer.needed("docs/faq.md")

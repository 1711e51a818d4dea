# SPDX-License-Identifier: Apache-2.0
"""What CONTRIBUTING.md, MAINTAINERS.md and the files for contributors name exists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):", MAKEFILE, re.MULTILINE))
PAGES = ["CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "MAINTAINERS.md"]
#: A file or folder of the checkout, as these pages write it.
TOPS = r"\.github|changelogs|docs|meta|molecule|plugins|roles|runtime|tests|tools"
PLACE = re.compile(rf"`((?:{TOPS})/[\w/.-]+|[A-Z]+\.md)")


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str):
    text = (ROOT / page).read_text()
    places = {place for place in PLACE.findall(text) if "NNNN" not in place}
    places |= {link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link}
    assert {place for place in places if not (ROOT / place).exists()} == set()
    code = "\n".join(re.findall(r"`[^`]+`|^make .*$", text, re.MULTILINE))
    commands = set(re.findall(r"\bmake ([a-z][a-z0-9-]+)", code))
    assert commands <= TARGETS, "a command that the Makefile has not"


def test_every_command_has_a_help_text():
    described = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert TARGETS - described == {"prerequisites", "openstack-once"}


def test_hooks_run_what_is_here():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        program, *arguments = hook["entry"].split()
        assert program.startswith("build/venv/bin/") or arguments[0] in TARGETS
        assert all((ROOT / word).exists() for word in arguments if "/" in word)


def test_the_devcontainer_sets_up_with_our_commands():
    command = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())["postCreateCommand"].split()
    assert command[0] == "make" and set(command[1:]) <= TARGETS


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/ISSUE_TEMPLATE/[!c]*.yml")), ids=lambda path: path.stem)
def test_an_issue_form_asks_for_what_is_needed(path: Path):
    form = yaml.safe_load(path.read_text())
    assert form["name"] and form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_problems_with_people_and_vulnerabilities_have_a_private_way():
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    contact = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text())["contact_links"][0]
    assert contact["url"] == f"{repository}/security/advisories/new"
    for page in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert re.search(r'"Security",\s+(?:then\s+)?"Report\s+a\s+vulnerability"', (ROOT / page).read_text()), page

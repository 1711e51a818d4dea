# SPDX-License-Identifier: Apache-2.0
"""`ansible-doc` has an answer about every plugin, role, entry point and option."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PLUGINS = sorted([*ROOT.glob("plugins/modules/*.py"), *ROOT.glob("plugins/filter/*.py")])
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/meta/argument_specs.yml"))


def blocks(path: Path) -> dict[str, Any]:
    found = {}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in ("DOCUMENTATION", "EXAMPLES", "RETURN"):
                found[name] = yaml.safe_load(ast.literal_eval(statement.value))
    return found


def undescribed(entries: dict[str, Any], inside: str = "") -> Iterator[str]:
    """Options or return values without a description, at any depth."""
    for name, entry in entries.items():
        if not entry.get("description"):
            yield inside + name
        for below in ("suboptions", "options", "contains"):
            yield from undescribed(entry.get(below) or {}, f"{inside}{name}.")


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_a_plugin_is_documented(path: Path):
    found = blocks(path)
    assert set(found) == {"DOCUMENTATION", "EXAMPLES", "RETURN"}
    about, returned = found["DOCUMENTATION"], found["RETURN"]
    assert about["short_description"] and about["description"] and about["version_added"] and about["author"]
    assert list(undescribed(about.get("options") or {})) == [] == list(undescribed(returned))
    assert found["EXAMPLES"]
    if path.parent.name == "modules":
        assert set(about["attributes"]) == {"check_mode", "diff_mode"}
        assert [name for name, entry in returned.items() if "sample" not in entry] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_a_role_is_documented(role: Path):
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    for entry, spec in specs.items():
        assert spec.get("short_description") and spec.get("description"), entry
        assert (role / "tasks" / f"{entry}.yml").exists(), f"the entry point {entry} has no tasks"
    assert list(undescribed(specs["main"]["options"])) == []
    readme = (role / "README.md").read_text()
    assert f"ansible-doc -t role outoftree.ccm.{role.name}" in readme
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text()) or {}
    documented = specs["main"]["options"]
    assert set(defaults) <= set(documented), "a default that argument_specs does not know"
    other = {name for name, value in defaults.items() if documented[name].get("default", value) != value}
    assert not other, f"{other}: another default than argument_specs says"


#: Galaxy shows these without the repository around them.
ALONE = [ROOT / "README.md", *sorted(ROOT.glob("roles/*/README.md"))]


def links(text: str) -> list[str]:
    """Where a page's links lead, inline and by reference; code is left out."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "code", text, flags=re.MULTILINE | re.DOTALL)
    named = {name.lower(): target for name, target in re.findall(r"^\[([^\]]+)\]:\s*(\S+)$", prose, re.MULTILINE)}
    used = [name.lower() for name in re.findall(r"\]\[([^\]]+)\]", prose)]
    assert set(used) == set(named), "references that nothing defines, or that nothing uses"
    return re.findall(r"\]\(([^)\s]+)", prose) + list(named.values()) + re.findall(r"(?:href|src)=\"([^\"]+)", prose)


def anchors(page: str) -> set[str]:
    """The headings of a page as GitHub and Galaxy link to them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.parent.name)
def test_a_page_that_galaxy_shows_has_links_that_lead_somewhere_from_there(path: Path):
    repository = yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"]
    for link in links(path.read_text()):
        target, _, anchor = link.partition("#")
        if not target:
            assert anchor in anchors(path.read_text()), link
        elif target.startswith(repository + "/"):
            kind, branch, place = target.removeprefix(repository + "/").split("/", 2)
            found = ROOT / place
            assert branch == "main" and kind == ("tree" if found.is_dir() else "blob") and found.exists(), link
            assert not anchor or anchor in anchors(found.read_text()), link
        else:
            assert target.startswith("https://"), (
                f"{link} leads nowhere on Galaxy: name it with {repository}/blob/main/"
            )

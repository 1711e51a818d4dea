# SPDX-License-Identifier: Apache-2.0
"""`ansible-doc` documents every plugin, role, entry point and option. Links of READMEs work on Galaxy.

README.md and the page about testing say how each layout was verified, and each sample inventory has a valid
configuration.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ccm.cloud import ProviderConfig
from ccm.cloud import registry as providers

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
    """Yield the options or return values without a description, at any depth."""
    for name, entry in entries.items():
        if not entry.get("description"):
            yield inside + name
        for below in ("suboptions", "options", "contains"):
            yield from undescribed(entry.get(below) or {}, f"{inside}{name}.")


TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "dict": (dict,),
    "float": (float, int),
    "int": (int,),
    "list": (list,),
    "str": (str,),
}


def wrong_samples(entries: dict[str, Any], inside: str = "") -> Iterator[str]:
    """Yield the return values whose sample does not have the type or the parts that their documentation says."""
    for name, entry in entries.items():
        kind, sample, parts = entry["type"], entry.get("sample"), entry.get("contains") or {}
        if sample is not None:
            if not isinstance(sample, TYPES[kind]) or (isinstance(sample, bool) and kind != "bool"):
                yield f"{inside}{name}: the sample is {type(sample).__name__}, not {kind}"
                continue
            items = sample if isinstance(sample, list) else []
            if kind == "list" and not all(isinstance(item, TYPES[entry["elements"]]) for item in items):
                yield f"{inside}{name}: the sample's items are not all {entry['elements']}"
            elif parts and (kind == "dict" or entry.get("elements") == "dict"):
                for item in items or [sample] * (kind == "dict"):
                    given = {key: part | {"sample": item[key]} for key, part in parts.items() if key in item}
                    yield from (f"{inside}{name}: the sample lacks {key}" for key in parts if key not in item)
                    yield from (f"{inside}{name}: {key} is not documented" for key in item if key not in parts)
                    yield from wrong_samples(given, f"{inside}{name}.")
        yield from wrong_samples(parts, f"{inside}{name}.")


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_samples_are_of_the_documented_types(path: Path):
    returned = blocks(path)["RETURN"]
    assert [name for name, entry in returned.items() if entry["type"] == "list" and "elements" not in entry] == []
    assert list(wrong_samples(returned)) == []


def test_wrong_samples_are_seen():
    part = {"type": "int", "sample": 1}
    wrong = {
        "a": {"type": "int", "sample": "1"},
        "b": {"type": "float", "sample": True},
        "c": {"type": "list", "elements": "str", "sample": [1]},
        "d": {"type": "list", "elements": "dict", "sample": [{"n": "x", "m": 1}], "contains": {"n": part, "o": part}},
        "e": {"type": "dict", "contains": {"n": part | {"sample": "1"}}},
    }
    assert [problem.partition(":")[0] for problem in wrong_samples(wrong)] == ["a", "b", "c", "d", "d", "d.n", "e.n"]
    right = {"a": part, "d": {"type": "list", "elements": "dict", "sample": [{"n": 1}], "contains": {"n": part}}}
    assert list(wrong_samples(right)) == []


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
    # tests/unit/test_vendors.py evaluates the defaults that are templates.
    fixed = {name: value for name, value in defaults.items() if not str(value).startswith("{{")}
    other = {name for name, value in fixed.items() if documented[name].get("default", value) != value}
    assert not other, f"{other}: another default than argument_specs says"


#: Pages that Galaxy shows without the repository: relative links lead nowhere there.
ALONE = [ROOT / "README.md", *sorted(ROOT.glob("roles/*/README.md"))]


def links(text: str) -> list[str]:
    """Return the targets of a page's links, inline, by reference, and in HTML; code is left out."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "code", text, flags=re.MULTILINE | re.DOTALL)
    named = {name.lower(): target for name, target in re.findall(r"^\[([^\]]+)\]:\s*(\S+)$", prose, re.MULTILINE)}
    used = [name.lower() for name in re.findall(r"\]\[([^\]]+)\]", prose)]
    assert set(used) == set(named), "references that nothing defines, or that nothing uses"
    return re.findall(r"\]\(([^)\s]+)", prose) + list(named.values()) + re.findall(r"(?:href|src)=\"([^\"]+)", prose)


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub and Galaxy make of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.parent.name)
def test_a_page_that_galaxy_shows_has_links_that_lead_somewhere_from_there(path: Path):
    collection = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    repository = collection["repository"]
    for link in links(path.read_text()):
        target, _, anchor = link.partition("#")
        if not target:
            assert anchor in anchors(path.read_text()), link
        elif target == collection["issues"]:
            continue
        elif target.startswith(repository + "/"):
            kind, branch, place = target.removeprefix(repository + "/").split("/", 2)
            found = ROOT / place
            kinds = ("tree",) if found.is_dir() else ("raw",) if found.suffix == ".svg" else ("blob",)
            assert branch == "main" and kind in kinds and found.exists(), link
            assert not anchor or anchor in anchors(found.read_text()), link
        else:
            assert target.startswith("https://"), (
                f"{link} leads nowhere on Galaxy: name it with {repository}/blob/main/"
            )


def test_the_readme_and_the_page_about_testing_say_how_each_layout_was_verified():
    """Each sample inventory is a layout."""
    readme = (ROOT / "README.md").read_text().partition("## What is supported")[2].partition("\n## ")[0]
    testing = (ROOT / "docs/testing.md").read_text().partition("## Kubernetes and layouts")[2].partition("\n## ")[0]
    layouts = {path.stem for path in ROOT.glob("docs/inventories/*.yml")}
    for table in (readme, testing):
        shown = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| "))
        assert {name for name in layouts if name.lower() not in shown.lower()} == set()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_the_page_about_testing_names_every_scenario_that_it_relies_on():
    named = set(re.findall(r"`molecule/(\w+)`", (ROOT / "docs/testing.md").read_text()))
    assert named == {path.parent.name for path in ROOT.glob("molecule/*/molecule.yml")}


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/inventories/**/*.yml")), ids=lambda path: path.stem)
def test_the_provider_accepts_the_configuration_of_each_sample_inventory(path: Path):
    everything = yaml.safe_load(path.read_text())["all"]
    groups = {name: list(group["hosts"]) for name, group in everything["children"].items()}
    hosts: dict[str, Any] = {}
    for group in everything["children"].values():
        for name, values in group["hosts"].items():
            hosts.setdefault(name, {}).update(values or {})
    environment = jinja2.Environment(trim_blocks=True)  # as Ansible does
    environment.filters["union"] = lambda one, other: [*one, *(each for each in other if each not in one)]
    secrets = {"vault_credential_id": "id", "vault_credential_secret": "secret"}
    variables = everything["vars"]
    clouds = {variables["ccm_runtime_cloud_provider"]: variables["ccm_runtime_cloud_config"]}
    clouds |= {each["provider"]: each["config"] for each in variables.get("ccm_runtime_clouds", [])}
    for name, text in clouds.items():
        config = environment.from_string(text).render(groups=groups, hostvars=hosts, **secrets)
        assert providers.load(name)(ProviderConfig(config)).instances is not None

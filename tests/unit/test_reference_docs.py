# SPDX-License-Identifier: Apache-2.0
"""docs/reference agrees with the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm import cloud, conformance
from ccm.options.config_file import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, Any]:
    """Generate the pages in a separate process, because tests register metrics, too."""
    code = """
import json, controllers_table, reference, static_page, vendors_table
text, vendors = static_page.PAGE.read_text(), vendors_table.PAGE.read_text()
print(json.dumps(reference.pages() | {
    "static": [text, static_page.filled(text, reference._table)],
    "vendors": [vendors, vendors_table.filled(vendors, reference._table)],
    "controllers": [controllers_table.FILE.read_text(), controllers_table.text()],
}))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "tools" / "docs", capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_no_generated_page_is_stale(pages: dict[str, Any]):
    """The test compares each page that `make docs` writes as a whole, so pages that somebody adds are included."""
    texts = {name: text for name, text in pages.items() if isinstance(text, str)}
    stale = [name for name, text in texts.items() if (ROOT / "docs" / "reference" / name).read_text() != text]
    assert stale == [], "run `make docs`"


def test_the_tables_of_the_provider_static_are_up_to_date(pages: dict[str, Any]):
    there, made = pages["static"]
    assert there == made, "docs/providers/static.md is stale: run `make docs`"


def test_the_tables_of_vendors_are_up_to_date(pages: dict[str, Any]):
    there, made = pages["vendors"]
    assert there == made, "docs/how-to/another-controller.md is stale: run `make docs`"


def test_the_collections_table_of_controllers_is_up_to_date(pages: dict[str, Any]):
    there, made = pages["controllers"]
    assert there == made, "roles/ccm_runtime/vars/main/controllers.yml is stale: run `make docs`"


def test_the_page_of_variables_has_each_variable_once_and_no_markup_of_ansible(pages: dict[str, Any]):
    _, first, everything, _, _ = re.split(r"^## ", pages["variables.md"], flags=re.M)
    named = re.findall(r"^\| `(\w+)` \|", everything, re.M)
    declared: set[str] = set()
    for role in ("ccm_install", "ccm_runtime"):
        specs = yaml.safe_load((ROOT / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
        declared |= {name for spec in specs.values() for name in spec.get("options") or {} if name.startswith(role)}
    assert sorted(named) == sorted(declared)
    assert set(re.findall(r"^\| `(\w+)` \|", first, re.M)) < declared
    assert re.findall(r"\b[A-Z]\([^)]*\)", pages["variables.md"]) == []


def test_everything_that_is_exported_is_on_the_page(pages: dict[str, Any]):
    told = set(re.findall(r"^### `(\w+)`$", pages["contract.md"], re.M))
    # CASES and Trouble are tables on the page of cases. Trial and Failed are for authors of cases: the kit alone.
    assert {*cloud.__all__, *conformance.__all__} - told == {"CASES", "Trouble", "Trial", "Failed"}
    shown = {case.name for case in conformance.CASES} | {trouble.name for trouble in conformance.Trouble}
    assert shown <= set(re.findall(r"^\| `([\w.]+)` \|", pages["conformance.md"], re.M))


def test_the_contract_tells_every_capability_and_every_error():
    page = (ROOT / "docs/providers/contract.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.M))
    capabilities = {name for name in vars(cloud.Cloud)["__annotations__"] if name not in ("name", "limits")}
    kinds = {name for name in cloud.__all__ if isinstance(getattr(cloud, name), type)}
    errors = {name for name in kinds if issubclass(getattr(cloud, name), cloud.CloudError)} - {"CloudError"}
    methods = {
        method
        for kind in (cloud.Instances, cloud.CanonicalIds, cloud.LoadBalancers, cloud.Routes, cloud.Volumes)
        for method in vars(kind)
        if callable(getattr(kind, method)) and not method.startswith("_")
    }
    assert capabilities | errors <= rows
    assert methods <= set(re.findall(r"`(\w+)`", page))


def test_the_example_is_a_configuration(pages: dict[str, Any]):
    examples = re.findall(r"```yaml\n(.*?)```", pages["configuration.md"], re.DOTALL)
    assert len(examples) == 2
    assert load(examples[1], "example")[1] == []
    assert yaml.safe_load(examples[0])["kind"] == "LeaderMigrationConfiguration"

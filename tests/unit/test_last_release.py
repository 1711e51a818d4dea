# SPDX-License-Identifier: Apache-2.0
"""An upgraded cluster keeps its behaviour: a user who changes no argument, no variable and no configuration file has
the same flags, metrics, rights and arguments as before.

`last_release.json` is what the release had (`tests.last_release.COMMIT`). For a new release, change both:
`python -m tests.unit.test_last_release > tests/unit/last_release.json`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ccm.options.command_line import parse
from ccm.options.controller_names import OFF_BY_DEFAULT

from .ccm_runtime_role import ROOT, rendered

FILE = Path(__file__).with_name("last_release.json")
KINDS = ("counter", "gauge", "histogram")
PAGES = ROOT / "docs" / "reference"


def rows(page: str, cells: int) -> dict[str, list[str]]:
    """Return the rows of a generated reference page: name -> the first `cells` cells after it."""
    lines = re.findall(r"^\| `([^`]+)` \| (.*) \|$", (PAGES / page).read_text(), re.MULTILINE)
    return {name: re.split(r"(?<!\\) \| ", rest)[:cells] for name, rest in lines}


def rights(controllers: list[str]) -> list[str]:
    documents = rendered("rbac.yaml.j2", ccm_runtime_controllers=controllers)
    return sorted(
        " ".join([document["kind"], group, resource, verb, *rule.get("resourceNames", [])])
        for document in documents
        for rule in document.get("rules", [])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    )


def arguments() -> list[str]:
    """Return the container's arguments by default."""
    daemonset = next(each for each in rendered("daemonset.yaml.j2") if each["kind"] == "DaemonSet")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def surface() -> dict[str, Any]:
    return {
        "flags": rows("flags.md", 1),
        "metrics": {name: row for name, row in rows("metrics.md", 2).items() if row[0] in KINDS},
        "variables": rows("variables.md", 2),
        "rights": rights(["*"]),
        "rights with all controllers": rights(["*", *OFF_BY_DEFAULT]),
        "arguments": arguments(),
        "configuration": parse(["--cloud-provider=sim"]).configz(),
    }


@cache
def release() -> Any:
    return json.loads(FILE.read_text())


def common(older: Any, newer: Any) -> Any:
    """Return `newer` without the keys that `older` does not have, at any depth."""
    if isinstance(older, dict) and isinstance(newer, dict):
        return {key: common(older[key], value) for key, value in newer.items() if key in older}
    return newer


@pytest.mark.parametrize("table", ["flags", "metrics", "variables", "configuration"])
def test_what_there_was_is_as_it_was(table: str) -> None:
    """Flags and variables have their defaults, metrics their kinds and labels, and options their keys and values."""
    assert common(release()[table], surface()[table]) == release()[table]


def test_the_arguments_of_the_role_are_as_they_were() -> None:
    assert arguments() == release()["arguments"]


@pytest.mark.parametrize("table", ["rights", "rights with all controllers"])
def test_the_rights_that_the_cluster_has_suffice(table: str) -> None:
    assert set(surface()[table]) <= set(release()[table])


def test_a_configuration_file_of_the_release_means_what_it_meant(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    group, kind = "cloudcontrollermanager.config.k8s.io", "CloudControllerManagerConfiguration"
    file.write_text(json.dumps({"apiVersion": f"{group}/v1alpha1", "kind": kind} | release()["configuration"]))
    assert parse([f"--config={file}"]).configz() == parse(["--cloud-provider=sim"]).configz()


if __name__ == "__main__":
    print(json.dumps(surface(), indent=1, sort_keys=True))

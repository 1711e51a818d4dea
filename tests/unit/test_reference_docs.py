# SPDX-License-Identifier: Apache-2.0
"""docs/reference says what the code does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ccm.app.configuration import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """In a process of its own: tests register metrics, too."""
    code = "import json, reference; print(json.dumps(reference.pages()))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "tests" / "docs", capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize("name", ["flags.md", "configuration.md", "metrics.md", "conformance.md", "openstack.md"])
def test_the_page_is_up_to_date(name: str, pages: dict[str, str]):
    assert (ROOT / "docs" / "reference" / name).read_text() == pages[name], f"{name} is stale: run `make docs`"


def test_the_example_is_a_configuration(pages: dict[str, str]):
    examples = re.findall(r"```yaml\n(.*?)```", pages["configuration.md"], re.DOTALL)
    assert len(examples) == 2
    assert load(examples[1], "example")[1] == []
    assert yaml.safe_load(examples[0])["kind"] == "LeaderMigrationConfiguration"

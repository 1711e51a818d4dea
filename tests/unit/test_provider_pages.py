# SPDX-License-Identifier: Apache-2.0
"""docs/providers lists every provider, and has a page for each that shows the evidence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/providers"


def names() -> list[str]:
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    return sorted(project["entry-points"]["ccm.providers"])


def test_every_provider_is_in_the_table_and_has_a_page_with_its_evidence() -> None:
    index = (FOLDER / "index.md").read_text()
    assert sorted(re.findall(r"^\| \[`(\w+)`\]\(\1\.md\)", index, re.M)) == names()
    for name in names():
        assert "**Evidence: " in (FOLDER / f"{name}.md").read_text(), name


def test_the_role_knows_the_providerids_of_every_provider() -> None:
    """Without the prefix, the role would take any providerID for the provider's own."""
    variables = yaml.safe_load((ROOT / "roles/ccm_install/vars/main.yml").read_text())
    assert set(names()) <= set(variables["__ccm_install_prefixes"])


def test_every_vendor_that_the_role_knows_by_name_is_on_the_page() -> None:
    """Also, for each cloud that was in-tree the page names a provider of ours or the vendor's controller."""
    index = (FOLDER / "index.md").read_text()
    known = {path.stem for path in (ROOT / "roles/ccm_runtime/files/vendors").glob("*.yml")}
    section = index.partition("## Another vendor's controller")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", section)) == known
    table = index.partition("| In-tree name |")[2].splitlines()
    rows = [line.split(" | ") for line in table if line.startswith("| `")]
    assert len(rows) == 10
    for row in rows:
        ours, theirs = row[4], row[5]
        assert set(re.findall(r"ccm_runtime_vendor: (\w+)", theirs)) <= known
        assert "](" in ours or "ccm_runtime_vendor" in theirs, row


def test_both_pages_name_the_vendors_whose_programs_ran_on_a_cluster() -> None:
    """Each vendor's scenario rolls out that vendor's controller."""
    page = (ROOT / "docs/how-to/another-controller.md").read_text().partition("**How each was shown.**")[2]
    shown = dict(re.findall(r"^\| `(\w+)` \|.*\| `(\w+)`[^|]*\|$", page.partition("\n**")[0], re.M))
    index = (FOLDER / "index.md").read_text()
    assert set(shown) == set(re.findall(r"ccm_runtime_vendor: (\w+)` \|[^|]*theirs: [^|]*on a cluster \|", index))
    for vendor, scenario in shown.items():
        texts = "".join(path.read_text() for path in (ROOT / "molecule" / scenario).rglob("*.yml"))
        assert re.search(rf"ccm_runtime_vendor: {vendor}(\n|\\n)", texts)  # as YAML, or quoted from a page


def test_links_between_files_lead_somewhere() -> None:
    for page in FOLDER.glob("*.md"):
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (FOLDER / link).exists(), f"{page.name}: {link}"


#: The name of each provider's cloud in the picture of the front page. The simulated cloud is not in the picture.
CLOUDS = {
    "aws": "AWS",
    "azure": "Azure",
    "cloudstack": "CloudStack",
    "gce": "Compute Engine",
    "hetzner": "Hetzner",
    "libcloud": "Libcloud",
    "openstack": "OpenStack",
    "static": "bare metal",
    "vsphere": "vSphere",
}


def test_the_picture_of_the_front_page_names_every_cloud() -> None:
    picture = (ROOT / "docs/images/architecture.svg").read_text()
    assert CLOUDS.keys() == set(names()) - {"sim"}
    assert [name for name in CLOUDS.values() if name not in picture] == []

# SPDX-License-Identifier: Apache-2.0
"""Every provider's files are named with the contract's words; docs/architecture.md justifies each other name."""

import re
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[3]
PROVIDERS = ROOT / "runtime/ccm/providers"
_SECTION = (ROOT / "docs/architecture.md").read_text().partition("### A provider's files\n")[2].partition("\n### ")[0]
_NAME = re.compile(r"`(\w+)`")


def _rows() -> list[list[str]]:
    return [line.strip("|").split("|") for line in _SECTION.splitlines() if line.startswith("| `")]


#: The names that every provider may use, and the names that only one provider may use.
WORDS = {_NAME.search(row[0])[1] for row in _rows() if len(row) == 2}
ARGUED = [(_NAME.search(row[0])[1], name) for row in _rows() if len(row) == 3 for name in _NAME.findall(row[1])]


def names_of(word: str) -> set[str]:
    """Return a word and the names of its rules, such as `instance_rules` for `instances`."""
    return {word, f"{word}_rules", f"{word.removesuffix('s')}_rules"}


def unargued(path: str) -> list[str]:
    """Return the parts of a path below `providers` that are neither words of the contract nor justified in
    docs/architecture.md."""
    provider, *parts = PurePosixPath(path).with_suffix("").parts
    known = WORDS | {name for owner, name in ARGUED if owner == provider}
    return [part for part in parts if not any(part in names_of(word) for word in known)]


PATHS = sorted(path.relative_to(PROVIDERS).as_posix() for path in PROVIDERS.rglob("*.py"))


@pytest.mark.parametrize("path", PATHS)
def test_a_file_of_a_provider_has_a_word_of_the_contract(path: str) -> None:
    assert unargued(path) == [], "use a name of docs/architecture.md, or say there which other subject the cloud has"


@pytest.mark.parametrize("path", [path for path in PATHS if path != "__init__.py"])
def test_a_provider_is_a_folder(path: str) -> None:
    assert "/" in path


EXAMPLE = ROOT / "runtime/examples/ccm-provider-acme"


def test_the_example_of_a_provider_has_the_contracts_words() -> None:
    files = {path.stem for path in (EXAMPLE / "ccm_provider_acme").glob("*.py")}
    assert [name for name in files if unargued(f"acme/{name}.py")] == []
    page = (ROOT / "docs/providers/your-own.md").read_text()
    rows = [line for line in page.splitlines() if re.search(r"\| \d \|$", line)]
    assert {name for row in rows for name in _NAME.findall(row.split("|")[1])} == files


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("hetzner/servers.py", ["servers"]),
        ("hetzner/balancer_rules.py", ["balancer_rules"]),
        ("gce/resource_ids.py", ["resource_ids"]),
        ("gce/instances_of_zones.py", ["instances_of_zones"]),
        ("hetzner/network/load_balancers.py", ["network"]),
        ("aws/load_balancers/network/load_balancer_rules.py", []),
        ("gce/instance_rules.py", []),
        ("gce/load_balancers/load_balancers.py", []),
    ],
)
def test_other_names_are_noticed(path: str, problem: list[str]) -> None:
    assert unargued(path) == problem


@pytest.mark.parametrize("path", sorted(PROVIDERS.rglob("annotations.py")), ids=lambda path: path.parent.name)
def test_the_file_of_annotations_can_be_imported_from_its_folder(path: Path) -> None:
    """With `from __future__ import annotations` in `__init__.py`, `from . import annotations` would get that name."""
    assert "import annotations" not in path.with_name("__init__.py").read_text()


@pytest.mark.parametrize(("provider", "name"), ARGUED)
def test_every_argued_name_is_used(provider: str, name: str) -> None:
    paths = [PurePosixPath(path).with_suffix("") for path in PATHS if path.startswith(f"{provider}/")]
    assert any(names_of(name) & set(path.parts) for path in paths)


@pytest.mark.parametrize("word", sorted(WORDS))
def test_every_word_is_used(word: str) -> None:
    assert any(word in PurePosixPath(path).with_suffix("").parts for path in PATHS)


@pytest.mark.parametrize("word", ["instances", "load_balancers", "routes", "volumes", "instance_tags", "quotas"])
def test_the_words_are_those_of_the_contract(word: str) -> None:
    assert word in WORDS and f"    {word}: " in (ROOT / "runtime/ccm/cloud/contract.py").read_text()

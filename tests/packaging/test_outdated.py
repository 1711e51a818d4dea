# SPDX-License-Identifier: Apache-2.0
"""`make outdated`: what it reads of pins, and what it calls newer."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

# The bed is no installed package.
sys.path.append(str(Path(__file__).resolve().parents[1] / "bed"))

from bed.errors import BedError
from tests.packaging import outdated
from tests.packaging.environments import REPOSITORY


def test_pins_are_those_with_a_version():
    text = "a==1.0\nb[x,y]==2.0 \\\n    --hash=sha256:00\n    # via a==3\nc>=4\nd\ne==5; python_version < '3'\n"
    assert outdated.pins(text) == {"a": "1.0", "b": "2.0", "e": "5"}


def test_what_differs_from_the_newest_has_a_line_and_what_nobody_knows_has_none():
    found = list(outdated.older("file", {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "3"}))
    assert found == ["file: b 2, newest 3"]


@pytest.mark.parametrize(
    ("known", "version", "same_minor", "newest"),
    [
        (["v1.36.3", "v1.36.10", "v1.37.2"], "v1.36.3", True, "v1.36.10"),
        (["v1.36.3", "v1.36.10", "v1.37.2"], "v1.36.3", False, "v1.37.2"),
        (["v0.37.2", "v0.38.0-alpha.0", "v0.38.0-rc.1"], "v0.37.2", False, "v0.37.2"),
        (["v1.9.0", "v2.0.0+incompatible"], "v1.9.0", False, "v1.9.0"),
        ([], "v0.0.0-20260101000000-0123456789ab", False, "v0.0.0-20260101000000-0123456789ab"),
    ],
)
def test_a_release_is_newer_by_its_numbers(known: list[str], version: str, same_minor: bool, newest: str):
    assert outdated.newest_of(known, version, same_minor) == newest


def test_a_module_is_about_its_tools_and_what_it_needs_directly():
    text = "tool example.org/a/v2/cmd/x\n\nrequire example.org/b v1.0.0\n\nrequire (\n"
    text += "".join(f"\texample.org/{each}.0 // indirect\n" for each in ("a/v2 v2.1", "a v1.1", "c v1.2")) + ")\n"
    assert outdated.required(text) == {
        "example.org/b": "v1.0.0",
        "example.org/a/v2": "v2.1.0",
        "example.org/a": "v1.1.0",
    }


def test_every_module_of_the_repository_is_about_something():
    for path in REPOSITORY.glob("tests/**/go.mod"):
        text = path.read_text()
        if re.search(r"^require|^tool", text, re.MULTILINE):
            assert outdated.required(text), path


def test_a_proxy_that_does_not_answer_is_said_for_each_module():
    def ask(module: str) -> list[str]:
        raise BedError("403 Forbidden")

    found = list(outdated.of_modules(ask))
    assert found and all(line.endswith("nobody says what is newest") for line in found)


def test_modules_of_one_minor_stay_on_it():
    minors = sorted(path.name for path in (REPOSITORY / "tests/bed/kubernetes").glob("v*"))
    found = list(outdated.of_modules(lambda _: [*(f"{minor}.99" for minor in minors), "v1.99.0"]))
    of_kubernetes = [line.rpartition(" ")[2] for line in found if "/kubernetes/v1" in line]
    assert of_kubernetes == [f"{minor}.99" for minor in minors] and len(minors) > 2

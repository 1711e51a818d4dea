# SPDX-License-Identifier: Apache-2.0
"""`make outdated`: how it reads pins, and which versions it calls newer."""

from __future__ import annotations

import re

import pytest
import yaml

from bed import versions
from bed.errors import BedError
from tools.packaging import outdated
from tools.packaging.environments import CANDIDATES, CORES, REPOSITORY
from tools.packaging.outdated import Pin


def test_pins_are_those_with_a_version():
    text = "a==1.0\nb[x,y]==2.0 \\\n    --hash=sha256:00\n    # via a==3\nc>=4\nd\ne==5; python_version < '3'\n"
    assert outdated.pins(text) == {"a": "1.0", "b": "2.0", "e": "5"}


def test_what_differs_from_the_newest_has_a_line_and_what_nobody_knows_has_none():
    found = list(outdated.older("file", {"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "3"}))
    assert found == [Pin("file", "b", "2", "3")] and str(found[0]) == "file: b 2, newest 3"


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
    for path in REPOSITORY.glob("t*s/**/go.mod"):
        text = path.read_text()
        if re.search(r"^require|^tool", text, re.MULTILINE):
            assert outdated.required(text), path


def test_a_proxy_that_does_not_answer_is_said_for_each_module():
    def ask(module: str) -> list[str]:
        raise BedError("403 Forbidden")

    found = list(outdated.of_modules(ask))
    assert found and all(str(pin).endswith("no source names the newest version") for pin in found)


def test_modules_of_one_minor_stay_on_it():
    minors = sorted(path.name for path in (REPOSITORY / "tools/bed/kubernetes").glob("v*"))
    found = list(outdated.of_modules(lambda _: [*(f"{minor}.99" for minor in minors), "v1.99.0"]))
    of_kubernetes = [pin.newest for pin in found if "/kubernetes/v1" in pin.file]
    assert of_kubernetes == [f"{minor}.99" for minor in minors] and len(minors) > 2
    of_specs = [pin for pin in found if pin.file.endswith("e2e/suite/go.mod") and pin.name == "k8s.io/kubernetes"]
    assert [pin.newest for pin in of_specs] == [f"{versions.DEFAULT.rpartition('.')[0]}.99"]


OLD, UNLISTED = Pin("a.mod", "m", "v1", "v2"), Pin("a.mod", "n", "v1", "")
ARGUED = [
    {"file": "a.mod", "name": "m", "version": "v1", "why": "..."},
    {"file": "a.mod", "name": "n", "version": "v1", "unlisted": True, "why": "..."},
]


def test_a_pin_with_a_reason_is_accepted_and_another_is_not():
    assert outdated.judged([OLD, UNLISTED], ARGUED, lambda *_: True) == ([], 2)
    assert outdated.judged([OLD, UNLISTED], ARGUED[1:], lambda *_: True) == (["a.mod: m v1, newest v2"], 1)


@pytest.mark.parametrize(
    "pin",
    [
        pytest.param(Pin("a.mod", "m", "v1.1", "v2"), id="another version than the argued one"),
        pytest.param(Pin("b.mod", "m", "v1", "v2"), id="another file"),
        pytest.param(Pin("a.mod", "m", "v1", ""), id="nobody says what is newest"),
        pytest.param(Pin("a.mod", "n", "v1", "v2"), id="a proxy lists a newer one now"),
    ],
)
def test_a_reason_is_for_one_state_of_one_pin(pin: Pin):
    assert outdated.judged([pin], ARGUED, lambda *_: True) == ([str(pin)], 0)


def test_a_reason_without_its_pin_is_a_finding():
    lines, _ = outdated.judged([OLD], ARGUED[:1], lambda file, text: (file, text) != ("a.mod", "v1"))
    assert lines == ["outdated.yml: a.mod no longer has m v1: delete the entry"]


def test_each_reason_is_a_sentence_about_a_pin_that_is_there():
    argued = yaml.safe_load(outdated.ARGUED.read_text())
    assert all(len(entry["why"].split()) > 5 for entry in argued)
    assert outdated.judged([], argued, outdated.has) == ([], 0)


@pytest.mark.parametrize(
    ("newest", "candidate", "lines"),
    [
        pytest.param("2.21.5", "2.22.0rc1", [], id="as it is"),
        pytest.param("2.21.5", "2.22.0rc2", ["2.22.0rc1, newest 2.22.0rc2"], id="another candidate"),
        pytest.param("2.22.0", "2.22.0", ["2.22.0rc1, newest 2.22.0"], id="released"),
        pytest.param("2.22.3", "2.23.0b1", ["2.22.0rc1, newest 2.22.3"], id="released, and a beta that does not count"),
        pytest.param("2.22.0", "2.23.0rc1", ["2.22, newest 2.23.0rc1", "2.22.0rc1, newest 2.22.0"], id="the next one"),
    ],
)
def test_a_core_is_tried_from_its_first_candidate_on(newest: str, candidate: str, lines: list[str]):
    found = outdated.of_cores(newest, candidate, ["2.21", "2.22"], {"2.22": "2.22.0rc1"})
    assert [str(pin) for pin in found] == [f"tools/packaging/environments.py: ansible-core {line}" for line in lines]


def test_candidates_are_the_last_cores():
    assert list(CANDIDATES) == list(CORES)[len(CORES) - len(CANDIDATES) :]
    assert all(version.startswith(f"{core}.0rc") for core, version in CANDIDATES.items())


def test_the_peers_whose_tables_are_tried_are_asked_for():
    found = list(outdated.of_peers(lambda module: ["v0.99.0", "v1.99.0"]))
    assert {pin.name for pin in found} >= {"k8s.io/cloud-provider-aws", "k8s.io/cloud-provider"}
    assert {pin.newest for pin in found} == {"v0.99.0", "v1.99.0"}

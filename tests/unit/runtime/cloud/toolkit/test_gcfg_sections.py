# SPDX-License-Identifier: Apache-2.0
"""A provider's own configuration in gcfg: dataclasses, kinds, and all problems with their lines."""

from dataclasses import dataclass

import pytest

from ccm.cloud.toolkit.annotation_reader import Annotation, AnnotationTable, ServiceAnnotations, number, short_text
from ccm.cloud.toolkit.gcfg_sections import GcfgSections
from ccm.cloud.toolkit.setting_kinds import boolean, count, duration, key, names, one_of
from ccm.cloud.toolkit.setting_kinds import number as above_zero


@dataclass(frozen=True)
class Main:
    url: str = key("", "where the API is")
    token: str = key("", "who we are", secret=True)
    timeout: float = key(10.0, "for one request", duration)
    pages: int = key(100, "rows of a page", count)
    rate: float = key(2.5, "calls a second", above_zero)
    zone: tuple[str, ...] = key((), "zones", names)
    kind: str = key("a", "which", one_of("a", "b"))
    fast: bool = key(False, "be fast", boolean)


@dataclass(frozen=True)
class Renamed:
    burst: int = key(1, "how many calls", count, former="calls-burst")
    page_size: int = key(1, "rows", count)


@dataclass(frozen=True)
class Class:
    size: int = key(1, "how large", count)
    label: str = key("none", "what it is called")


def read(text, **more):
    return GcfgSections(text, {"Main": Main, "Class": Class}, named=("Class",), **more)


def test_values_become_what_their_kinds_say():
    found = read('[main]\nURL = http://x\ntimeout = 1m30s\nzone = a\nzone = b\nfast\n[Class "big"]\nsize = 9\n')
    assert found.section("Main") == Main(url="http://x", timeout=90.0, zone=("a", "b"), fast=True)
    assert (found.names_of("Class"), found.section("Class", "big")) == (["big"], Class(9))
    assert list(found.report()) == [] and found.lines("Main")["url"] == 2


def test_an_earlier_name_of_a_key_is_read_with_a_warning():
    found = GcfgSections("[Renamed]\ncalls-burst = 5\n", {"Renamed": Renamed})
    assert found.section("Renamed") == Renamed(burst=5) and found.problems == []
    assert found.ignored == ["line 2: [Renamed] calls-burst is deprecated: write burst"]
    found.problem("Renamed", "burst", "burst: too many")
    assert list(found.report()) == ["line 2: [Renamed] burst: too many"]


def test_an_earlier_name_does_not_hide_the_present_one():
    found = GcfgSections("[Renamed]\ncalls-burst = 5\nburst = 6\n", {"Renamed": Renamed})
    found.section("Renamed")
    assert list(found.report()) == ["line 3: [Renamed] burst: duplicate key with different values"]


def test_words_of_a_key_may_be_joined_without_a_separator():
    found = GcfgSections("[Renamed]\nPageSize = 5\n", {"Renamed": Renamed}, separator="")
    assert found.section("Renamed") == Renamed(page_size=5) and found.problems == []


def test_an_empty_value_is_a_text_and_stands_for_the_default_of_what_cannot_be_empty():
    found = read('[Class "big"]\nsize =\nlabel =\n')
    assert found.section("Class", "big") == Class(size=1, label="") and list(found.report()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[Main]\nurll = x\n", "line 2: [Main] urll: unknown key; did you mean url?"),
        ("[Man]\n", "line 1: [man]: unknown section; did you mean Main?"),
        ("[Other]\n", "line 1: [other]: unknown section; known sections are Main, Class"),
        ("[Class]\n", 'line 1: [Class]: must be written [Class "name"]'),
        ('[Main "x"]\n', "line 1: [Main]: must be written [Main]"),
        ("[Main]\ntimeout = 5\n", "line 2: [Main] timeout: expected a duration with its unit, such as 5s or 1m30s"),
        ("[Main]\npages = 0\n", "line 2: [Main] pages: expected a whole number greater than 0"),
        ("[Main]\nrate = inf\n", "line 2: [Main] rate: expected a number greater than 0"),
        ("[Main]\nkind = c\n", "line 2: [Main] kind: expected one of a, b"),
        ("[Main]\ntoken\n", "line 2: [Main] token: the value is missing"),
        ("[Main]\nkind = a\nkind = b\n", "line 3: [Main] kind: duplicate key with different values"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, problem):
    found = read(text)
    for name, sub in (("Main", ""), ("Class", "big")):
        found.section(name, sub)
    assert problem in list(found.report())


def test_no_problem_quotes_a_value():
    found = read("[Main]\ntimeout = s3cret\npages = s3cret\nrate = s3cret\nkind = s3cret\nfast = s3cret\n")
    found.section("Main")
    assert len(list(found.report())) == 5 and "s3cret" not in " ".join(found.report())
    assert "s3cret" not in repr(Main(token="s3cret"))


def test_keys_may_be_ignored_or_refused_with_a_reason():
    found = read("[Main]\nold = 1\nbad = 2\n", ignored={("Main", "old"): "it is old"}, refused={("Main", "bad"): "no"})
    found.section("Main")
    assert found.ignored == ["line 2: [Main] old has no effect: it is old"]
    assert list(found.report()) == ["line 3: [Main] bad: no"]


def test_a_provider_adds_problems_of_its_own_at_a_key():
    found = read("[Main]\nurl = x\n")
    found.section("Main")
    found.problem("Main", "token", "token: is missing", "url")
    found.problem("Main", "pages", "pages: is missing")
    assert list(found.report()) == ["[Main] pages: is missing", "line 2: [Main] token: is missing"]


TABLE = AnnotationTable(
    "lb.example.com/",
    [
        Annotation("lb.example.com/size", "number", "Size", number(1, 9)),
        Annotation("lb.example.com/name", "text", "Name", short_text),
        Annotation("other.example.com/name", "text", "Another's name", short_text),
    ],
)


def test_annotations_are_read_by_the_table():
    texts = {"lb.example.com/size": "3", "other.example.com/name": " x ", "unrelated": "1"}
    annotations = ServiceAnnotations(texts, TABLE)
    assert (annotations.get("size"), annotations.get("other.example.com/name")) == (3, "x")
    assert annotations.get("name", "none") == "none"
    assert annotations.is_set("size") and not annotations.is_set("name") and annotations.problems == []


def test_what_cannot_be_understood_is_told_and_cut():
    said = ServiceAnnotations({"lb.example.com/size": "x" * 1000, "lb.example.com/name": "y" * 5000}, TABLE)
    assert said.get("size") is None and len(said.problems) == 2
    assert all(len(problem) < 200 for problem in said.problems)
    assert "is not a whole number from 1 to 9" in said.problems[1]


def test_misspelt_annotations_are_named():
    given = {"lb.example.com/siz": "3", "lb.example.com/size": "3", "unrelated": ""}
    assert TABLE.unknown(given) == ["lb.example.com/siz"]
    assert len(TABLE.unknown({f"lb.example.com/x{number}": "" for number in range(99)})) == 10

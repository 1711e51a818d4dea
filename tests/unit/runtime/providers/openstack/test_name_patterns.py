# SPDX-License-Identifier: Apache-2.0
"""Globs and regular expressions for names: what they match, and that no pattern takes long."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud import Invalid
from ccm.providers.openstack import name_patterns

from ...loop_watch import quick

#: Pieces with a meaning in globs, in regular expressions or only in RE2, and ordinary characters.
PIECES = st.sampled_from(
    [*"ab*?[]!-^\\.(){}|+$/ \n", "é", "[a-z]", "[!ab]", "[]]", "[!]]", "[z-a]", "[a-]", "[[:alpha:]]"]
)
GLOBS = st.lists(PIECES, max_size=12).map("".join).filter(lambda text: not text.startswith(("~", "!")))


@settings(max_examples=500)
@given(pattern=GLOBS, name=st.text("ab-z]^\\.[é\n*", max_size=12))
def test_globs_are_pythons(pattern: str, name: str) -> None:
    assert name_patterns.name_matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "a*", "a**c", "ab" + "*" * 253, "?", "a?c", "[", "a[", "[a", "[]", "[!]", "[!", "[]]", "[!]]", "[]a]"),
        *(
            "[a-c]",
            "[!a-c]",
            "[c-a]",
            "[!c-a]",
            "[a-]",
            "[-a]",
            "[a-c-e]",
            "[]-a]",
            "[^a]",
            "[a.]c",
            "[ab",
            "x[a]c",
            "[a-a]",
            "é",
        ),
    ],
)
def test_each_part_of_a_glob_is_pythons(pattern: str) -> None:
    names = ["", *"abcdeé-][!^.", "ab", "ac", "bc", "a\nc", "abc", "a[", "[a", "[]", "[!]", "[!", "[ab", "xac", ".c"]
    expected = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    assert [name for name in names if name_patterns.name_matches(pattern, name)] == expected


def test_a_pattern_that_cannot_be_used_is_told_to_its_author_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid, match=r"^floating-subnet: RE2 cannot compile the pattern '\(': missing \): \($"):
        name_patterns.check("~(")
    assert capfd.readouterr() == ("", "")


def test_the_engine_is_asked_for_only_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert name_patterns.engine_problem() == ""
    monkeypatch.setattr(name_patterns.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'outoftree-ccm[openstack]'" in name_patterns.engine_problem()


def test_the_longest_pattern() -> None:
    name_patterns.check("a" * 255)
    with pytest.raises(Invalid, match="the pattern has 256 characters; at most 255 are allowed"):
        name_patterns.check("a" * 256)


@settings(max_examples=200)
@given(
    pattern=st.lists(st.sampled_from(["a", "b", ".", "a*", "(a|b)", "[ab]+", "a?", "b{1,2}"]), max_size=6).map("".join)
)
def test_regular_expressions_are_for_the_whole_name(pattern: str) -> None:
    for name in ("", "a", "ab", "aab", "abab", "c"):
        found = re.fullmatch(pattern, name) is not None
        assert name_patterns.name_matches(f"~{pattern}", name) is found
        assert name_patterns.name_matches(f"!~{pattern}", name) is not found


@pytest.mark.parametrize(
    "pattern", ["~(", r"~(a)\1", "~(?=a)", "~a{1001}", "~" + "(a{500}){500}", "a" * 256, "~" + ".{0,255}X" * 20]
)
def test_what_the_engine_cannot_do_in_little_memory_is_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="floating-subnet: "):
        name_patterns.check(pattern)


#: Patterns that are slow in some engines: with backtracking, with many states of an automaton, or with globs.
WORST = st.one_of(
    st.sampled_from(
        ["(a*)*", "(a|a)*", "(.|.|.|.)*", "(a|aa)+", "(((.*)*)*)*", "(a?){99}", r"\pL{50}", "(.*a){20}", ".{0,99}"]
    ).flatmap(lambda piece: st.integers(1, 40).map(lambda count: ("~" + piece * count + "X")[:255])),
    st.lists(st.sampled_from(["*", "a", "?", "[a-z]", "*a*"]), max_size=255).map(lambda pieces: "".join(pieces)[:255]),
    st.text(max_size=255).map(lambda text: "~" + text[:254]),
)


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@settings(max_examples=150)
@given(pattern=WORST)
def test_the_worst_pattern_keeps_nobody_waiting(pattern: str) -> None:
    """The limit covers compiling the pattern and matching it with very long names."""

    def matched() -> None:
        for name in ("a" * 255, "ab" * 200, "a" * 10_000):
            name_patterns.name_matches(pattern, name)

    quick(matched, Invalid)

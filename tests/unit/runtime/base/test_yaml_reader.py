# SPDX-License-Identifier: Apache-2.0
"""The reader of YAML files. `test_config_file.py` and `test_kubeconfig.py` test the reader through its users."""

from __future__ import annotations

import pytest

from ccm.base.yaml_reader import Document, spell

TEXT = """# a comment
a:
  b: [1, {c: 2}]
d: x
"""


def test_plain_values_come_as_they_are():
    document = Document.parse(TEXT, "f.yaml")
    assert document.data == {"a": {"b": [1, {"c": 2}]}, "d": "x"} and document.problems == []


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("a",), "f.yaml, line 2"),
        (("a", "b", 1, "c"), "f.yaml, line 3"),
        (("a", "missing"), "f.yaml, line 2"),
        (("a", "b", 7, "deeper"), "f.yaml, line 3"),
        (("d",), "f.yaml, line 4"),
        (("missing",), "f.yaml"),
        ((), "f.yaml"),
    ],
)
def test_the_place_of_a_key_or_of_what_is_around_it(path, place):
    assert Document.parse(TEXT, "f.yaml").place(path) == place


def test_problems_name_line_and_key():
    document = Document.parse(TEXT, "f.yaml")
    document.problem(("a", "b", 1, "c"), "is wrong")
    document.problem((), "is wrong")
    assert document.mapping(("d",), "x") == {} and document.mapping(("e",), None) == {}
    document.unknown(("D",), ["d", "e"])
    assert document.problems == [
        "f.yaml, line 3: a.b[1].c: is wrong",
        "f.yaml: is wrong",
        "f.yaml, line 4: d: expected keys and values, not 'x'",
        "f.yaml: D: unknown key; did you mean d?",
    ]


def test_a_key_that_is_given_twice_is_a_problem_and_the_first_line_is_its_place():
    document = Document.parse("a: 1\nb: 2\na: 3\n", "f.yaml")
    assert document.problems == ["f.yaml, line 1: a: duplicate key, set again in line 3"]
    assert document.data == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("text", "problem", "without_quotes"),
    [
        (
            "a: *pass",
            "f.yaml, line 1: this is not YAML: found undefined alias 'pass'",
            "f.yaml, line 1: this is not YAML",
        ),
        ("a: 2020-13-45", "f.yaml: this is not YAML: month must be in 1..12", "f.yaml: this is not YAML"),
        ("a: b: c", "f.yaml, line 1: this is not YAML: mapping values are not allowed here", None),
        ("a: &a [*a]", "f.yaml: this is not YAML: nested more than 20 deep", None),
        (f"[{'1,' * 10_000}]", "f.yaml: this is not YAML: more than 10000 values", None),
    ],
    ids=["alias", "date", "mapping", "deep", "many"],
)
def test_of_a_file_with_secrets_nothing_is_quoted(text, problem, without_quotes):
    assert Document.parse(text, "f.yaml").problems == [problem]
    assert Document.parse(text, "f.yaml", secret=True).problems == [without_quotes or problem]


def test_paths_are_spelt_as_people_write_them():
    assert spell(("Generic", "LeaderMigration", "controllerLeaders", 0, "name")) == (
        "Generic.LeaderMigration.controllerLeaders[0].name"
    )


@pytest.mark.parametrize("value", ["!!bool perhaps", "!!timestamp x", "!!int ''"])
def test_a_value_that_has_not_the_form_of_its_tag_is_a_problem(value):
    document = Document.parse(f"a: {value}", "f.yaml")
    (problem,) = document.problems
    assert document.data is None and "does not have the form of !!" in problem
    (secret,) = Document.parse(f"a: {value}", "f.yaml", secret=True).problems
    assert secret == "f.yaml: this is not YAML"

# SPDX-License-Identifier: Apache-2.0
"""A YAML reader that keeps the line number of each value."""

import pytest

from ccm.cloud.toolkit.located_yaml import Located, Problems, Unreadable, read, shown


def found(text):
    problems = Problems("f.yml")
    return read(text, problems), problems.reported


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_document_is_nothing_in_its_first_line(text):
    assert found(text) == (Located(None, 1), [])


def test_values_know_their_lines():
    document, problems = found("a: 1\nb:\n- x\n- !vault y\n")
    assert problems == [] and document.line == 1
    assert document.value["a"] == Located(1, 1) and document.value["b"].line == 2
    assert document.value["b"].value == [Located("x", 3), Located(Unreadable("!vault"), 4)]


@pytest.mark.parametrize("tag", ["bool", "int", "timestamp"])
def test_a_value_that_has_not_the_form_of_its_tag_is_text(tag):
    document, problems = found(f"a: !!{tag} perhaps")
    assert problems == [] and document.value["a"].value == "perhaps"


@pytest.mark.parametrize(
    ("own", "values"),
    [
        ("<<: *one", {"a": 1, "b": 2}),
        ("{<<: *one, b: 3}", {"a": 1, "b": 3}),
        ("{b: 3, <<: *one}", {"a": 1, "b": 3}),
        ("<<: [*one, *two]", {"a": 1, "b": 2, "c": 5}),
    ],
)
def test_a_merged_mapping_is_part_of_the_one_that_merges_it_and_its_own_keys_count_more(own, values):
    text = f"one: &one {{a: 1, b: 2}}\ntwo: &two {{b: 4, c: 5}}\nown:\n  {own}\n"
    document, problems = found(text)
    assert problems == []
    assert {key: each.value for key, each in document.value["own"].value.items()} == values


def test_a_key_that_stands_twice_is_a_problem_beside_a_merged_mapping_as_well():
    assert [at for at, _ in found("one: &one {a: 1}\nown:\n  <<: *one\n  b: 2\n  b: 3\n")[1]] == [5]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),
        ("a: &a\n  b: *a\n", 1),
        ("a: [\n", 2),
        ("\x00", 1),
    ],
)
def test_a_problem_has_its_line(text, line):
    assert [at for at, _ in found(text)[1]] == [line]


def test_what_is_no_yaml_is_nothing_in_the_first_line():
    assert found("a: 1\nb: [\n")[0] == Located(None, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{}", "an empty mapping"), ("[1]", "a list"), ("~", "nothing"), ("x", "'x'"), ("{a: 1}", "a mapping")],
)
def test_a_value_in_a_message(text, expected):
    assert shown(found(text)[0]) == expected

# SPDX-License-Identifier: Apache-2.0
"""Lines of gcfg: values that continue on the next line, and lines after one that cannot be read."""

import pytest

from ccm.cloud.toolkit import gcfg


def values(text):
    return [entry.value for entry in gcfg.read(text).entries]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a]\nb = c\\\nd\n", ["cd"]),
        ('[a]\nb = "c\\\\"\n', ["c\\"]),
        ('[a]\nb = "c\\\\"\\\nd\n', ["c\\d"]),  # an escaped backslash, then one that continues the line
        ("[a]\nb = c # d\\\ne = f\n", ["c", "f"]),  # a backslash does not continue a comment
        ("[a]\nb =\n", [""]),
        ("[a]\nb = # nothing\n", [""]),
        ("[a]\nb = x  # y\n", ["x"]),
        ('[a]\nb = " x " # y\n', [" x "]),
        ('[a]\nb = ""\n', [""]),
    ],
)
def test_values(text, expected):
    assert (values(text), gcfg.read(text).problems) == (expected, [])


def test_a_last_line_that_would_go_on_is_a_problem():
    assert [line for line, _ in gcfg.read("[a]\nb = c\\").problems] == [2]


@pytest.mark.parametrize(
    ("bad", "read"),
    [
        ("[odd!", []),  # the next line belongs to no section
        ("= x", ["c"]),
        ("b = \\x", ["c"]),
    ],
)
def test_what_follows_a_line_that_cannot_be_read_is_read(bad, read):
    found = gcfg.read(f"[a]\n{bad}\nb = c\n[d]\ne = f\n")
    assert [entry.value for entry in found.entries] == [*read, "f"]
    assert found.problems[0][0] == 2 and found.sections == [("a", "", 1), ("d", "", 4)]

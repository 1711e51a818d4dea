# SPDX-License-Identifier: Apache-2.0
"""Text from tenants and kubelets, as it is shown to people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.base.text import QUOTED, printable, quoted, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        ("a\nb\r\x0b\u2028c", r"a\nb\r\x0b\u2028c"),
        ("\x1b[2J\x9b1m", r"\x1b[2J\x9b1m"),
        ("user\u202etxt", r"user\u202etxt"),
        ("\ud800\x00", r"\ud800\x00"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_whatever_it_is_it_is_one_line_that_can_be_written(text):
    for shown in (printable(text), quoted(text)):
        assert shown.isprintable() and len(shown.splitlines()) <= 1
        shown.encode()


def test_long_text_says_how_long_it_is():
    assert shorten("a" * 5, 5) == "aaaaa"
    assert shorten("a" * 6, 5) == "aaaaa... (6 characters)"
    assert quoted("a" * QUOTED) == repr("a" * QUOTED)
    assert quoted("a" * 10**6) == "'" + "a" * QUOTED + "'... (1000000 characters)"

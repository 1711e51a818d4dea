# SPDX-License-Identifier: Apache-2.0
"""Label selectors as Kubernetes writes them."""

from __future__ import annotations

import pytest

from ccm.providers.hetzner.label_selectors import Selector

LABELS = {"role": "web", "example.com/zone": "a", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("  ", True),
        ("role=web", True),
        ("role==web", True),
        ("role = db", False),
        ("role!=db", True),
        ("role!=web", False),
        ("other!=web", True),
        ("role", True),
        ("other", False),
        ("!other", True),
        ("! role", False),
        ("example.com/zone in (a, b)", True),
        ("example.com/zone in (b)", False),
        ("example.com/zone notin (a,b)", False),
        ("other notin (a)", True),
        ("empty=", True),
        ("role=web,example.com/zone in (a,b),!other", True),
        ("role=web,example.com/zone in (b,c)", False),
    ],
)
def test_a_selector_matches_labels(text: str, matches: bool) -> None:
    assert Selector.parse(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text",
    [
        "=",
        "a=b=c",
        "a in b",
        "a in (b",
        "a,,b",
        "a b",
        "!a=b",
        "a=b c",
        "-a",
        "a in (b c)",
        "a in (b,c d)",
        "x" * 64,
        "a," * 32 + "a",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a label selector such as"):
        Selector.parse(text)


def test_the_most_that_is_read() -> None:
    assert len(Selector.parse(",".join("a" * (n + 1) for n in range(32))).conditions) == 32
    assert Selector.parse("x" * 63).conditions[0].key == "x" * 63
    assert Selector.parse("a" + " " * 2047).matches({"a": ""})
    with pytest.raises(ValueError, match="label selector"):
        Selector.parse(" " * 2049 + "a")

# SPDX-License-Identifier: Apache-2.0
"""The page about sizing gets the figures of the last benchmarks, and keeps what people wrote."""

from __future__ import annotations

import pytest

from tools.bench import page, sizing

PAGE = "before\n<!-- `make bench` writes this: {} -->\nold\n<!-- end -->\nafter\n"


def runs() -> sizing.Runs:
    return {name: result["runs"] for name, result in page.read().items()}


def test_the_page_has_the_figures_that_are_kept() -> None:
    text = page.SIZING.read_text()
    assert sizing.render(text, runs()) == text
    assert "| 100 |" in text and "| 15,000 |" in text and "| Restart with 5,000 unchanged Services |" in text


def test_only_what_is_between_the_comments_is_replaced() -> None:
    rendered = sizing.render(PAGE.format("nodes"), runs())
    assert "old" not in rendered
    assert rendered.startswith("before\n<!-- ") and rendered.endswith("<!-- end -->\nafter\n")
    assert sizing.render(rendered, runs()) == rendered


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(KeyError, match="volumes"):
        sizing.render(PAGE.format("volumes"), runs())

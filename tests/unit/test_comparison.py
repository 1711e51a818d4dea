# SPDX-License-Identifier: Apache-2.0
"""Comparisons of providers with their vendors' controllers: figures that tests confirm, and the page's table."""

import re
from pathlib import Path

import pytest

from tests import comparison
from tests.comparison import table
from tests.comparison.belongings import Belongings, Replacements, unequal
from tests.comparison.differences import Difference, are_listed, differing, rows_of


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(comparison, "RESULTS", tmp_path)
    monkeypatch.delenv("RECORD_COMPARISON", raising=False)
    return tmp_path


def test_figures_are_recorded_and_then_confirmed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as recording:
        recording.setenv("RECORD_COMPARISON", "1")
        comparison.confirm("acme", "nodes equal", "3 of 3")
        comparison.confirm_calls("acme", "create", ours=4, theirs=20)
        comparison.confirm_calls("acme", "delete", ours=1, theirs=None)
    comparison.confirm("acme", "nodes equal", "3 of 3")
    comparison.confirm_calls("acme", "create", ours=4, theirs=20)
    comparison.confirm_calls("acme", "create", ours=3, theirs=26)
    comparison.confirm_calls("acme", "delete", ours=1, theirs=None)


@pytest.mark.parametrize(("ours", "theirs"), [(5, 20), (4, 28), (4, 12), (4, None)])
def test_other_counts_are_refused(results: Path, ours: int, theirs: int | None) -> None:
    (results / "acme.yml").write_text("calls: {create: {ours: 4, theirs: 20}}")
    with pytest.raises(AssertionError, match="create"):
        comparison.confirm_calls("acme", "create", ours=ours, theirs=theirs)


def test_another_fact_and_one_that_is_not_written_are_refused(results: Path) -> None:
    (results / "acme.yml").write_text("nodes equal: 3 of 3")
    with pytest.raises(AssertionError, match="2 of 3"):
        comparison.confirm("acme", "nodes equal", "2 of 3")
    with pytest.raises(AssertionError, match="faults survived"):
        comparison.confirm("acme", "faults survived", "1 of 1")
    with pytest.raises(AssertionError, match="not written"):
        comparison.confirm_calls("acme", "delete", ours=1, theirs=None)


def test_the_table_is_replaced_and_what_stands_around_it_stays(tmp_path: Path) -> None:
    page = tmp_path / "index.md"
    page.write_text(f"# Before\n\n{table.MARK}| old |\n|---|\n\nAfter\n")
    table.render(page)
    text = page.read_text()
    assert text == f"# Before\n\n{table.table()}\nAfter\n"


def test_the_page_has_what_is_written() -> None:
    assert table.table() in table.PAGE.read_text(), "run `make docs`"


def belongings(**fields: int) -> Belongings:
    found = Belongings(re.compile("id|.*_at"))
    found.add("listener", "TCP 80", {"id": "made here", "created_at": "now", **fields})
    return found


def test_fields_are_compared_and_identities_are_kept_apart() -> None:
    one, other = belongings(port=80, limit=1), belongings(port=80, limit=2)
    other.add("monitor", "", {})
    assert unequal(one, other) == {"listener TCP 80: limit": (1, 2), "monitor: exists": (False, True)}
    assert one.ids == {("listener", "TCP 80"): "made here"}


def test_texts_are_replaced_at_any_depth_and_only_whole() -> None:
    says = Replacements({"10.0.0.1": "VIP of web"})
    assert says.replaced({"a": ["at 10.0.0.1", "10.0.0.10", 7]}) == {"a": ["at VIP of web", "10.0.0.10", 7]}


def test_only_what_is_listed_may_differ_and_all_that_is_listed_does() -> None:
    found = differing({"web": belongings(limit=1)}, {"web": belongings(limit=2)})
    are_listed(found, [Difference("Limits", ("listener *: limit",), ("web",))])
    with pytest.raises(AssertionError, match="limit"):
        are_listed(found, [])
    with pytest.raises(AssertionError, match="Tags"):
        are_listed(found, [Difference("Limits", ("* limit",)), Difference("Tags", ("* tags",))])
    with pytest.raises(AssertionError):
        are_listed(found, [Difference("Limits", ("* limit",), ("web", "other"))])


def test_rows_of_a_page_are_those_below_the_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n\n| x |\n\n## B\n\n| What | Why |\n|---|---|\n| one | 1 |\n| two | 2 |\n\n# C\n\n| three |\n")
    assert rows_of(page, "## B") == ["one", "two"]

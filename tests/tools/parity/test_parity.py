# SPDX-License-Identifier: Apache-2.0
"""Each behaviour of upstream has a test of ours, or a note with the reason; the page says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.parity import collector
from tools.parity.collector import HERE, PAGE, Parity, ParityError, contradictions, ids_of, load, missing, render


@pytest.fixture(scope="module")
def parity(request: pytest.FixtureRequest) -> Parity:
    """Load the parity. If this run deselects single tests, collect all tests again instead of using its own list."""
    chosen = [name for name in ("keyword", "markexpr", "deselect", "lf") if request.config.getoption(name, None)]
    return load(collector.collect_node_ids([] if chosen else [item.nodeid for item in request.session.items]))


def test_every_behaviour_is_shown_or_does_not_apply(parity: Parity):
    assert missing(parity) == []


def test_notes_and_tests_fit_the_behaviours(parity: Parity):
    assert contradictions(parity) == []


def test_the_page_is_what_the_tests_say(parity: Parity):
    assert PAGE.read_text() == render(parity), f"{PAGE.name} is stale: run `make parity`"


def test_the_behaviours_are_complete_and_in_order(made):
    sections = made("").sections
    expected = {
        "nodes": [f"N{n}" for n in range(1, 48)],
        "addresses": [f"A{n}" for n in range(1, 19)] + [f"T{n}" for n in range(1, 11)],
        "lifecycle": [f"L{n}" for n in range(1, 33)],
        "services": [f"S{n}" for n in range(1, 160)],
        "routes": [f"R{n}" for n in range(1, 44)],
        "application": [f"C{n}" for n in range(1, 23)],
        "weaknesses": [f"W{n}" for n in range(1, 34)],
    }
    assert {name: list(behaviours) for name, behaviours in sections.items()} == expected
    for name, behaviours in sections.items():
        assert all(name == "weaknesses" or text.count(" -> ") == 1 for text in behaviours.values()), name


@pytest.mark.parametrize(
    ("node_id", "expected"),
    [
        ("a/test_x.py::test_y[N5-N15-zoned]", ["N5", "N15"]),
        ("a/test_x.py::test_N22_what_fails", ["N22"]),
        ("a/test_x.py::TestIt::test_N39_N42_calls[5 workers]", ["N39", "N42"]),
        ("a/test_x.py::test_y[W9-dual]", ["W9"]),
        ("a/test_N1.py::test_y", []),
        ("a/test_x.py::test_n1_lower_case", []),
        ("a/test_x.py::test_y[S49b-IPv4-S3x]", []),
    ],
)
def test_ids_are_found_in_names_and_parameters(node_id: str, expected: list[str]):
    assert ids_of(node_id) == expected


@pytest.fixture
def made(tmp_path: Path):
    """Return a function that builds a Parity from the real behaviours, the given notes and node IDs."""

    def make(notes: str, *node_ids: str) -> Parity:
        (tmp_path / "behaviours").symlink_to(HERE / "behaviours")
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "some.yml").write_text(notes)
        return load(node_ids, here=tmp_path)

    return make


def test_an_id_without_test_and_note_is_missing(made):
    parity = made("N2: {kind: not-applicable, why: because}\nW1: {kind: kept, how: so}", "a.py::test_N1_x")
    absent = missing(parity)
    assert "N3" in absent and "W2" in absent
    assert not {"N1", "N2", "W1"} & set(absent)
    assert "N3, " in render(parity)


def test_a_difference_needs_a_test_all_the_same(made):
    assert "N1" in missing(made("N1: {kind: different, why: because}"))


@pytest.mark.parametrize(
    ("notes", "node_ids", "problem"),
    [
        ("N99: {kind: different, why: x}", [], "some.yml: N99 is no behaviour"),
        ("", ["a.py::test_y[S160]"], "a.py::test_y: S160 is no behaviour"),
        (
            "N1: {kind: not-applicable, why: x}",
            ["a.py::test_N1_y"],
            "some.yml: N1 does not apply, but a.py::test_N1_y carries it",
        ),
        (
            "W1: {kind: removed, how: x}",
            [],
            "some.yml: W1 is removed, but neither evidence nor a test that carries W1 shows it",
        ),
        (
            "W1: {kind: removed, how: x, evidence: test_gone}",
            ["a.py::test_W1_y"],
            "some.yml: W1: 'test_gone' is neither a test, a metric nor a file",
        ),
        (
            "N1: {kind: different, why: x, evidence: [ccm_no_such_metric_total]}",
            ["a.py::test_N1_y"],
            "some.yml: N1: 'ccm_no_such_metric_total' is neither a test, a metric nor a file",
        ),
    ],
)
def test_contradictions_are_named(made, notes, node_ids, problem):
    assert contradictions(made(notes, *node_ids)) == [problem]


@pytest.mark.parametrize(
    "evidence",
    ["test_y", "ccm_node_deletions_held_total", "docs/architecture.md", "[test_y, Makefile]"],
)
def test_evidence_is_a_test_a_metric_or_a_file(made, evidence):
    parity = made(f"W1: {{kind: removed, how: x, evidence: {evidence}}}", "a.py::test_y[1]")
    assert contradictions(parity) == []


@pytest.mark.parametrize(
    ("notes", "problem"),
    [
        ("N1: {kind: removed, how: x}", "some.yml: N1: kind must be one of different, not-applicable"),
        ("W1: {kind: different, why: x}", "some.yml: W1: kind must be one of removed, kept"),
        ("N1: {kind: different}", "some.yml: N1: 'why' must be a sentence"),
        ("N1: {kind: different, why: x, evidnce: y}", "some.yml: N1: unknown 'evidnce'"),
        (
            "N1: {kind: different, why: x, and y}",
            "some.yml: N1: unknown 'and y' (a sentence with a comma needs quotes)",
        ),
        ("[N1]", "some.yml: not a mapping of IDs"),
        ("W1: {kind: removed, how: x}\nW1: {kind: removed, how: y}", "some.yml: more than one entry for W1"),
    ],
)
def test_malformed_notes_are_refused(made, notes, problem):
    with pytest.raises(ParityError, match=f"^{re.escape(problem)}"):
        made(notes)


def test_the_page_tells_what_is_same_different_and_not_applicable(made):
    page = render(
        made(
            "N2: {kind: different, why: better}\nN3: {kind: not-applicable, why: none here}\n"
            "W4: {kind: removed, how: asked twice, evidence: [test_y, ccm_build_info, docs/architecture.md]}",
            "tests/a.py::test_y[N1-x]",
            "tests/a.py::test_y[N1-z]",
            "tests/a.py::test_N2_z",
        )
    )
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    assert rows["N1"].endswith(" | same | [a::test_y](../../tests/a.py) |")
    assert rows["N2"].endswith(" | different: better | [a::test_N2_z](../../tests/a.py) |")
    assert rows["N3"].endswith(" | not applicable: none here |  |")
    proofs = "[a::test_y](../../tests/a.py), `ccm_build_info`, [architecture.md](../../docs/architecture.md)"
    assert rows["W4"].endswith(f" | removed: asked twice | {proofs} |")
    assert rows["[Node controller](#node-controller)"].endswith(" | 47 | 1 | 1 | 1 |")
    assert "removes 1 and keeps 0" in page

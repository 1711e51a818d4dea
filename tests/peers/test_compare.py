# SPDX-License-Identifier: Apache-2.0
"""The judging, the page and the reading of peers' tables of `make peers-tests`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bed import go_modules
from bed.errors import BedError
from bed.progress import Progress

from . import page, tables
from .compare import Result, compare
from .suite import ERROR, Row, Suite, outcome

NOTE = {"kind": "different", "why": "on purpose"}


def suite_of(adapter: Any, rows: int = 1) -> Suite:
    suite = Suite("peer", "pkg")
    suite.table("x_test.go::TestX", rows=rows)(adapter)
    return suite


def double(row: Row) -> tuple[Any, Any]:
    return row["want"], row["in"] * 2


def judged(rows: Any, notes: Any = None, adapter: Any = double, expected: int = 1) -> Result:
    found = {"pkg/x_test.go": {"TestX": {"tests": rows}}}
    return compare(suite_of(adapter, expected), found, {} if notes is None else {"TestX": notes})


GOOD, BAD = {"name": "a", "in": 1, "want": 2}, {"name": "a", "in": 1, "want": 3}


def test_a_case_that_agrees_is_no_finding():
    result = judged([GOOD])
    assert (result.cases, result.agreed, result.explained, result.findings) == (1, 1, {}, [])


def test_a_disagreement_with_a_sentence_is_explained():
    result = judged([BAD], {"a": NOTE})
    assert (result.agreed, result.explained, result.findings) == (0, {("TestX", "a"): "different"}, [])


@pytest.mark.parametrize(
    ("rows", "notes", "expected", "finding"),
    [
        ([BAD], None, 1, "'a': the peer expects 3, ours gives 2"),
        ([GOOD], {"a": NOTE}, 1, "'a' agrees now: remove its sentence"),
        ([GOOD, {**GOOD, "name": "b"}], None, 1, "2 rows, 1 before"),
        ([GOOD], None, 2, "1 rows, 2 before"),
        ([{**GOOD, "in": {"$ident": "x.Y"}}], None, 1, "'a': unresolved: in is $ident x.Y"),
        ([{"name": "a"}], None, 1, "'a': the adapter failed: KeyError: 'want'"),
        ([BAD], {"a": NOTE, "b": NOTE}, 1, "'b' has a sentence, but is no case"),
        ([BAD], {"a": {"kind": "odd", "why": "x"}}, 1, "kind must be one of"),
        ([BAD], {"a": {"kind": "different", "why": " "}}, 1, "why must be a sentence"),
        ([BAD], {"a": {"kind": "different"}}, 1, "a note has the keys kind and why"),
        (None, None, 1, "there is no table 'tests' any more"),
    ],
)
def test_findings(rows, notes, expected, finding):
    assert any(finding in text for text in judged(rows, notes, expected=expected).findings)


def test_cases_are_named_by_the_row_else_by_key_or_number_and_none_hides_another():
    suite = suite_of(double)
    names = [name for name, _ in suite.tables[0].cases([GOOD, GOOD, {"desc": "c"}, {}])]
    assert names == ["a", "a (1)", "c", "3"]
    assert [name for name, _ in suite.tables[0].cases({"k": 1})] == ["k"]


def test_a_row_gives_calls_apart_and_walks_down():
    row = Row({"f": {"$call": "make", "args": [1]}, "a": {"b": {"c": 3}}, "n": None})
    assert row.call("f") == ("make", [1])
    assert row.call("a") is None
    assert row.at("a", "b", "c") == 3
    assert row.at("n", "b", default="x") == "x"


def test_a_refusal_is_an_error():
    assert outcome(lambda: int("x")) == ERROR
    assert outcome(lambda: int("7")) == 7


def test_the_page_counts_kinds_and_sums_up(tmp_path):
    result = Result("peer", 4, 2, {("T", "a"): "stricter", ("T", "b"): "not-comparable"})
    lines = page.table([result], {"peer": tables.Root("example.org/peer", "v1", ())})
    assert lines[2:] == ["| `example.org/peer` | v1 | 4 | 2 | 0 | 1 | 1 |", "| **all** |  | 4 | 2 | 0 | 1 | 1 |"]
    assert page.is_stale(lines, tmp_path / "x.md")
    assert not page.is_stale(lines, tmp_path / "x.md")


def test_the_page_has_all_suites_at_the_versions_of_roots():
    rows = [re.findall(r"`(.+?)` \| (\S+)", line) for line in page.RESULTS.read_text().splitlines()]
    assert sorted(pair for row in rows for pair in row) == sorted(
        (root.module, root.version) for root in tables.roots().values()
    )


SOURCE = """package peer

import (
	"testing"
	v1 "k8s.io/api/core/v1"
)

const base = "kube"

type pair struct{ left, right string }

func name(text string) string { return base + "-" + text }

func TestX(t *testing.T) {
	size := 2
	tests := []struct {
		name string
		in   int
		kind v1.Kind
		pair pair
		more map[string]int
		fn   func()
	}{
		{"a", size * 3, v1.Internal, pair{"l", name("r")}, map[string]int{base: 1}, nil},
		{name: "b", in: -1, kind: v1.Missing, fn: func() {}},
	}
	for range tests {
	}
}
"""


def read(folder: Path, package: str = "peer") -> dict[str, Any]:
    (folder / "peer").mkdir()
    (folder / "peer/x_test.go").write_text(SOURCE)
    api = folder / "api/core/v1"
    api.mkdir(parents=True)
    (api / "types.go").write_text('package v1\n\ntype Kind string\n\nconst Internal Kind = "InternalIP"\n')
    suites = {"s": {"dir": str(folder), "packages": [package], "modules": {"k8s.io/api": str(folder / "api")}}}
    return tables.gotables({"suites": suites}, Progress())


def test_tables_are_read_with_constants_of_all_packages(tmp_path):
    found = read(tmp_path)["s"]["peer/x_test.go"]["TestX"]["tests"]
    assert found[0] == {
        "name": "a",
        "in": 6,
        "kind": "InternalIP",
        "pair": {"left": "l", "right": "kube-r"},
        "more": {"kube": 1},
        "fn": None,
    }
    assert found[1] == {"name": "b", "in": -1, "kind": {"$ident": "Missing"}, "fn": {"$func": "func"}}


def test_a_module_whose_layout_changed(tmp_path):
    with pytest.raises(BedError, match=r'no test file in package "gone" .*: has the module\'s layout changed\?'):
        read(tmp_path, package="gone")


def test_a_module_that_does_not_require_an_import_any_more(tmp_path):
    (tmp_path / "go.mod").write_text("module x\n\nrequire k8s.io/api v0.1.0\n")
    root = tables.Root("x", "v1", (), ("k8s.io/api", "k8s.io/gone"))
    with pytest.raises(BedError, match=r"x@v1 does not require k8s\.io/gone any more"):
        tables._imports(tmp_path, root)


@pytest.mark.parametrize("proxy", ["file:///nowhere/at/all", "http://127.0.0.1:1"])
def test_a_version_that_does_not_exist_and_an_unreachable_proxy(proxy, monkeypatch):
    monkeypatch.setenv("GOPROXY", proxy)
    monkeypatch.setenv("GONOSUMDB", "*")
    monkeypatch.setenv("GOFLAGS", "-mod=mod")
    with pytest.raises(BedError, match=r"Go cannot get example\.org/peer@v9\.9\.9: "):
        go_modules.download([("example.org/peer", "v9.9.9")], Progress())


def test_the_notes_are_of_suites_that_are_there():
    notes = yaml.safe_load((Path(__file__).parent / "known.yml").read_text())
    assert notes.keys() <= tables.roots().keys()

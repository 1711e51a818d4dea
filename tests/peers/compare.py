# SPDX-License-Identifier: Apache-2.0
"""Compares our functions with the cases of peers. A case agrees, is explained in known.yml, or is a finding. Pure.

    vsphere:
      TestDiscoverNodeIPs:
        NAME OF THE CASE: {kind: different, why: one sentence}

Kinds: `different`: on purpose; `stricter`: our function refuses what the peer accepts; `not-comparable`: the row of the
peer's test table does not contain enough by itself, or needs something that our code does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .suite import Suite, Table, Unresolved

KINDS = ("different", "stricter", "not-comparable")
#: Notes by test and case.
Notes = Mapping[str, Mapping[str, Any]]


@dataclass
class Result:
    """The result of a suite: how many cases it has and how many agree, the explanations by test and case, and what is
    wrong."""

    suite: str
    cases: int = 0
    agreed: int = 0
    explained: dict[tuple[str, str], str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def compare(suite: Suite, tables: Mapping[str, Any], notes: Notes) -> Result:
    result, used = Result(suite.name), set()
    for table in suite.tables:
        where = f"{suite.name}: {table.file}: {table.test}"
        variables = tables.get(table.file, {}).get(table.test)
        # A test without a table is one case, with its variables.
        values = variables and (variables.get(table.variable) if table.variable else {table.test: variables})
        if not values:
            result.findings.append(f"{where}: there is no table {table.variable!r} any more: change its adapter")
            continue
        if len(values) != table.rows:
            result.findings.append(
                f"{where}: {len(values)} rows, {table.rows} before: look at the new ones, then change its adapter"
            )
        for name, row in table.cases(values):
            note = notes.get(table.test, {}).get(name)
            used.add((table.test, name))
            _judge(result, f"{where}: {name!r}", table, row, note, name)
    result.findings.extend(_of_nothing(suite.name, notes, used))
    return result


def _judge(result: Result, where: str, table: Table, row: Any, note: Any, name: str) -> None:
    result.cases += 1
    disagreement = run(table, row)
    if not disagreement:
        result.agreed += 1
        if note is not None:
            result.findings.append(f"{where} agrees now: remove its sentence from known.yml")
    elif note is None:
        result.findings.append(f"{where}: {disagreement}")
    elif problem := note_problem(note):
        result.findings.append(f"{where}: {problem}")
    else:
        result.explained[table.test, name] = note["kind"]


def run(table: Table, row: Any) -> str:
    """Run a case; return why it does not agree, "" if it does."""
    try:
        expected, ours = table.adapter(row)
    except Unresolved as error:
        return f"unresolved: {error}"
    except Exception as error:
        return f"the adapter failed: {type(error).__name__}: {error}"
    return "" if expected == ours else f"the peer expects {expected!r}, ours gives {ours!r}"


def note_problem(note: Any) -> str:
    """Return what is wrong with a note of known.yml; "" if nothing is."""
    if not isinstance(note, dict) or set(note) != {"kind", "why"}:
        return "a note has the keys kind and why, and no others"
    if note["kind"] not in KINDS:
        return f"kind must be one of {', '.join(KINDS)}"
    if not isinstance(note["why"], str) or not note["why"].strip():
        return "why must be a sentence"
    return ""


def _of_nothing(suite: str, notes: Notes, used: Iterable[tuple[str, str]]) -> list[str]:
    cases = {(test, str(name)) for test, named in notes.items() for name in named}
    return [f"{suite}: {test}: {name!r} has a sentence, but is no case" for test, name in sorted(cases - set(used))]

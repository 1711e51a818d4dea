# SPDX-License-Identifier: Apache-2.0
"""Writes results as JSON, JUnit and HTML. A stopped run resumes from the JSON file."""

from __future__ import annotations

import dataclasses
import html
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from .behaviour import Behaviour
from .errors import SuiteError
from .runner import Result

MARKS = {"passed": "yes", "failed": "**no**", "skipped": "not asked"}


class Results:
    """The results of a controller. Each result is stored in a file at once, so that a stopped run can go on.

    `seconds`: how long the runs took up to the last result, 0 if the file of an earlier run does not have it.
    """

    def __init__(self, path: Path, controller: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self.controller, self._clock = path, controller, clock
        self.by_id: dict[str, Result] = {}
        self.seconds = self._earlier = 0.0
        self._is_timed = True
        self._began = clock()

    def resume(self) -> None:
        """Read the file, if it exists. Raises SuiteError if it has the results of another controller, or is not a file
        of results."""
        if not self._path.exists():
            return
        try:
            document = json.loads(self._path.read_text())
            kept = {row["id"]: Result(**row) for row in document["results"]}
            name, seconds = document["controller"], float(document.get("seconds", 0))
        except (ValueError, KeyError, TypeError) as error:
            raise SuiteError(f"{self._path} has no results of this suite: {error}") from error
        if name != self.controller:
            raise SuiteError(f"{self._path} has the results of {name}, not of {self.controller}")
        self.by_id = kept
        self.seconds = self._earlier = seconds
        self._is_timed = bool(seconds) or not kept

    def add(self, result: Result) -> None:
        self.by_id[result.id] = result
        self.seconds = round(self._earlier + self._clock() - self._began, 1) if self._is_timed else 0.0
        rows = [dataclasses.asdict(each) for each in self.by_id.values()]
        document = {"controller": self.controller, "seconds": self.seconds, "results": rows}
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(document, indent=1) + "\n")
        beside.replace(self._path)

    def counts(self) -> dict[str, int]:
        return {name: sum(each.outcome == name for each in self.by_id.values()) for name in MARKS}


def junit(results: Results, catalogue: Mapping[str, Behaviour]) -> str:
    suite = ElementTree.Element("testsuite", name=f"ccm-suite {results.controller}", tests=str(len(results.by_id)))
    for result in results.by_id.values():
        name = catalogue[result.id].sentence if result.id in catalogue else result.id
        case = ElementTree.SubElement(suite, "testcase", classname=result.id, name=name, time=str(result.seconds))
        if result.outcome != "passed":
            kind = {"failed": "failure", "skipped": "skipped"}[result.outcome]
            ElementTree.SubElement(case, kind, message=result.reason)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def page(results: Results, catalogue: Mapping[str, Behaviour]) -> str:
    """Return a self-contained page of HTML."""
    rows = []
    for result in results.by_id.values():
        about = catalogue.get(result.id)
        sentence, level, source = (about.sentence, about.level, about.source) if about else (result.id, "", "")
        cells = [result.id, str(level), sentence, result.outcome, result.reason]
        shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr class="{result.outcome}">{shown}<td><a href="{html.escape(source)}">source</a></td></tr>')
    counts = ", ".join(f"{count} {name}" for name, count in results.counts().items())
    title = f"ccm-suite: {html.escape(results.controller)}"
    style = "td{padding:.2em .6em;vertical-align:top}.failed{background:#fdd}.skipped{color:#777}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style><h1>{title}</h1><p>{counts}"
        f"<table><tr><th>ID<th>level<th>behaviour<th>outcome<th>why<th></tr>{''.join(rows)}</table>\n"
    )


def table(columns: Sequence[Results], catalogue: Mapping[str, Behaviour]) -> str:
    """Return a table in Markdown with a row for each behaviour and a column for each controller."""
    lines = ["| ID | level | behaviour | " + " | ".join(each.controller for each in columns) + " |"]
    lines.append("|---|---|---|" + "---|" * len(columns))
    for about in catalogue.values():
        cells = [MARKS[column.by_id[about.id].outcome] if about.id in column.by_id else "" for column in columns]
        lines.append(f"| `{about.id}` | {about.level} | [{about.sentence}]({about.source}) | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"

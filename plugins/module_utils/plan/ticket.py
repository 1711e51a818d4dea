# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of a run for a change ticket, as Markdown and as HTML: what changes, why, at which risk, who approved, what happened. Pure.

Paths, flags and messages come from hosts, so both forms escape every text.
"""

from __future__ import annotations

import html
import re
from typing import Any, Dict, List, Sequence, Tuple, TypedDict

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Check, HostOutcome, Report

#: ("heading" or "text", one text), ("list", texts) or ("table", rows with the head first).
Part = Tuple[str, Any]


class Outcome(TypedDict, total=False):
    """What happened, empty before the first change."""

    ok: bool
    seconds: float
    hosts: List[HostOutcome]
    failed: List[str]
    lines: List[str]
    checks: List[Check]


MARKDOWN = (".md", ".markdown")
HTML = (".html", ".htm")

#: Maximum number of characters of one text. A path has up to 4096.
LONGEST = 5000

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #d0d7de }
table { border-collapse: collapse; width: 100%; font-size: 13px; margin-bottom: 1rem } tr { break-inside: avoid }
th, td { border: 1px solid #d0d7de; padding: .3rem .5rem; text-align: left; vertical-align: top; overflow-wrap: anywhere }
th { background: #f6f8fa; white-space: nowrap }
"""


def form(path: str) -> str:
    """Return the form of a report by the suffix of its file: C(markdown), C(html), or C(json) for any other suffix."""
    name = path.lower()
    return "markdown" if name.endswith(MARKDOWN) else "html" if name.endswith(HTML) else "json"


def parts(title: str, report: Report, request: Dict[str, str], outcome: Outcome) -> List[Part]:
    """Return the parts of the page that is attached to a change.

    C(report) is the report of the plan. C(request) has the operator's words: C(change), C(reason), C(approved_by), and C(planned_at).
    C(outcome) is empty before the first change.
    """
    verdict = "can start (GO)" if report["go"] else "cannot start (NO-GO)"
    state = verdict if not outcome else "is complete" if outcome["ok"] else "is not complete"
    if outcome and outcome["checks"] and not outcome["hosts"] and not report["edits"]:  # nothing was planned or changed
        state = "All checks passed." if outcome["ok"] else "Checks failed."
        return [("heading", title), ("table", [["", ""], ["State", state]]), *_lists(report), ("heading", "Checks"), *_checks(outcome)]
    paragraphs: List[Part] = [("heading", title), ("table", [
        ["", ""], ["State", "The run {0}.".format(state)], ["Change", request["change"] or "-"], ["Planned at", _time(request["planned_at"])],
        ["Approved by", request["approved_by"] or "Nobody is named (approved_by of ccm_install_report_details)."]])]
    paragraphs += [("heading", "What"), *_what(report)]
    paragraphs += [("heading", "Why"), *([("text", request["reason"])] if request["reason"] else []), *_texts([
        edit["why"] for edit in report["edits"]], "The plan has no edit, so there is no reason.")]
    paragraphs += [("heading", "Risk"), *_texts([edit["risk"] for edit in report["edits"]], "The plan has no edit, so there is no risk.")]
    return [*paragraphs, *_lists(report), ("heading", "What happened"), *_happened(outcome)]


def _lists(report: Report) -> List[Part]:
    parts_: List[Part] = []
    for name, texts in (("Problems", report["problems"]), ("Warnings", report["warnings"]), ("Notes", report["notes"])):
        if texts:
            parts_ += [("heading", name), ("list", grouping.equal_messages(texts))]
    return parts_


def _time(run_id: str) -> str:
    """Return the time in a run's ID, such as 20261124T221752Z, for people; any other text unchanged, '-' for ''."""
    match = re.match(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z\Z", run_id)
    return "{0}-{1}-{2} {3}:{4}:{5} UTC".format(*match.groups()) if match else run_id or "-"


def _what(report: Report) -> List[Part]:
    if not report["edits"]:
        return [("text", "Nothing to change: every file and every Node is in its desired state.")]
    rows = [["Hosts", "Component", "File", "Flag", "Now", "Then"]]
    for edit, names in grouping.equal_edits(report["edits"]):
        rows.append([names[0] if len(names) == 1 else grouping.hosts(names), edit["component"], edit["file"], edit["flag"],
                     shown(edit["now"], "-"), shown(edit["then"], "(removed)")])
    return [("text", "{0} edit(s) on {1} host(s).".format(len(report["edits"]), len({edit["host"] for edit in report["edits"]}))), ("table", rows)]


def shown(value: Any, absent: str) -> str:
    """Return the value of a flag for people. C(absent): the text for a flag that is not set."""
    return absent if value is None else "''" if value == "" else str(value)


def _texts(texts: Sequence[str], none: str) -> List[Part]:
    """Return a list with each different text once, or the text C(none) if there are no texts."""
    different = list(dict.fromkeys(texts))
    return [("list", different)] if different else [("text", none)]


def _happened(outcome: Outcome) -> List[Part]:
    if not outcome:
        return [("text", "Nothing was changed yet.")]
    paragraphs: List[Part] = [("text", "The run took {0:.0f} s.".format(outcome["seconds"]))]
    states: Dict[Tuple[str, str], List[str]] = {}
    for entry in outcome["hosts"]:
        detail = "" if entry["detail"].startswith("journal: ") else entry["detail"]
        states.setdefault((entry["state"], detail), []).append(entry["host"])
    rows = [["Hosts", "State", "Detail"]]
    rows += [[names[0] if len(names) == 1 else grouping.hosts(names), state, detail] for (state, detail), names in states.items()]
    paragraphs.append(("table", rows))
    return paragraphs + _checks(outcome)


def _checks(outcome: Outcome) -> List[Part]:
    """Return what the run reported at its end, and its checks."""
    paragraphs: List[Part] = []
    if outcome["lines"]:
        paragraphs.append(("list", outcome["lines"]))
    if outcome["checks"]:
        paragraphs.append(("table", [["Check", "Result", "Detail"]] + [
            [check["name"], "ok" if check["ok"] else "failed", check["detail"]] for check in outcome["checks"]]))
    return paragraphs


def _plain(text: Any) -> str:
    """Return a text on one line of at most LONGEST characters, without control characters."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", str(text)).split())[:LONGEST]


#: What Markdown reads as markup: within a text, between words, at the beginning of a text, and in addresses.
_MARKUP = re.compile(r"[\\`*\[\]|~@]|(?<![^\W_])_|_(?![^\W_])|^[-+=#]|:(?=/)|(?<=www)\.", re.ASCII)


def _escaped(text: Any) -> str:
    """Return a text that Markdown shows as it is. Only what would be markup is escaped, because people also read the text itself."""
    marked = re.sub(r"^([0-9]+)([.)])", r"\1\\\2", _MARKUP.sub(r"\\\g<0>", _plain(text)))
    return marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown(content: Sequence[Part]) -> str:
    """Return the report as Markdown."""
    lines: List[str] = []
    for number, (kind, value) in enumerate(content):
        if kind == "heading":
            lines += ["{0} {1}".format("##" if number else "#", _escaped(value)), ""]
        elif kind == "text":
            lines += [_escaped(value), ""]
        elif kind == "list":
            lines += ["- {0}".format(_escaped(text)) for text in value] + [""]
        else:
            rows = ["| {0} |".format(" | ".join(_escaped(cell) for cell in row)) for row in value]
            lines += [rows[0], "|" + "---|" * len(value[0]), *rows[1:], ""]
    return "\n".join(lines).rstrip() + "\n"


def page(content: Sequence[Part]) -> str:
    """Return the report as one HTML page, which needs no other file and runs no script."""
    body: List[str] = []
    for number, (kind, value) in enumerate(content):
        if kind == "heading":
            body.append("<h{0}>{1}</h{0}>".format(2 if number else 1, _html(value)))
        elif kind == "text":
            body.append("<p>{0}</p>".format(_html(value)))
        elif kind == "list":
            body.append("<ul>{0}</ul>".format("".join("<li>{0}</li>".format(_html(text)) for text in value)))
        else:
            head = "<tr>{0}</tr>".format("".join("<th>{0}</th>".format(_html(cell)) for cell in value[0])) if any(value[0]) else ""
            rows = ["<tr>{0}</tr>".format("".join("<td>{0}</td>".format(_html(cell)) for cell in row)) for row in value[1:]]
            body.append("<table>{0}</table>".format("\n".join([head] + rows)))
    title = _html(content[0][1])
    return ("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body>\n{2}\n</body></html>\n"
            ).format(title, _STYLE, "\n".join(body))


def _html(text: Any) -> str:
    return html.escape(_plain(text), quote=True)

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that a playbook passes to the next one of a workflow: verdict, counts, changes, problems and the report's text. Pure.

Ansible Automation Platform and AWX keep this data in a database and pass it on as a variable, so its size is limited.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping, ticket
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Edit, Report

#: A result as Ansible passes it on, empty if the run did not come that far.
Row = Dict[str, Any]

#: The report of a run without a plan.
NOTHING: Report = {"go": True, "problems": [], "warnings": [], "notes": [], "edits": [], "adopt": [], "reregister": [], "takeover": [],
                   "volumes": [], "new_nodes": []}

#: Maximum number of texts in a list, and of characters in the report.
MOST_TEXTS, MOST_CHARACTERS = 50, 50000


def outcome(title: str, plan: Row, summary: Row, verified: Row, traffic: Row) -> Row:
    """Return {verdict, ok, counts, changes, problems, next, report}. Each argument but C(title) is empty if the run did not come that far.

    C(verdict) is C(complete) or C(not complete) after changes, C(passed) or C(failed) after a check without changes, and C(go) or C(no-go)
    after a plan alone.
    """
    report: Report = plan.get("report") or NOTHING
    checked = [part for part in (verified, traffic) if part]
    ok = bool(summary.get("ok", True) and all(part.get("ok") for part in checked) and (checked if summary else report["go"]))
    problems = _problems(report, summary, verified, traffic)
    return {
        "verdict": _verdict(ok, bool(plan), bool(summary), bool(checked)), "ok": ok, "counts": _counts(report, summary, verified, problems),
        "changes": _bounded(["{0}: {1}".format(", ".join(names[:1]) if len(names) == 1 else grouping.hosts(names), _change(edit))
                             for edit, names in grouping.equal_edits(report["edits"])]),
        "problems": _bounded(grouping.equal_messages(problems)), "next": _next(summary, verified, traffic),
        "report": _text(title, report, summary, verified, traffic, ok)[:MOST_CHARACTERS],
    }


def _verdict(ok: bool, planned: bool, changed: bool, checked: bool) -> str:
    if changed:
        return "complete" if ok else "not complete"
    if checked or not planned:
        return "passed" if ok else "failed"
    return "go" if ok else "no-go"


def _problems(report: Report, summary: Row, verified: Row, traffic: Row) -> List[str]:
    problems = list(report["problems"])
    problems += ["{host}: {state}{0}".format(": " + entry["detail"] if entry["detail"] else "", **entry)
                 for entry in summary.get("hosts") or [] if entry["host"] in summary.get("failed", [])]
    problems += ["{name}: {detail}".format(**check) for check in verified.get("checks") or [] if not check["ok"]]
    problems += list(verified.get("waiting") or []) + list(verified.get("unrestored") or [])
    return problems + list(traffic.get("message") or [])


def _counts(report: Report, summary: Row, verified: Row, problems: List[str]) -> Row:
    hosts: Dict[str, int] = {}
    for entry in summary.get("hosts") or []:
        hosts[entry["state"]] = hosts.get(entry["state"], 0) + 1
    done = sum(entry["edits"] for entry in summary.get("hosts") or [])
    if summary and verified.get("ok"):  # no host reports these edits, but a passed verification shows that they were made
        done += sum(edit["component"] == "node" or edit["host"] == "(cluster)" for edit in report["edits"])
    return {"edits": len(report["edits"]), "done": done, "hosts": hosts, "problems": len(problems), "warnings": len(report["warnings"])}


def _change(edit: Edit) -> str:
    now, then = (ticket.shown(value, "-") for value in (edit["now"], edit["then"]))
    return "{component} {file}: {flag} {0} -> {1}".format(now, then, **edit)


def _next(summary: Row, verified: Row, traffic: Row) -> List[str]:
    """Return what is at risk and what to do, as sentences."""
    lines = list(summary.get("advice") or [])
    if not summary and verified.get("risk"):
        lines += ["At risk now: {0}.".format(verified["risk"]), "Fix what is named, then run outoftree.ccm.verify."]
    if traffic.get("advice"):
        lines += [traffic["advice"], "Then run outoftree.ccm.verify_active again."]
    return lines


def _bounded(texts: List[str]) -> List[str]:
    return texts if len(texts) <= MOST_TEXTS else texts[:MOST_TEXTS - 1] + ["and {0} more".format(len(texts) - MOST_TEXTS + 1)]


def _text(title: str, report: Report, summary: Row, verified: Row, traffic: Row, ok: bool) -> str:
    request = {"change": "", "reason": "", "approved_by": "", "planned_at": ""}
    checks = list(verified.get("checks") or []) + [dict(check, ok=check["state"] != "failed") for check in traffic.get("checks") or []]
    lines = list(summary.get("measured") or []) + list(summary.get("advice") or [])
    happened: ticket.Outcome = {}
    if summary or checks:
        happened = {"ok": ok, "seconds": summary.get("seconds", 0.0), "hosts": summary.get("hosts") or [], "lines": lines, "checks": checks}
    return ticket.markdown(ticket.parts(title, report, request, happened))

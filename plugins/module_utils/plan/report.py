# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for people, as lines of text, and for programs, as data without the contents of files. Pure."""

from __future__ import annotations

from typing import List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan, Report

COLUMNS = ("host", "component", "file", "flag", "now", "then")


def report(plan: Plan) -> Report:
    """Return what preflight found, without the contents of any file, which the roles carry out."""
    return {"go": plan["go"], "problems": plan["problems"], "warnings": plan["warnings"], "notes": plan["notes"], "edits": plan["edits"],
            "adopt": plan["adopt"], "reregister": plan["reregister"], "takeover": plan["takeover"], "volumes": plan["volumes"],
            "new_nodes": plan["new_nodes"]}


def _cell(value: Optional[str], absent: str) -> str:
    if value is None:
        return absent
    return "''" if value == "" else str(value)


def table(plan: Plan) -> List[str]:
    """Return the plan as lines of text: a row for each edit, the reasons and risks, then notes, warnings and problems.

    Equal edits of many hosts are one row. Below the table, C(hosts 1) and so on name these hosts.
    """
    lines: List[str] = []
    reasons: List[str] = []
    risks: List[str] = []
    groups: List[str] = []
    rows = [[name.upper() for name in COLUMNS] + ["WHY", "RISK"]]
    for edit, names in grouping.equal_edits(plan["edits"]):
        for text, known in ((edit["why"], reasons), (edit["risk"], risks)):
            if text not in known:
                known.append(text)
        rows.append([_group(names, groups), edit["component"], edit["file"], edit["flag"], _cell(edit["now"], "-"),
                     _cell(edit["then"], "(removed)"), str(reasons.index(edit["why"]) + 1), _letter(risks.index(edit["risk"]))])
    if plan["edits"]:
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows] + [""]
        lines += ["hosts {0}: {1}".format(number, text) for number, text in enumerate(groups, 1)]
        lines += ["why {0}: {1}".format(number, text) for number, text in enumerate(reasons, 1)]
        lines += ["risk {0}: {1}".format(_letter(number), text) for number, text in enumerate(risks)]
    else:
        lines.append(plan.get("nothing") or "Nothing to change: every file and every Node is in its desired state.")
    lines += ["NOTE: " + text for text in grouping.equal_messages(plan["notes"])]
    lines += ["WARNING: " + text for text in grouping.equal_messages(plan["warnings"])]
    lines += ["PROBLEM: " + text for text in grouping.equal_messages(plan["problems"])]
    lines.append("{0}: {1} edit(s), {2} warning(s), {3} problem(s)".format(
        "NO-GO" if plan["problems"] else "GO", len(plan["edits"]), len(plan["warnings"]), len(plan["problems"])))
    return lines


def _group(names: List[str], groups: List[str]) -> str:
    """Return the cell for the hosts of a row, and add the names of several hosts to the groups."""
    if len(names) == 1:
        return names[0]
    text = grouping.compact(names)
    if text not in groups:
        groups.append(text)
    return "{0} hosts ({1})".format(len(names), groups.index(text) + 1)


def _letter(index: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[index]

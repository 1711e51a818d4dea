# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for people, as lines of text, and for programs, as data without the contents of files. Pure."""

from __future__ import annotations

from typing import List

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Edit, Plan, Report


def report(plan: Plan) -> Report:
    """Return what preflight found, without the contents of files, which only the roles need."""
    return {"go": plan["go"], "problems": plan["problems"], "warnings": plan["warnings"], "notes": plan["notes"], "edits": plan["edits"],
            "adopt": plan["adopt"], "reregister": plan["reregister"], "takeover": plan["takeover"], "volumes": plan["volumes"],
            "new_nodes": plan["new_nodes"]}


def table(plan: Plan) -> List[str]:
    """Return the plan as lines of text: the edits by host and file, the reasons and risks, then notes, warnings and problems.

    Edits are shown as in a diff, an old setting after C(-) and its new one after C(+), so that most lines fit a terminal of 80 columns.
    Equal edits of many hosts are shown once. Below the edits, C(hosts 1) and so on name these hosts.
    """
    lines: List[str] = []
    reasons: List[str] = []
    risks: List[str] = []
    groups: List[str] = []
    title = ""
    for edit, names in grouping.equal_edits(plan["edits"]):
        above, title = title, "{0}: {1}, {2} (risk {3})".format(
            _group(names, groups), edit["component"], edit["file"], _letter(_number(edit["risk"], risks)))
        if title != above:
            lines.append(title)
        lines += _difference(edit)
        lines[-1] += "  (why {0})".format(_number(edit["why"], reasons) + 1)
    if plan["edits"]:
        lines.append("")
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


def _difference(edit: Edit) -> List[str]:
    """Return the lines of one edit: the old setting, and the new one."""
    settings = (("-", edit["now"]), ("+", edit["then"]))
    return ["  {0} {1}".format(sign, _setting(edit["flag"], value)) for sign, value in settings if value is not None]


def _setting(name: str, value: str) -> str:
    return "{0}{1}{2}".format(name, "=" if name.startswith("-") else ": ", "''" if value == "" else value)


def _number(text: str, known: List[str]) -> int:
    """Return the index of a text in C(known), after adding it if it is missing."""
    if text not in known:
        known.append(text)
    return known.index(text)


def _group(names: List[str], groups: List[str]) -> str:
    """Return how the table names the hosts of an edit: one host by its name, several as "3 hosts (2)", where 2 is the number of their list in
    C(groups), to which a new list is added."""
    if len(names) == 1:
        return names[0]
    return "{0} hosts ({1})".format(len(names), _number(grouping.compact(names), groups) + 1)


def _letter(index: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[index]

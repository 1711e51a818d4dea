# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: run_report
short_description: Write the report of a run for a change ticket
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns the content of the file C(ccm_install_report_file) as Markdown, HTML or JSON, by the suffix of its name. The report says
    what the run changes, why, the risk, who approved it, and what happened. Every text is escaped. The filter reads and writes nothing.
positional: _input
options:
  _input:
    description: The plan, as P(outoftree.ccm.migration_plan#filter) or P(outoftree.ccm.rollback_plan#filter) returns it.
    type: dict
    required: true
  path:
    description: Path of the file. With C(.md) or C(.markdown), the report is Markdown. With C(.html) or C(.htm), it is HTML, otherwise JSON.
    type: str
    required: true
  title:
    description: Title of the report.
    type: str
    default: Migration to an external cloud-controller-manager
  change:
    description: Number or name of the change.
    type: str
    default: ""
  reason:
    description: The operator's reason for the run.
    type: str
    default: ""
  approved_by:
    description: Who approved the change.
    type: str
    default: ""
  planned_at:
    description: When the plan was made.
    type: str
    default: ""
  summary:
    description: The result of P(outoftree.ccm.run_summary#filter), empty before the first change.
    type: dict
    default: {}
  verified:
    description: The variable C(ccm_install_summary) after the verification, empty without one.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Write the report as HTML
  ansible.builtin.copy:
    content: "{{ plan | outoftree.ccm.run_report('report.html', approved_by='Alice') }}"
    dest: report.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The content of the report's file.
  type: str
"""

import json

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import ticket

TITLE = "Migration to an external cloud-controller-manager"


def run_report(plan, path, title=TITLE, change="", reason="", approved_by="", planned_at="", summary=None, verified=None):
    request = {"change": str(change), "reason": str(reason), "approved_by": str(approved_by), "planned_at": str(planned_at)}
    outcome = {}
    if summary:
        checks = (verified or {}).get("checks") or []
        # A run that stopped has no verification.
        outcome = {"ok": bool(summary["ok"] and (verified or {}).get("ok")), "seconds": summary["seconds"], "hosts": summary["hosts"],
                   "failed": summary["failed"], "lines": summary.get("measured", []) + summary["advice"], "checks": checks}
    if ticket.form(path) == "json":
        return json.dumps(dict(plan["report"], request=request, outcome=outcome), indent=4, sort_keys=True) + "\n"
    content = ticket.parts(title, plan["report"], request, outcome)
    return ticket.markdown(content) if ticket.form(path) == "markdown" else ticket.page(content)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"run_report": run_report}

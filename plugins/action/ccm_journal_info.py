# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With C(plan_of), skips a host whose journal this run does not change, unless the journal's copy is out of date, so that no task templates the plan."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.outoftree.ccm.plugins.plugin_utils import handover


class ActionModule(ActionBase):
    """Action plugin of ccm_journal_info."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments, host = dict(self._task.args), task_vars["inventory_hostname"]
        planner = arguments.pop("plan_of", None)
        if planner:
            variables = handover.stored(task_vars, planner)
            if not handover.journal_changes(variables, host, task_vars["groups"].get("kube_control_plane", [])):
                result.update(changed=False, skipped=True, skip_reason="This run does not change the journal of this host.")
                return result
            arguments["node_name"] = variables["__ccm_install_plan"]["nodes"][host]
        result.update(self._execute_module(module_name="outoftree.ccm.ccm_journal_info", module_args=arguments, task_vars=task_vars))
        return result

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With C(plan_of), takes the step's options from the plan of the run, so that the task neither templates the plan nor has contents of files as arguments."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.outoftree.ccm.plugins.plugin_utils import handover


class ActionModule(ActionBase):
    """Action plugin of ccm_component_config."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        planner = arguments.pop("plan_of", None)
        number = arguments.pop("step", None)
        tolerant = boolean(arguments.pop("tolerant", False))
        if planner:
            step = handover.planned_step(handover.stored(task_vars, planner), task_vars["inventory_hostname"],
                                         None if number is None else int(number))
            if step is None:
                result.update(changed=False, skipped=True, skip_reason="The plan changes nothing on this host.")
                return result
            arguments.update(step)
        result.update(self._execute_module(module_name="outoftree.ccm.ccm_component_config", module_args=arguments, task_vars=task_vars))
        if tolerant and result.get("failed"):
            # A failure becomes a warning here, because a task whose ignore_errors is a template would ignore any_errors_fatal for every host.
            message = (str(result.get("msg") or "no message").strip().splitlines() or [""])[0]
            result.update(failed=False, tolerated=True, warnings=[
                *result.get("warnings", ()), "{0}: {1}".format(task_vars["inventory_hostname"], message)])
        return result

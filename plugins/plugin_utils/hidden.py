# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hides the result of a module if it has the contents of files. A message about a failure stays visible.

C(no_log) of a task would also hide why a host is unreachable, because connection plugins leave the reason out then.
"""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import unseen


class HidingAction(ActionBase):
    """Runs a module, and hides its result if the task asks for it and the result has C(PART)."""

    _requires_connection = True
    MODULE = ""
    PART = ""
    #: Whether to explain Ansible's message if the result has no C(PART): for a module that may be the first one on a host.
    EXPLAINED = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        hide = boolean(arguments.pop("hide_result", False))
        result.update(self._execute_module(module_name=self.MODULE, module_args=arguments, task_vars=task_vars))
        if self.EXPLAINED and self.PART not in result:
            result["msg"] = unseen.reason(result)
        if hide and self.PART in result:
            result["_ansible_no_log"] = True
        return result

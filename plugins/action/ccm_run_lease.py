# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies this run, and checks whether another run has ended, because the processes of runs can be seen only on the Ansible controller."""

from __future__ import annotations

import getpass
import os
import socket

from ansible.plugins.action import ActionBase
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster.this_machine import has_ended, machine, started


def this_run():
    """Return the name of this run as holder of the Lease, and C(machine), C(pid) and C(start) of its ansible-playbook process, which started this
    process as a worker."""
    pid = os.getppid()
    process = {"machine": machine(), "pid": pid, "start": started(pid)}
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container, the user may have no name
        user = str(os.getuid())
    return "{0}@{1} (process {2}, started at {3})".format(user, socket.gethostname(), pid, process["start"] or "?"), process


class ActionModule(ActionBase):
    """Action plugin of ccm_run_lease."""

    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        holder, process = this_run()
        arguments = dict(self._task.args, holder=holder, process=process)
        answer = self._execute(arguments, task_vars)
        if answer.get("failed") and answer.get("holder") and has_ended(answer.get("process") or {}):
            answer = self._execute(dict(arguments, ended=answer["holder"]), task_vars)
        result.update(answer)
        return result

    def _execute(self, arguments, task_vars):
        return self._execute_module(module_name="outoftree.ccm.ccm_run_lease", module_args=arguments, task_vars=task_vars)

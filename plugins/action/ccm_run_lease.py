# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies this run, and checks whether another one has ended. Only the Ansible controller can see its processes."""

from __future__ import annotations

import getpass
import os
import socket

from ansible.plugins.action import ActionBase

PROC = "/proc"


def machine():
    """Return an ID that processes share if they can see each other (same boot, same PID namespace); '' if it is unknown."""
    try:
        with open(os.path.join(PROC, "sys/kernel/random/boot_id"), encoding="ascii") as handle:
            return "{0} {1}".format(handle.read().strip(), os.readlink(os.path.join(PROC, "self/ns/pid")))
    except OSError:
        return ""


def started(pid):
    """Return when a process was started, in ticks since the boot; '' if it does not exist."""
    try:
        with open(os.path.join(PROC, str(int(pid)), "stat"), encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError, TypeError, ValueError):
        return ""


def this_run():
    """Return (holder, process) of the ansible-playbook process, of which this one is a worker."""
    pid = os.getppid()
    process = {"machine": machine(), "pid": pid, "start": started(pid)}
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # in a container, the user may have no name
        user = str(os.getuid())
    return "{0}@{1} (process {2}, started at {3})".format(user, socket.gethostname(), pid, process["start"] or "?"), process


def has_ended(process):
    """Whether a run that held the Lease ran on this machine and has ended."""
    here = machine()
    return bool(here) and process.get("machine") == here and bool(process.get("start")) and started(process.get("pid")) != process["start"]


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

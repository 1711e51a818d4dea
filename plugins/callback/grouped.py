# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: grouped
type: stdout
short_description: Short output for playbooks over many hosts
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Has one line for all hosts that a task changed, and one line for a message of one line. Longer messages and failures are those of
    P(ansible.builtin.default#callback).
  - In YAML, it breaks the lines of messages between words, so that they fit the terminal. Of a failed module of this collection, it then shows
    the message alone.
  - It shows the message of a failed task once. Newer releases of ansible-core otherwise repeat it above, with the place in the playbook.
  - It does not show a task that neither changes anything nor has a message, a warning or items. A play that runs again for the next batch of
    hosts shows its name once. The recap has one line for all hosts with similar counts.
  - With C(-v), it shows the same as P(ansible.builtin.default#callback).
requirements:
  - Set it as C(stdout_callback) in C(ansible.cfg), or as C(ANSIBLE_STDOUT_CALLBACK).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
"""

import contextlib
import shutil

from ansible import constants as C
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import columns, grouping

#: The counts of a host in the recap, and their names in Ansible's statistics.
COUNTS = (("ok", "ok"), ("changed", "changed"), ("unreachable", "unreachable"), ("failed", "failures"), ("skipped", "skipped"),
          ("rescued", "rescued"), ("ignored", "ignored"))
#: Counts that the recap shows only if they are not 0.
RARE = ("unreachable", "skipped", "rescued", "ignored")
#: Counts that may differ between the hosts of one line of the recap.
UNEQUAL = ("ok", "changed", "skipped")


def _part(result, name):
    """Return an attribute of a result: C(task), C(host) or C(result). Before ansible-core 2.19, its name begins with an underscore."""
    return getattr(result, name, None) or getattr(result, "_" + name)


def _has_warning(data):
    """Return whether Ansible shows a warning of this result, or a deprecation, which the setting deprecation_warnings can switch off."""
    return bool(data.get("warnings") or C.DEPRECATION_WARNINGS and data.get("deprecations"))


class CallbackModule(Default):
    """The default output, but with one line for all hosts that a task changed."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "outoftree.ccm.grouped"

    def __init__(self):
        super().__init__()
        self._changed = []
        self._changed_task = None
        self._shown_play = None
        self._own = False  # whether a failed module is one of this collection

    def _is_short(self, result):
        """Return whether a result needs no line of its own: it has no message for people, no warning and no items, and the run is not verbose."""
        data = _part(result, "result")
        shown = data.get("_ansible_verbose_always") or _has_warning(data) or "results" in data
        return not shown and not self._display.verbosity

    def _line_of(self, result):
        """Return the message of a result if it has one line and the result has nothing else to show; "" otherwise."""
        data = _part(result, "result")
        if self._display.verbosity or data.get("changed") or _has_warning(data) or "results" in data:
            return ""
        message = data.get("msg") if data.get("_ansible_verbose_always") else ""
        shown = {name for name in data if not name.startswith("_ansible_")} - {"changed", "failed", "msg"}
        return message if isinstance(message, str) and "\n" not in message and not shown else ""

    def _dump_results(self, result, *args, **kwargs):
        """Return the text of a result, with its message broken into lines between words. JSON stays as it is, because programs read it."""
        message = result.get("msg")
        if isinstance(message, str) and self.get_option("result_format") == "yaml" and not self._display.verbosity:
            # People do not need the condition of an assertion. Of a failed module of this collection, they need only the message: its other
            # values are for the playbooks.
            result = {name: value for name, value in result.items() if name not in ("assertion", "evaluated_to") and (name == "msg" or not self._own)}
            result["msg"] = "\n".join(columns.fitted([message], self._columns()))
        return super()._dump_results(result, *args, **kwargs)

    @staticmethod
    def _columns():
        return shutil.get_terminal_size((columns.TERMINAL, 24)).columns

    def _show(self, text, color):
        """Show a line of this plugin. Unlike a message of Ansible, it has no margin on the left."""
        self._display.display("\n".join(columns.fitted([text], self._columns() + columns.MARGIN)), color=color)

    def v2_runner_on_ok(self, result):
        line = self._line_of(result)
        if line:
            self._flush()
            self._show("ok: [{0}] {1}".format(_part(result, "host").get_name(), line), C.COLOR_OK)
        elif not self._is_short(result):
            self._flush()
            super().v2_runner_on_ok(result)
        elif _part(result, "result").get("changed"):
            task = _part(result, "task")
            if self._changed_task is not None and self._changed_task._uuid != task._uuid:  # each host has its own copy of the task
                self._flush()
            self._changed_task = task
            self._changed.append(_part(result, "host").get_name())

    def _say_once(self, result):
        """Remove the error that ansible-core 2.19 and newer print above a result, if the host is unreachable or a module or an action failed."""
        chain = getattr(getattr(getattr(result, "exception", None), "event", None), "chain", None)
        cause = str(getattr(getattr(chain, "event", None), "msg", ""))
        data = _part(result, "result")
        if (data.get("unreachable") or cause.startswith(("Module failed", "Action failed"))) and not self._display.verbosity:
            data.pop("exception", None)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._flush()
        self._say_once(result)
        with self._failure_of(result):
            super().v2_runner_on_failed(result, ignore_errors=ignore_errors)

    def v2_runner_item_on_failed(self, result):
        self._flush()
        self._say_once(result)
        with self._failure_of(result):
            super().v2_runner_item_on_failed(result)

    @contextlib.contextmanager
    def _failure_of(self, result):
        self._own = _part(result, "task").action.startswith("outoftree.ccm.")
        try:
            yield
        finally:
            self._own = False

    def v2_runner_on_unreachable(self, result):
        self._flush()
        self._say_once(result)
        super().v2_runner_on_unreachable(result)

    def v2_runner_on_skipped(self, result):
        if self._display.verbosity:
            super().v2_runner_on_skipped(result)

    def v2_playbook_on_include(self, included_file):
        if self._display.verbosity:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_play_start(self, play):
        self._flush()
        name = play.get_name().strip()
        if self._display.verbosity or name != self._shown_play:
            super().v2_playbook_on_play_start(play)
        else:  # the next batch of a play with `serial`
            self._play = play
        self._shown_play = name

    def _task_start(self, task, prefix=None):
        self._flush()
        if self._display.verbosity:
            super()._task_start(task, prefix)
            return
        # The line with the task's name appears with the first result that is shown.
        if prefix is not None:
            self._task_type_cache[task._uuid] = prefix
        self._last_task_name = task.get_name().strip()
        # In the next batch, the task has the same ID. Unless its name is shown again, its items would follow the name of another task.
        self._last_task_banner = None

    def _flush(self):
        """Show in one line which hosts the last task changed."""
        if not self._changed:
            return
        task, names = self._changed_task, sorted(self._changed, key=grouping.in_order)
        self._changed, self._changed_task = [], None
        self._show("changed: {0}: {1}".format(
            "[{0}]".format(names[0]) if len(names) == 1 else grouping.hosts(names), (task.name or task.get_name()).strip()), C.COLOR_CHANGED)

    def v2_playbook_on_stats(self, stats):
        self._flush()
        if self._display.verbosity:
            super().v2_playbook_on_stats(stats)
            return
        alike = {}
        for host in sorted(stats.processed, key=grouping.in_order):
            summary = stats.summarize(host)
            counts = tuple((name, summary[key]) for name, key in COUNTS)
            # How many tasks ran differs between hosts, because some run once for a batch.
            kind = tuple(count for name, count in counts if name not in UNEQUAL) + (bool(summary["changed"]),)
            alike.setdefault(kind, []).append((host, counts))
        self._display.banner("PLAY RECAP")
        for entries in alike.values():
            names = [host for host, unused in entries]
            counts = dict(entries[0][1])
            color = C.COLOR_ERROR if counts["failed"] or counts["unreachable"] else C.COLOR_CHANGED if counts["changed"] else C.COLOR_OK
            shown = [pair for pair in entries[0][1] if len(names) == 1 or pair[0] not in UNEQUAL]
            if len(names) > 1:
                changes = sorted(dict(each)["changed"] for unused, each in entries)
                shown.insert(0, ("changed", changes[0] if changes[0] == changes[-1] else "{0}-{1}".format(changes[0], changes[-1])))
            shown = [(name, count) for name, count in shown if count or name not in RARE]
            self._show("{0} : {1}".format(
                names[0] if len(names) == 1 else grouping.hosts(names), "  ".join("{0}={1}".format(*pair) for pair in shown)), color)
        self._display.display("")

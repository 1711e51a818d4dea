# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes a component on this host: writes its files, waits until it is healthy, and restores the files if it does not become healthy.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, NamedTuple

from ansible_collections.outoftree.ccm.plugins.module_utils.host import logs
from ansible_collections.outoftree.ccm.plugins.module_utils.host.component import Failed, read


class Outcome(NamedTuple):
    """The host after a change that failed.

    C(stuck): the files that do not have their old content again -> why. C(healthy): whether the component runs as before. C(begun): whether every file was
    written, so that the component may have started to use them.
    """

    stuck: Dict[str, str]
    healthy: bool
    begun: bool


def settle(component, work, flags, flags_before, restart, forced=False):
    """Write the files, restart the component if necessary, and wait for it; return the seconds that the wait took.

    Restores the files and raises Failed with the reason if a file cannot be written or the component does not become healthy.

    Only the planned flags may change, unless whole files are restored by force.
    """
    since = time.time() - 1
    folders = logs.pod_directories(component.name, component.logs)
    old = {process.identity for process in component.processes()} if work or restart else set()
    others = component.others() if (work or restart) and not forced else []
    written, begun, path = [], False, ""
    try:
        for path, before, after, mode, owner in work:
            component.write(path, after, mode, owner)
            written.append((path, before, mode, owner))
        begun = True
        if work or restart:
            component.take_up([item[0] for item in work])
        return component.wait(flags, old, folders, others)
    except (Failed, OSError) as exc:
        reason = str(exc) if begun else "cannot write {0}: {1}".format(path, reason_of(exc))
        log = component.log(since) if begun else []
        raise Failed(reason, log, restore(component, work, written, flags_before, restart, begun, others)) from exc


def reason_of(exc):
    return getattr(exc, "strerror", None) or str(exc)


def restore(component, work, written, flags_before, restart, begun, others=()):
    """Restore the old files, each one even if another cannot be restored, and return the Outcome."""
    stuck = {}
    for path, before, mode, owner in written:
        reason = put_back(component, path, before, mode, owner)
        if reason:
            stuck[path] = reason
    for path, before, *_rest in work[len(written):]:
        reason = difference(path, before)
        if reason:
            stuck[path] = reason
    try:
        if not stuck and (written or restart and begun):
            component.take_up([item[0] for item in written])
            component.wait(flags_before, set(), logs.pod_directories(component.name, component.logs), others)
        return Outcome(stuck, not stuck, begun)
    except (Failed, OSError):
        return Outcome(stuck, False, begun)


def put_back(component, path, before, mode, owner):
    """Write a file's old content, and read the file again. Returns why it does not have that content, '' if it has."""
    try:
        component.write(path, before, mode, owner)
    except OSError as exc:
        return difference(path, before) and reason_of(exc)
    return difference(path, before)


def difference(path, before):
    """Return why a file does not have its old content, '' if it has."""
    try:
        return "" if read(path) == before else "its content is different"
    except OSError as exc:
        return "it cannot be read: {0}".format(reason_of(exc))


def report(component, failure, files, state) -> str:
    """Return the message about a change that failed. C(files): the files in the module's result; this function sets
    C(action) of each."""
    reason, log, outcome = failure.args
    for item in files:
        item["action"] = "written" if item["path"] in outcome.stuck else "restored"
    host = os.uname().nodename
    if not outcome.begun:
        parts = ["{0} on {1} was not changed: {2}.".format(component.name, host, reason.rstrip("."))]
    else:
        parts = ["{0} on {1} did not become healthy with the new configuration: {2}.".format(component.name, host, reason.rstrip("."))]
    if files:
        parts += _of_files(component, outcome, files)
    elif state == "restored":
        parts.append("Its old files are restored. Investigate it on that host now.")
    else:
        parts.append("This run changed no file. If an earlier run did, playbooks/rollback.yml restores the old configuration.")
    if log:
        parts.append("\n".join(["Its last log lines:"] + ["  " + line for line in log]))
    elif outcome.begun:
        parts.append("It logged nothing.")
    return " ".join(parts)


def _of_files(component, outcome, files) -> List[str]:
    """Return sentences that say whether the files were restored."""
    if not outcome.stuck:
        if not outcome.begun:
            return ["Every file has its old content."] if outcome.healthy else [
                "Every file has its old content, but {0} is not healthy yet. Investigate it on that host now.".format(component.name)]
        return ["The old configuration was restored and is healthy." if outcome.healthy else
                "The old configuration was restored, but {0} is not healthy yet. Investigate it on that host now.".format(component.name)]
    texts = ["{0} was not restored: {1}{2}.".format(item["path"], outcome.stuck[item["path"]], _old_content(item))
             for item in files if item["path"] in outcome.stuck]
    texts += ["{0} has its old content.".format(item["path"]) for item in files if item["path"] not in outcome.stuck]
    return texts + ["{0} was not restarted with this mixture. Fix the cause, then run again, or restore the old content by hand.".format(component.name)]


def _old_content(item: Dict[str, Any]) -> str:
    return " (its old content is in {0})".format(item["backup"]) if item["backup"] else " (it did not exist before)"


def unsettled(component, settled, flags):
    """Return whether files are restored, but the component does not run with them yet."""
    return bool(settled) and component.name not in ("kubeadm-config", "kubeadm-patches") and not component.runs(flags, settled)

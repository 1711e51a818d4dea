# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of a component on this host: writes its files, waits for its health, and restores them without it.

Stdlib-only, it runs on managed nodes (Python 3.8).
"""

from __future__ import annotations

import time

from ansible_collections.outoftree.ccm.plugins.module_utils.host import logs
from ansible_collections.outoftree.ccm.plugins.module_utils.host.component import Failed


def settle(component, work, flags, flags_before, restart):
    """Write the files and wait. Restores them and raises Failed with the reason if the component does not become healthy."""
    since = time.time() - 1
    folders = logs.pod_directories(component.name, component.logs)
    old = {process.identity for process in component.processes()} if work or restart else set()
    written = []
    try:
        for path, before, after, mode, owner in work:
            component.write(path, after, mode, owner)
            written.append((path, before, mode, owner))
        if work or restart:
            component.take_up([item[0] for item in work])
        return component.wait(flags, old, folders)
    except (Failed, OSError) as exc:
        log = component.log(since)
        restored = restore(component, written, flags_before, restart)
        raise Failed(str(exc), log, restored) from exc


def restore(component, written, flags_before, restart):
    """Restore the old files, and return whether the old configuration is healthy again."""
    try:
        for path, before, mode, owner in written:
            component.write(path, before, mode, owner)
        if written or restart:
            component.take_up([item[0] for item in written])
            component.wait(flags_before, set(), logs.pod_directories(component.name, component.logs))
        return True
    except (Failed, OSError):
        return False


def unsettled(component, settled, flags):
    """Whether files are restored, but the component does not run with them yet."""
    return bool(settled) and component.name not in ("kubeadm-config", "kubeadm-patches") and not component.runs(flags, settled)

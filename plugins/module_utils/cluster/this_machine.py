# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which machine this is, and whether one of its processes still exists. A PID alone proves nothing, because a later process may have the same PID."""

from __future__ import annotations

import os
from typing import Any, Dict

PROC = "/proc"


def machine() -> str:
    """Return an ID that processes share if they can see each other (same boot, same PID namespace); '' if it is unknown."""
    try:
        with open(os.path.join(PROC, "sys/kernel/random/boot_id"), encoding="ascii") as handle:
            return "{0} {1}".format(handle.read().strip(), os.readlink(os.path.join(PROC, "self/ns/pid")))
    except OSError:
        return ""


def started(pid: Any) -> str:
    """Return when a process was started, in ticks since the boot; '' if it does not exist."""
    try:
        with open(os.path.join(PROC, str(int(pid)), "stat"), encoding="utf-8", errors="replace") as handle:
            return handle.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError, TypeError, ValueError):
        return ""


def has_ended(process: Dict[str, Any]) -> bool:
    """Return whether a process ran on this machine and has ended; false if that is unknown. C(process) has C(machine), C(pid) and C(start)."""
    here = machine()
    return bool(here) and process.get("machine") == here and bool(process.get("start")) and started(process.get("pid")) != process["start"]

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Properties of systemd units.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import os
import socket
from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import words
from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files


def unit_properties(unit: str, names: List[str]) -> Dict[str, str]:
    """Return properties of a systemd unit; {} if systemctl is missing or fails."""
    done = commands.run(["systemctl", "show", unit] + [part for name in names for part in ("-p", name)])
    properties = {}
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        name, equals, value = line.partition("=")
        if equals:
            properties[name] = value
    return properties


def restarts(unit: str) -> int:
    """Return how many times systemd has restarted a unit automatically since its last manual start."""
    count = unit_properties(unit, ["NRestarts"]).get("NRestarts", "")
    return int(count) if count.isdigit() else 0


def specifiers(unit: str) -> Dict[str, str]:
    """Return the %-specifiers of a unit whose text is known on this host. Others depend on the unit's user, or on the start."""
    host = socket.gethostname()
    machine = (files.read_text("/etc/machine-id") or "").strip()
    places = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp"}
    return dict(words.of_unit(unit), H=host, l=host.partition(".")[0], v=os.uname().release, **places, **({"m": machine} if machine else {}))

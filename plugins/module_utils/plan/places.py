# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of the files that a plan changes: those that cannot be replaced, and those that a reboot removes. Pure, controller side."""

from __future__ import annotations

from typing import Any, Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts


def check(plan: Dict[str, Any], host: str, facts: HostFacts, lasting: bool = True) -> None:
    """Add a problem for each file. C(lasting): whether the change must survive a reboot, as for a migration."""
    for path in changed(plan["hosts"][host]):
        entry = facts["files"].get(path)
        if entry is None:
            continue
        if entry.get("obstacle"):
            plan["problems"].append("{0}: cannot change {1}: {2}".format(host, path, host_facts.readable(entry["obstacle"])))
        elif lasting and entry.get("volatile"):
            plan["problems"].append(
                "{0}: {1} would lose the change at the next start of the host: {2}. Change what creates the file there, or set the flags in a "
                "file below /etc".format(host, path, host_facts.readable(entry["volatile"])))


def changed(steps: Any) -> List[str]:
    """Return the files that the steps of a host write."""
    listed = [step for step in [*steps["control_plane"], steps["kubelet"]] if step]
    return list(dict.fromkeys(item["path"] for step in listed for item in step["files"] if not item.get("keep")))

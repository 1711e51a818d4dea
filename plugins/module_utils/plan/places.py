# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of the files that a plan changes: those that cannot be replaced, and those that a reboot removes. Pure; runs on the Ansible controller.

It also warns of units for which only the restart shows whether the component gets the arguments in its files.
"""

from __future__ import annotations

import base64
import re
from typing import Any, List, Tuple, Union

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import unit as _unit
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostFacts, KubeletFacts, UnitFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: The end of a warning: only the restart shows the effect, and the gate compares the new process with the files.
_GATE = "If so, the run restores the files and stops at this host"


def check(plan: Plan, host: str, facts: HostFacts, lasting: bool = True) -> None:
    """Add a problem for each file that cannot be replaced or would not last. C(lasting): whether the change must survive a reboot, as for a migration."""
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


def check_units(plan: Plan, host: str, facts: HostFacts) -> None:
    """Add warnings about the units whose files the plan changes: what may write the files again, and what may ignore the flags."""
    files = changed(plan["hosts"][host])
    units: List[Tuple[str, Union[UnitFacts, KubeletFacts]]] = [("kubelet", facts["kubelet"]), *facts["units"].items()]
    for component, unit in units:
        sources = unit.get("unit_files", []) + unit.get("environment_files", [])
        if not set(files).intersection(sources):
            continue
        texts = [(path, base64.b64decode(facts["files"][path]["content"]).decode("utf-8", "replace")) for path in unit["unit_files"]]
        plan["warnings"] += ["{0}: {1}".format(host, why) for why in _writers(texts, files) + _wrappers(component, texts)]
    plan["warnings"] += ["{0}: {1} names {2}, and runs before each start. It may write the file again, without the change, and nothing here would "
                         "notice. Change what it writes".format(host, host_facts.readable(place), path)
                         for path, place in facts["service"].get("before", {}).items() if path in files]


def _writers(texts: List[Tuple[str, str]], files: List[str]) -> List[str]:
    """Return a warning for each command that names a changed file and runs before the component starts."""
    return ["{0} names {1}, and runs before each start. It may write the file again, without the change. {2}".format(place, file, _GATE)
            for place, command in _unit.before_start(texts) for file in files if file in command]


def _wrappers(component: str, texts: List[Tuple[str, str]]) -> List[str]:
    """Return a warning if no word of ExecStart names the component's program, which may have a version after its name."""
    line = _unit.parse_unit(texts)
    programs = [re.split("[:@]", word.value.lstrip(_unit.PREFIXES).rpartition("/")[2])[0] for word in line.exec_words]
    if not programs or component in programs or "hyperkube" in programs:
        return []
    return ["{0} starts {1} with {2}, which may ignore the arguments of ExecStart or its environment. {3}".format(
        line.exec_path, component, line.exec_words[0].value.lstrip(_unit.PREFIXES), _GATE)]


def changed(steps: Any) -> List[str]:
    """Return the files that the steps of a host write."""
    listed = [step for step in [*steps["control_plane"], steps["kubelet"]] if step]
    return list(dict.fromkeys(item["path"] for step in listed for item in step["files"] if not item.get("keep")))

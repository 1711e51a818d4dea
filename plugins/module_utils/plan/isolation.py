# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Isolates hosts from each other: what one host returned may prevent only the plan of that host.

A planner refuses what it knows to be wrong, with a reason of its own. This module is for everything else: a host may return anything. It
makes the plan again without the hosts for which planning fails, and says which host and which of its files are the cause. Pure; runs on the Ansible
controller.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, TypeVar

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import adoption, summary, unseen_hosts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.draft import finish
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

Result = TypeVar("Result")

#: Maximum number of files of a host that are left empty, one after the other, to find the one that cannot be planned.
FILES = 60


def isolated(make: Callable[[Dict[str, HostAnswer]], Result], detected: Dict[str, HostAnswer]) -> Result:
    """Return C(make(detected)). Hosts for which that fails have a reason in C(msg) in place of their facts, like unreachable ones.

    Raises what C(make) raised if C(make) succeeds for each single host.
    """
    try:
        return make(detected)
    except Exception:
        reasons = {host: _reason(make, host, facts) for host, facts in detected.items()}
        if not any(reasons.values()):
            raise
    return make({host: {"msg": reasons[host]} if reasons[host] else facts for host, facts in detected.items()})


def _reason(make: Callable[[Dict[str, HostAnswer]], Any], host: str, facts: Any) -> str:
    """Return why C(make) fails for this host alone, '' if it does not."""
    error = _error(make, host, facts)
    if not error:
        return ""
    paths: List[str] = sorted(facts["files"])[:FILES] if isinstance(facts, dict) and isinstance(facts.get("files"), dict) else []
    file = next((path for path in paths if not _error(make, host, _without(facts, path))), "")
    return "its {0} cannot be planned ({1}). Correct it, and report this as a fault of this collection".format(
        "file " + host_facts.readable(file)[:200] if file else "facts", error)


def _without(facts: HostAnswer, path: str) -> HostAnswer:
    """Return a host's facts with one file empty."""
    return dict(facts, files=dict(facts["files"], **{path: dict(facts["files"][path], content="")}))


def _error(make: Callable[[Dict[str, HostAnswer]], Any], host: str, facts: Any) -> str:
    try:
        make({host: facts})
    except Exception as exc:
        return "{0}: {1}".format(type(exc).__name__, " ".join(host_facts.readable(str(exc)).split())[:200])
    return ""


def leave_out(plan: Plan, detected: Dict[str, HostAnswer], control_plane: List[str], limit: Any) -> Plan:
    """Return the plan without the workers that returned something unusable or whose Nodes will not be adopted, up to C(limit).

    C(limit) is a number or a share such as V(10%). The problems of these workers become warnings. If there are more of them, the plan
    stays as it is. A host that could not be reached stays a problem. Raises ValueError for an invalid C(limit).
    """
    workers = [host for host in detected if host not in control_plane]
    unseen: Dict[str, str] = plan.get("unseen", {})
    wrong = {host: "could not be inspected: " + why for host, why in unseen.items()
             if host in workers and isinstance(detected[host], dict) and "node_name" in detected[host]}
    apart = {host: why for host, why in plan.get("apart", {}).items() if host in workers}
    wrong.update(apart)
    if not wrong or len(wrong) > summary.allowed(limit, len(workers)):
        return plan
    # One problem may name several hosts, so the problems are made again without the workers that are left out.
    reported = unseen_hosts.problems(unseen, control_plane)
    others = unseen_hosts.problems({host: why for host, why in unseen.items() if host not in wrong}, control_plane)
    plan["problems"] = others + [problem for problem in plan["problems"] if problem not in reported + adoption.problems(apart)]
    plan["warnings"] += ["{0}: {1}. The run leaves this worker out, as ccm_install_max_failed_workers allows".format(host, why)
                         for host, why in wrong.items()]
    return finish(adoption.without(plan, wrong))

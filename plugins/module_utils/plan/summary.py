# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run did on each host: as lines of text for people, and as data for programs. Pure; runs on the Ansible controller."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple, cast

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts, unseen
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import HostOutcome, Plan

#: Variables in which the roles store what happened on a host, in the order of the run.
CHANGES = ("__ccm_install_applied", "__ccm_install_kubelet")
WAIT = "__ccm_install_ready"

#: States of a host whose change failed, or stopped half way. Its Node is not adopted.
BAD = ("failed", "unreachable", "restored", "half done")
#: The states of a host whose own change failed. A host is half done only because another host failed. It counts as failed, too, because
#: nobody knows whether its Node is Ready.
NAMED = BAD[:3]

#: The beginning of the detail of a host whose journal came from the cluster.
COPIED = "journal: copy in "

#: With more hosts than this, unchanged hosts share a line per state, and at least SHARED hosts with equal state, edits and detail share a row.
MANY = 12


#: The result of a module, as Ansible stores it. A failed one may have any keys.
ModuleResult = Dict[str, Any]


def _results(facts: Mapping[str, Any], names: Any) -> Iterator[ModuleResult]:
    """Yield the results of modules that a host's facts contain under these names. A task with a loop has one result for each item."""
    for name in names:
        result = facts[name] if name in facts else None
        if result:
            yield from result.get("results", [result])


def _waits(facts: Mapping[str, Any], node: str) -> List[ModuleResult]:
    """Return the result of the wait for the host's Node, [] if there was no wait. One call waits for all Nodes of a batch and names those not Ready."""
    result = facts[WAIT] if WAIT in facts else None
    if not result or result.get("skipped"):
        return []
    if node and node in (result.get("missing") or {}):
        return [dict(result, failed=True, msg="its Node {0} is not Ready: missing {1}".format(node, ", ".join(result["missing"][node])))]
    return [dict(result, failed=False)] if result.get("missing") else [dict(result)]


def summarise(hosts: Mapping[str, Mapping[str, Any]], plan: Plan) -> List[HostOutcome]:
    """Return one entry for each host: C(host), C(state), C(edits) made, C(planned) edits, C(seconds) and C(detail).

    C(hosts) is every host's facts. States: V(changed), V(nothing to do), V(not begun), V(half done), V(restored) (failed, and the
    old configuration serves again), V(failed), V(unreachable) and V(left out) (by C(--limit)).
    """
    return [_isolated(host, facts, plan) for host, facts in hosts.items()]


def _isolated(host: str, facts: Mapping[str, Any], plan: Plan) -> HostOutcome:
    """Return the entry of a host. The host may have returned anything, which must not stop the summary of the others."""
    try:
        return _entry(host, facts, plan)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as exc:
        return {"host": host, "state": "failed", "planned": 0, "edits": 0, "seconds": 0.0, "detail": "its results cannot be read ({0}: {1})".format(
            type(exc).__name__, " ".join(host_facts.readable(str(exc)).split())[:200])}


def _entry(host: str, facts: Mapping[str, Any], plan: Plan) -> HostOutcome:
    detected = facts["__ccm_install_detected"] if "__ccm_install_detected" in facts else None
    results = list(_results(facts, CHANGES))
    waits = _waits(facts, plan.get("nodes", {}).get(host, ""))
    bad = [result for result in results + waits if result.get("failed") or result.get("unreachable") or result.get("tolerated")]
    done = {result.get("component") for result in results if result.get("changed") and result not in bad}
    edits = [edit["component"] for edit in plan.get("edits", []) if edit["host"] == host and edit["component"] != "node"]
    unseen = any(result.get("restarted_at") for result in _results(facts, CHANGES[1:])) and not waits
    steps = plan.get("hosts", {}).get(host)
    planned = len(steps["control_plane"]) + bool(steps["kubelet"]) if steps else 0
    detail = ""
    if detected is None:
        state = "left out"
    elif host in plan.get("left_out", {}):
        state, detail = "failed", plan["left_out"][host]
    elif "node_name" not in detected:
        state, detail = "unreachable" if detected.get("unreachable") else "failed", _words(detected)
    elif bad:
        state = "unreachable" if bad[-1].get("unreachable") else "restored" if bad[-1].get("restored") else "failed"
        detail = _words(bad[-1])
    elif unseen:  # another host of its batch failed before the Node was checked
        state, detail = "half done", "restarted; the run stopped before it checked that the Node is Ready"
    elif len([result for result in results if not result.get("skipped")]) < planned:
        state = "not begun" if not done else "half done"
    else:
        state = "changed" if done else "nothing to do"
    return {"host": host, "planned": len(edits), "edits": sum(component in done for component in edits), "detail": detail or _copied(host, plan),
            "seconds": round(sum(result.get("seconds") or result.get("waited") or 0.0 for result in results + waits), 1), "state": state}


def _copied(host: str, plan: Plan) -> str:
    """Return the detail of a host whose journal came from the cluster; '' for a host with a journal of its own."""
    copies = plan.get("copies", {})
    return COPIED + copies[host] if host in copies else ""


def allowed(limit: Any, workers: int) -> int:
    """Return how many of the workers may fail: C(limit) is a number or a share such as V(10%). Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+)\s*(%?)\s*", "" if isinstance(limit, bool) else str(limit))
    if match is None or match.group(2) and int(match.group(1)) > 100:
        raise ValueError("ccm_install_max_failed_workers is {0!r}: set a number of workers, such as 3, or a share, such as '10%'".format(limit))
    return workers * int(match.group(1)) // 100 if match.group(2) else int(match.group(1))


def failed(entries: List[HostOutcome], states: Sequence[str] = BAD) -> List[str]:
    """Return the hosts in one of these states, by default those in C(BAD)."""
    return [entry["host"] for entry in entries if entry["state"] in states]


def retry(entries: List[HostOutcome]) -> List[str]:
    """Return, as lines, how to finish the failed hosts; [] if no host failed, or if the run stopped before other hosts and must run again as a whole."""
    names = failed(entries)
    if not names or any(entry["state"] in ("not begun", "half done") for entry in entries):
        return []
    return ["Failed: {0}. Their Nodes are not adopted, so load balancers do not use them and they get no routes. Fix the cause, then run "
            "site.yml again with --limit 'localhost:kube_control_plane:{1}'".format(", ".join(names), ":".join(names))]


def node_only(plan: Plan, services: int) -> List[str]:
    """Return, as lines, what it means for this cluster that the controller runs only its node controller.

    C(services) is the number of Services of type LoadBalancer.
    """
    lines = ["The cloud-controller-manager runs only its node controller: the loops service, route and node-lifecycle do not run. Fix "
             "what failed and run site.yml again to start them."]
    owners = ["{kind} {namespace}/{name} is paused".format(**other) for other in plan.get("takeover", [])]
    owners += sorted({"kube-controller-manager, where it was changed, no longer runs the loops of the in-tree {0}".format(edit["now"])
                      for edit in plan.get("edits", []) if edit["component"] == "kube-controller-manager"
                      and edit["flag"] == "--cloud-provider" and edit["now"] not in (None, "", "external")})
    if not owners:
        return lines + ["Apparently nothing ran these loops before the migration, so existing load balancers keep working."]
    return lines + ["{0}. Until then, no controller changes the load balancers of {1}, creates routes for new Nodes, or deletes Nodes whose "
                    "machines are gone. Existing load balancers and routes keep working.".format(
                        " and ".join(owners), "{0} Service(s)".format(services) if services else "Services")]


def _words(result: Mapping[str, Any]) -> str:
    """Return the first line of a module's message, or the reason behind a message of Ansible itself. Ansible has already shown the whole message."""
    if unseen.is_ansibles(dict(result)):
        return unseen.reason(dict(result))
    return (str(result.get("msg") or "").strip().splitlines() or ["no message"])[0][:300]


def _rows(entries: List[HostOutcome], many: bool) -> List[Tuple[str, HostOutcome, str]]:
    """Return (host or hosts, entry, seconds) of each row of the summary. C(many): at least SHARED hosts with equal rows share one."""
    alike: Dict[Tuple[str, int, int, str], List[HostOutcome]] = {}
    for entry in entries:
        alike.setdefault(_kind(entry), []).append(entry)
    rows: List[Tuple[str, HostOutcome, str]] = []
    for entry in entries:
        same = alike[_kind(entry)]
        if not many or len(same) < grouping.SHARED:
            rows.append((entry["host"], entry, "{0:.1f}".format(entry["seconds"])))
        elif same[0] is entry:
            times = [other["seconds"] for other in same]
            if entry["detail"].startswith(COPIED):
                entry = cast(HostOutcome, dict(entry, detail="the journals have copies in the cluster" if all(other["detail"] for other in same) else ""))
            rows.append((grouping.hosts([other["host"] for other in same]), entry, "{0:.1f} to {1:.1f}".format(min(times), max(times))))
    return rows


def _kind(entry: HostOutcome) -> Tuple[str, int, int, str]:
    """Return what is the same for all hosts of a row. The host's own name in the detail is ignored."""
    detail = "" if entry["detail"].startswith(COPIED) else entry["detail"].replace(entry["host"], "NAME")
    return entry["state"], entry["edits"], entry["planned"], detail


def table(entries: List[HostOutcome], seconds: float) -> List[str]:
    """Return the summary as lines: a row for each host, but a line per state for unchanged hosts if there are many.

    If there are many hosts, those with the same state, edits and detail also share a row, which shows the shortest and the longest time.
    """
    quiet = [entry for entry in entries if entry["state"] in ("nothing to do", "left out")] if len(entries) > MANY else []
    rows = [["HOST", "STATE", "EDITS", "SECONDS", ""]]
    rows += [[name, entry["state"], "{edits} of {planned}".format(**entry), seconds_taken, entry["detail"]]
             for name, entry, seconds_taken in _rows([entry for entry in entries if entry not in quiet], len(entries) > MANY)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows] if len(rows) > 1 else []
    for state in ("nothing to do", "left out"):
        count = sum(entry["state"] == state for entry in quiet)
        lines += ["{0} other host(s): {1}".format(count, state)] if count else []
    counted: Dict[str, int] = {}
    for entry in entries:
        counted[entry["state"]] = counted.get(entry["state"], 0) + 1
    counts = ", ".join("{0} {1}".format(count, state) for state, count in sorted(counted.items()))
    return lines + ["{0} host(s) in {1:.0f} s: {2}".format(len(entries), seconds, counts)]

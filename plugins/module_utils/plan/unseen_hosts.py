# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The problems about hosts that could not be inspected: one for each reason, with advice that the next run accepts.

The first control plane plans and checks for all hosts, so no run can exclude it. A migration needs every control plane. Pure; runs on the Ansible
controller.
"""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.unseen import reason
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping


def reasons(unseen: Dict[str, HostAnswer]) -> Dict[str, str]:
    """Return why each host could not be inspected. C(unseen): the hosts with their answers."""
    # A host whose kubelet does not run has problems in place of a message.
    return {host: reason(answer if answer.get("msg") else dict(answer, msg="; ".join(answer.get("problems", []))))
            for host, answer in unseen.items()}


def problems(unseen: Dict[str, str], control_plane: Sequence[str]) -> List[str]:
    """Return the problems of a migration. C(unseen): the hosts with their reasons."""
    workers = [host for host in unseen if host not in control_plane]
    return [_problem(names, why, "" if names[0] in control_plane else ", or exclude {0} with {1}".format(_these(workers), _limit(workers)))
            for names, why in _by_reason(unseen, control_plane)]


def rollback_problems(unseen: Dict[str, str], control_plane: Sequence[str]) -> List[str]:
    """Return the problems of a rollback, which may exclude every host but the one that plans."""
    planner = control_plane[:1]
    others = [host for host in unseen if host not in planner]
    texts = []
    for names, why in _by_reason(unseen, planner):
        way = ", or exclude {0} with {1}. The controller then stays until a later rollback restores {2}".format(
            _these(others), _limit(others), "the host" if len(others) == 1 else "them")
        if names[0] in planner:
            way = ": the run plans on this host"
            if len(control_plane) > 1:
                way += (". Or put another control plane first in the group kube_control_plane, and exclude {0} with {1}. The controller then "
                        "stays until a later rollback restores it".format(names[0], _limit([*names, *others])))
        texts.append(_problem(names, why, way))
    return texts


def _problem(names: List[str], why: str, way: str) -> str:
    return "{0}: could not be inspected: {1}. Fix this{2}".format(names[0] if len(names) == 1 else grouping.hosts(names), why, way)


def _by_reason(unseen: Dict[str, str], apart: Sequence[str]) -> List[Tuple[List[str], str]]:
    """Return (hosts, reason). The hosts C(apart) have entries of their own, because their advice differs."""
    hosts_by_reason: Dict[Tuple[bool, str], List[str]] = {}
    for host, why in unseen.items():
        hosts_by_reason.setdefault((host in apart, why), []).append(host)
    return [(sorted(hosts, key=grouping.in_order), why) for (unused, why), hosts in hosts_by_reason.items()]


def _these(hosts: Sequence[str]) -> str:
    return "the host" if len(hosts) == 1 else "these hosts"


def _limit(hosts: Sequence[str]) -> str:
    """Return the option that excludes hosts from the next run. For many hosts, return only its name, because the pattern would be too long."""
    return "--limit 'all:!{0}'".format(":!".join(hosts)) if len(hosts) <= grouping.NAMED else "--limit"

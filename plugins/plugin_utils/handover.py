# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action plugins take from the plan that the role ccm_install stored on the first control plane.

A task that names parts of the plan in Jinja expressions makes ansible-core 2.18 template the whole plan again for each expression and
host. These functions read the stored variables as they are. Pure, except that C(stored) reads the variables of one host.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

from ansible.errors import AnsibleError

#: Options of M(outoftree.ccm.ccm_component_config) that a step of the plan sets.
STEP = ("component", "state", "files", "flags", "flags_before", "restart", "service")


def stored(task_vars: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    """Return the variables of a host without templating them, {} for an unknown host."""
    variables: Mapping[str, Any] = task_vars["hostvars"].raw_get(host) if host in task_vars["hostvars"] else {}
    return variables


def lost_journal(variables: Mapping[str, Any], host: str) -> str:
    """Return the copy of the host's journal if the journal is lost, otherwise ''."""
    copies = (variables.get("__ccm_install_copies") or {}).get("hosts") or {}
    return str((copies.get(host) or {}).get("content") or "")


def planned_step(variables: Mapping[str, Any], host: str, number: Optional[int] = None) -> Optional[Dict[str, Any]]:
    """Return the options for a change of the host: for its kubelet if C(number) is None, otherwise for the control plane's step with this number.

    Returns None if the plan has no such step. Raises AnsibleError if there is no plan.
    """
    if "__ccm_install_plan" not in variables:
        raise AnsibleError("There is no plan: this run excludes the host that makes it. Run without --limit, or include that host.")
    plan = variables["__ccm_install_plan"]
    steps = plan["hosts"].get(host) or {}
    listed = [steps.get("kubelet")] if number is None else (steps.get("control_plane") or [])[number:number + 1]
    step = next(iter(listed), None)
    if not step:
        return None
    options = {name: step[name] for name in STEP if name in step}
    options["run_id"] = variables["__ccm_install_run"]["id"]
    if lost_journal(variables, host):
        options["journal_copy"] = lost_journal(variables, host)
    return options


def journal_changes(variables: Mapping[str, Any], host: str, control_plane: Sequence[str]) -> bool:
    """Return whether this run writes the host's journal, or the copy of the journal is older than the journal. C(control_plane) has the
    control planes' names."""
    plan = variables.get("__ccm_install_plan") or {"nodes": {}, "hosts": {}}
    steps = plan["hosts"].get(host) or {}
    stale = (variables.get("__ccm_install_copies") or {}).get("stale") or []
    return host in plan["nodes"] and bool(
        steps.get("control_plane") or steps.get("kubelet") or plan.get("kubeadm_config") and host in control_plane
        or host in (plan.get("forget") or []) or host in stale)

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: adoption_outlook
short_description: Show which Nodes the controller will adopt, once it can ask the cloud
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Compares the plan of a migration with the cloud's answers about the Nodes, before a kubelet is restarted. The filter reads and writes
    nothing.
positional: _input
options:
  _input:
    description: The result of P(outoftree.ccm.migration_plan#filter).
    type: dict
    required: true
  cluster:
    description: The result of M(outoftree.ccm.ccm_cluster_info) after the rollout.
    type: dict
    required: true
  control_plane:
    description: Names of the control planes.
    type: list
    elements: str
    required: true
  workers:
    description: The number of workers of the run.
    type: int
    default: 0
  max_failed:
    description: How many workers may be left out, as a number or as a share such as V(10%).
    type: raw
    default: 0
"""

EXAMPLES = r"""
- name: Report who will be adopted
  ansible.builtin.debug:
    msg: "{{ (plan | outoftree.ccm.adoption_outlook(cluster, groups['kube_control_plane'])).lines }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.lines) say which Node will be adopted as which instance, and which Nodes change their primary address. RV(_value.hosts) has
      the hosts whose Nodes will not be adopted, with the reasons, and RV(_value.problems) the same as sentences.
    - RV(_value.stop) says whether the run may not leave these hosts out. RV(_value.plan) is the plan without them, and RV(_value.adopted)
      the Nodes that remain.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import adoption


def adoption_outlook(plan, cluster, control_plane, workers=0, max_failed=0):
    try:
        outlook = adoption.outlook(plan, cluster, list(control_plane), int(workers), max_failed)
        return dict(outlook, plan=adoption.without(plan, outlook["hosts"]))
    except (KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError("adoption_outlook needs a plan and the result of ccm_cluster_info: {0}".format(exc)) from exc


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"adoption_outlook": adoption_outlook}

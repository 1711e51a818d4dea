# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: former_variables
short_description: Warn of variables of the roles that have another name now
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns its input unchanged. If a former variable is set, the filter reports a deprecation that names the variable to set instead. Ansible
    shows the same deprecation once in a run. Until 2.0.0, the former variable counts as before.
positional: _input, names
options:
  _input:
    description: Anything, such as the specification of a role's variables.
    type: raw
    required: true
  names:
    description: Names of variables that are set, as a list or as the text with commas that P(ansible.builtin.varnames#lookup) returns.
    type: raw
    required: true
"""

EXAMPLES = r"""
# The roles do this in the task that validates their variables.
- name: Warn of former variables
  ansible.builtin.debug:
    msg: "{{ 'checked' | outoftree.ccm.former_variables(['ccm_install_node_timeout']) }}"
"""

RETURN = r"""
_value:
  description: The input.
  type: raw
"""

from ansible.utils.display import Display

#: What to set instead of each former variable. The roles read the former variables in vars/main.yml (ccm_install) and vars/main/former.yml (ccm_runtime).
FORMER = {
    "ccm_install_leader_migration_lease": "nothing: finish the migration that uses the Lease with this name, then remove the variable",
    "ccm_install_node_timeout": "ccm_install_gate_timeout",
    "ccm_install_report_approved_by": "approved_by of ccm_install_report_details",
    "ccm_install_report_change": "change of ccm_install_report_details",
    "ccm_install_report_reason": "reason of ccm_install_report_details",
    "ccm_install_takeover_ignore": "ccm_install_ignore",
    "ccm_install_volumes_ignore": "ccm_install_ignore",
    "ccm_runtime_api_host": "ccm_install_api_host",
    "ccm_runtime_kubeconfig": "ccm_install_kubeconfig",
    "ccm_runtime_kubelet_serving_csr": "kubelet-serving-csr-controller in ccm_runtime_controllers",
    "ccm_runtime_label_volumes": "persistentvolume-label-controller in ccm_runtime_controllers",
    "ccm_runtime_leader_migration": "nothing: the playbook leader_migration sets it",
    "ccm_runtime_leader_migration_lease": "nothing: finish the migration that uses the Lease with this name, then remove the variable",
    "ccm_runtime_liveness_path": "ccm_runtime_health_path",
    "ccm_runtime_max_cloud_age": "nothing: the alerts of ccm_runtime_monitoring report a cloud that does not answer",
    "ccm_runtime_readiness_path": "ccm_runtime_health_path",
    "ccm_runtime_verbosity": "-v=LEVEL in ccm_runtime_extra_args",
}


def former_variables(value, names):
    listed = names.split(",") if isinstance(names, str) else names
    for name in sorted(set(listed) & set(FORMER)):
        Display().deprecated("The variable {0} is deprecated and still counts. Set instead: {1}".format(name, FORMER[name]),
                             version="2.0.0", collection_name="outoftree.ccm")
    return value


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"former_variables": former_variables}

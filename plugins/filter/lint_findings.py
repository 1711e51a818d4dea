# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: lint_findings
short_description: Find the cloud flags, gates, plugins and objects with which a component does not start
version_added: 1.0.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Evaluates the results of M(outoftree.ccm.ccm_component_flags_info) and M(outoftree.ccm.ccm_cluster_info) for each Kubernetes minor up
    to the newest that this collection knows. The filter reads and writes nothing.
positional: _input, cluster
options:
  _input:
    description: Results of M(outoftree.ccm.ccm_component_flags_info) by inventory host.
    type: dict
    required: true
  cluster:
    description: The result of M(outoftree.ccm.ccm_cluster_info).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what an upgrade would meet
  ansible.builtin.debug:
    msg: "{{ (detected | outoftree.ccm.lint_findings(cluster)).lines }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.findings) has C(host), C(component), C(file), C(line), C(flag), C(item), C(level), C(stops_in), C(reason) and C(fix) of each
      finding. C(level) is C(now) if the component of the cluster's minor or the next one does not start, C(later) if that of a later minor
      does not, and C(unused) if nothing uses what the finding names. C(stops_in) is the first minor with which the component does not start, if any.
    - A finding about volumes of an in-tree plug-in has C(component=volumes), an object as C(file), the plug-in as C(flag) and its CSI driver as
      C(item). Its C(level) is C(now) if Pods use such volumes on Nodes without the driver, and C(unused) otherwise.
    - RV(_value.unread) names what could not be read. RV(_value.ok) says whether there is no finding of level C(now) and everything was read.
      RV(_value.lines) has all of it as text, and RV(_value.sarif) in the form SARIF 2.1.0.
    - RV(_value.condition) says whether the components of the next minor start, by C(status), C(reason) and C(text).
  type: dict
"""

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import lint
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.isolation import isolated


def lint_findings(detected, cluster):
    result = isolated(lambda hosts: lint.lint(hosts, cluster), detected)
    return dict(result, sarif=lint.sarif(result))


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"lint_findings": lint_findings}

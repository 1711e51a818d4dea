# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the filters that evaluate the results from the hosts and the cluster, and need to know the control planes."""

from __future__ import annotations


class ModuleDocFragment:

    DOCUMENTATION = r"""
options:
  _input:
    description:
      - Results of M(outoftree.ccm.ccm_component_flags_info) by inventory host. A host that could not be inspected is a problem, but does
        not prevent the evaluation of the others.
    type: dict
    required: true
  cluster:
    description: The result of M(outoftree.ccm.ccm_cluster_info).
    type: dict
    required: true
  control_plane:
    description: The inventory hosts that are control planes.
    type: list
    elements: str
    required: true
"""

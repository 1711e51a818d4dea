# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hides the result, which has the content of kubeadm's configuration, if the task asks for it."""

from __future__ import annotations

from ansible_collections.outoftree.ccm.plugins.plugin_utils.hidden import HidingAction


class ActionModule(HidingAction):
    """Action plugin of ccm_cluster_info."""

    MODULE = "outoftree.ccm.ccm_cluster_info"
    PART = "kubeadm_config"

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of every module that talks to the Kubernetes API."""

from __future__ import annotations


class ModuleDocFragment:

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Path of a kubeconfig on the host where the module runs, or a kubeconfig's content as a dictionary.
      - Defaults to the environment variable E(K8S_AUTH_KUBECONFIG) or E(KUBECONFIG), then to C(~/.kube/config).
    type: raw
  context:
    description: The context of the kubeconfig to use. Defaults to its current context.
    type: str
requirements:
  - kubernetes >= 29.0.0 (the Python library, on the host where the module runs)
"""

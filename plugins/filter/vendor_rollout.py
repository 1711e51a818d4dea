# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vendor_rollout
short_description: Decide how a vendor's own cloud-controller-manager is rolled out
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Chooses a vendor's image for a Kubernetes release, and compares what the inventory sets with what the controller reads. The role
    C(ccm_runtime) uses it for its variable C(ccm_runtime_vendor). The filter reads and writes nothing.
positional: _input, kubernetes
options:
  _input:
    description: The vendor, as the role's C(files/vendors/VENDOR.yml) describes it. An empty one stands for this project's runtime.
    type: dict
    required: true
  kubernetes:
    description: The cluster's Kubernetes version, such as V(1.36) or V(v1.36.3+k3s1). If empty, it is unknown.
    type: str
    required: true
  image:
    description: The image to roll out. It is a problem if it is empty.
    type: str
    default: ""
  configured:
    description: Whether there is a configuration file for the controller.
    type: bool
    default: false
  credentials:
    description: The keys of the Secret. The filter does not need their values.
    type: list
    elements: str
    default: []
  environment:
    description: The names of environment variables that the user sets. Each replaces the vendor's variable of the same name, and its key.
    type: list
    elements: str
    default: []
  own_args:
    description: Whether the user replaces all arguments, so that the configuration file may have another flag.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show the image that the vendor has for this cluster
  ansible.builtin.debug:
    msg: "{{ (vendor | outoftree.ccm.vendor_rollout('v1.36.3')).image or 'none' }}"
  vars:
    vendor:
      images:
        "1.35": registry.example.com/acme-cloud-controller-manager:v1.35.2
        "1.36": registry.example.com/acme-cloud-controller-manager:v1.36.0
      config: none
      credentials:
        token: {env: ACME_TOKEN, required: true}
"""

RETURN = r"""
_value:
  description:
    - RV(_value.minor) is the Kubernetes minor such as V(1.36), empty if it is unknown. RV(_value.image) is the vendor's image for it, empty if
      there is none. RV(_value.reads_config) says whether the controller reads a configuration file. RV(_value.from_secret) has C(env) and C(key)
      of each environment variable that comes from the Secret.
    - RV(_value.problems) has everything that prevents the rollout, as parts of one message.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.vendor import rollout


def vendor_rollout(vendor, kubernetes, image="", configured=False, credentials=(), environment=(), own_args=False):
    if not isinstance(vendor, dict):
        raise AnsibleFilterError("vendor_rollout needs the description of a vendor, as in the role's files/vendors/VENDOR.yml")
    return rollout(vendor, str(kubernetes), image, bool(configured), list(credentials), list(environment), bool(own_args))


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"vendor_rollout": vendor_rollout}

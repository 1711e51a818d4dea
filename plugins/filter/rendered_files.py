# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rendered_files
short_description: Turn the controller's objects into the files of a Git repository
version_added: 1.0.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns the files that C(render.yml) writes - the controller's objects with a kustomization, the form of its Secret without values, and
    what kubeadm, kubelets and Cluster API need. The filter reads and writes nothing.
positional: _input, secret, version
options:
  _input:
    description: The objects that the role P(outoftree.ccm.ccm_runtime#role) applies, without the Secret.
    type: list
    elements: dict
    required: true
  secret:
    description: The Secret. Its values are not written.
    type: dict
    required: true
  version:
    description: Version of Kubernetes. If empty, the newest that this collection supports.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show which files there would be
  ansible.builtin.debug:
    msg: "{{ (objects | outoftree.ccm.rendered_files(secret, '1.36')).keys() }}"
"""

RETURN = r"""
_value:
  description: The text of each file by its path in the folder.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import render


def rendered_files(objects, secret, version=""):
    try:
        return render.files(str(version), objects, secret)
    except ValueError as exc:
        raise AnsibleFilterError("ccm_runtime_kubernetes_version: {0}".format(exc)) from exc


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"rendered_files": rendered_files}

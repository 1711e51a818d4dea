#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_kubeadm_config
short_description: Change kubeadm's ClusterConfiguration in the cluster, unless somebody else changed it
description:
  - C(kubeadm upgrade) creates the control plane's manifests from the ConfigMap C(kube-system/kubeadm-config). It must match the
    manifests. Otherwise the next upgrade brings removed flags back.
  - Writes the text that P(outoftree.ccm.migration_plan#filter) planned, if the ConfigMap did not change since the plan was made.
    The patch contains the resourceVersion.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
  - outoftree.ccm.api
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  content:
    description: The new text of ClusterConfiguration in base64.
    type: str
    required: true
  sha256:
    description: SHA-256 of the text from which the plan was made. The module refuses to replace any other text.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Update kubeadm's configuration to match the manifests
  outoftree.ccm.ccm_kubeadm_config:
    content: "{{ plan.kubeadm_config.content }}"
    sha256: "{{ plan.kubeadm_config.sha256 }}"
"""

RETURN = r"""
sha256:
  description: SHA-256 of the text afterwards.
  returned: always
  type: str
  sample: 7b1c...
"""

import base64
import hashlib

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.host import secrets

PATH = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config"
KEY = "ClusterConfiguration"
CHANGED = ("the ConfigMap kube-system/kubeadm-config was changed by someone else after it was read, so it was not written. Run "
           "again to plan with its new content")


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def main():
    module = AnsibleModule(
        argument_spec=dict(
            content=dict(type="str", required=True, no_log=True),
            sha256=dict(type="str", required=True),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    after = base64.b64decode(module.params["content"]).decode("utf-8")
    try:
        config_map = api.call("GET", PATH)
        before = (config_map.get("data") or {}).get(KEY, "")
        if before == after:
            module.exit_json(changed=False, sha256=digest(after))
        if digest(before) != module.params["sha256"]:
            module.fail_json(msg=CHANGED)
        if not module.check_mode:
            api.patch(PATH, {"metadata": {"resourceVersion": config_map["metadata"]["resourceVersion"]}, "data": {KEY: after}})
    except _api.ApiError as exc:
        if exc.status == 409:
            module.fail_json(msg=CHANGED)
        module.fail_json(msg="cannot change the ConfigMap kube-system/kubeadm-config: {0}".format(_api.explain(exc)))
    header = "ConfigMap kube-system/kubeadm-config {0}".format(KEY)
    result = dict(changed=True, sha256=digest(after))
    if module._diff:
        result["diff"] = dict(before_header=header, after_header=header, before=secrets.hide_credentials(before),
                              after=secrets.hide_credentials(after))
    module.exit_json(**result)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_takeover
short_description: Pause another cloud-controller-manager, or resume it
description:
  - To pause a workload, the module scales a Deployment to 0, or gives a DaemonSet a node selector that matches no node. It does not delete the
    workload. The same write sets the annotation C(ccm.outoftree.dev/paused), which records a Deployment's former replicas.
  - Waits until the last Pod of a paused workload is gone, or until all Pods of a resumed one are Ready.
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
  kind:
    description: Kind of the workload.
    type: str
    required: true
    choices: [Deployment, DaemonSet]
  name:
    description: Name of the workload.
    type: str
    required: true
  namespace:
    description: Namespace of the workload.
    type: str
    default: kube-system
  state:
    description: V(paused) stops the workload's Pods. V(resumed) restores the previous state of a paused workload, and does nothing to others.
    type: str
    choices: [paused, resumed]
    default: paused
  wait_timeout:
    description: Seconds to wait until the workload's Pods are gone or Ready.
    type: int
    default: 120
seealso:
  - module: outoftree.ccm.ccm_cluster_info
"""

EXAMPLES = r"""
- name: Pause the old controller
  outoftree.ccm.ccm_takeover:
    kind: Deployment
    name: sim-cloud-controller-manager

- name: Resume the old controller
  outoftree.ccm.ccm_takeover:
    kind: Deployment
    name: sim-cloud-controller-manager
    state: resumed
"""

RETURN = r"""
pods:
  description: The workload's Pods that still exist at the end.
  returned: success
  type: list
  elements: str
  sample: []
"""

import json
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import others

POLL = 0.5


def paths(params):
    """Return the path of the workload and of its namespace's Pods."""
    workload = "/apis/apps/v1/namespaces/{0}/{1}/{2}".format(params["namespace"], others.KINDS[params["kind"]], params["name"])
    return workload, "/api/v1/namespaces/{0}/pods".format(params["namespace"])


def shown(patch):
    """Return the parts of a patch that people need, as text."""
    annotations = patch["metadata"]["annotations"]
    return json.dumps({"annotations": annotations, "spec": patch["spec"]}, indent=2, sort_keys=True) + "\n"


def wait(module, api):
    """Wait until the Pods match the state; return the names of those that exist."""
    params = module.params
    workload, pods = paths(params)
    begun = time.monotonic()
    while True:
        left = others.owned(params["kind"], params["name"], api.items(pods))
        if params["state"] == "resumed" and others.ready(params["kind"], api.call("GET", workload)):
            return left
        if params["state"] == "paused" and not left:
            return left
        if time.monotonic() - begun > params["wait_timeout"]:
            module.fail_json(msg="{kind} {namespace}/{name} is {state}, but after {wait_timeout} s ".format(**params) + (
                "these of its Pods still run: {0}".format(", ".join(left)) if params["state"] == "paused"
                else "not all of its Pods are Ready. Investigate them with 'kubectl -n {namespace} describe pod'".format(**params)))
        time.sleep(POLL)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            kind=dict(type="str", required=True, choices=["Deployment", "DaemonSet"]),
            name=dict(type="str", required=True),
            namespace=dict(type="str", default=_api.NAMESPACE),
            state=dict(type="str", choices=["paused", "resumed"], default="paused"),
            wait_timeout=dict(type="int", default=120),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    params = module.params
    path = paths(params)[0]
    change = others.pause if params["state"] == "paused" else others.resume
    try:
        while True:
            patch = change(params["kind"], api.call("GET", path))
            if patch is None or module.check_mode:
                break
            try:
                api.patch(path, patch)
                break
            except _api.ApiError as exc:
                if exc.status != 409:  # it changed in between, for example by its controller: read it again
                    raise
        there = [] if module.check_mode or (patch is None and params["state"] == "resumed") else wait(module, api)
    except _api.ApiError as exc:
        module.fail_json(msg="{0} {1}/{2} cannot be {3}: {4}".format(
            params["kind"], params["namespace"], params["name"], params["state"], _api.explain(exc)))
    header = "{kind} {namespace}/{name}".format(**params)
    diff = dict(before_header=header, after_header=header, before="", after=shown(patch)) if patch else {}
    module.exit_json(changed=patch is not None, pods=there, diff=diff)


if __name__ == "__main__":
    main()

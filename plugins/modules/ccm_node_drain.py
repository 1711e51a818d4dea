#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_node_drain
short_description: Drain a Node and delete it, so that its kubelet can register it again
description:
  - Cordons the Node and evicts its Pods with the Eviction API, which honours PodDisruptionBudgets. The module retries an eviction until
    the budget allows it, also after an error of the API server or of a webhook. Pods of DaemonSets and static Pods stay.
  - Waits until the Pods are gone. If that takes too long, the module fails with the remaining Pods and the reasons. Whenever it fails, it
    uncordons a Node that it cordoned.
  - With O(state=deleted), the module then deletes the Node, if it is still the same object.
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
    support: none
options:
  name:
    description: Name of the Node. A Node that does not exist counts as drained and deleted.
    type: str
    required: true
  state:
    description: V(drained) leaves the Node cordoned and without Pods. V(deleted) then also deletes it.
    type: str
    default: drained
    choices: [drained, deleted]
  force:
    description: Whether to also evict Pods that no controller recreates, and Pods with data in an emptyDir.
    type: bool
    default: false
  wait_timeout:
    description: Seconds to wait until the Pods are gone.
    type: int
    default: 300
seealso:
  - module: outoftree.ccm.ccm_node_info
"""

EXAMPLES = r"""
- name: Drain and delete a Node before it registers again
  outoftree.ccm.ccm_node_drain:
    name: agent-1
    state: deleted
"""

RETURN = r"""
evicted:
  description: The Pods that were (in check mode, would be) evicted.
  returned: always
  type: list
  elements: str
  sample: [default/web-6d5b]
waited:
  description: Seconds until the Pods were gone.
  returned: always
  type: float
  sample: 12.5
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import reregister

POLL = 1.0


class Drain:
    """The drain of one Node."""

    def __init__(self, module):
        self.module = module
        self.api = api.connect(module)
        self.path = api.node_path(module.params["name"])
        self.cordoned = False
        self.evicted = set()
        #: The last error of each Pod's eviction.
        self.reasons = {}

    def pods(self):
        query = {"fieldSelector": "spec.nodeName={0}".format(self.module.params["name"])}
        return self.api.items("/api/v1/pods", query)

    def fates(self):
        return reregister.fates(self.pods(), self.module.params["force"])

    def cordon(self, node):
        if not (node.get("spec") or {}).get("unschedulable"):
            self.cordoned = True  # even if there is no answer
            self.api.patch(self.path, {"spec": {"unschedulable": True}})

    def uncordon(self):
        """Let the Node accept Pods again if this module cordoned it; return the end of a message that says so, or why
        it stays cordoned; '' if there is nothing to say."""
        if not self.cordoned:
            return ""
        try:
            self.api.patch(self.path, {"spec": {"unschedulable": None}})
        except api.ApiError as exc:
            return "" if exc.status == 404 else "; it stays cordoned ({0}): run 'kubectl uncordon {1}'".format(exc, self.module.params["name"])
        return "; it accepts Pods again"

    def evict(self, namespace, name):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
        try:
            self.api.call("POST", "/api/v1/namespaces/{0}/pods/{1}/eviction".format(namespace, name), body)
            self.evicted.add("{0}/{1}".format(namespace, name))
        except api.ApiError as exc:
            # The Pod's budget does not allow it yet, the Pod has two budgets (500), or a webhook or the API server does not answer.
            if exc.status in (0, 429) or exc.status >= 500:
                self.reasons[namespace, name] = str(exc)
            elif exc.status != 404:
                raise

    def run(self):
        """Evict until none of the Pods that must go is left; return the seconds."""
        begun = time.monotonic()
        while True:
            pods = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in self.pods()}
            left = reregister.fates(pods.values(), True).evict
            if not left:
                return round(time.monotonic() - begun, 1)
            if time.monotonic() - begun > self.module.params["wait_timeout"]:
                self.give_up(left)
            for key in left:
                if not pods[key]["metadata"].get("deletionTimestamp"):
                    self.evict(*key)
            time.sleep(POLL)

    def give_up(self, left):
        reasons = {key: ": " + reason for key, reason in self.reasons.items()}
        listed = ["{0}/{1}{2}".format(namespace, name, reasons.get((namespace, name), " does not terminate")) for namespace, name in left]
        self.module.fail_json(
            msg="Node {0} could not be drained within {1} s, and was not deleted{2}. These Pods are left: {3}".format(
                self.module.params["name"], self.module.params["wait_timeout"], self.uncordon(),
                "; ".join(listed)), evicted=sorted(self.evicted), waited=float(self.module.params["wait_timeout"]))


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", required=True),
            state=dict(type="str", default="drained", choices=["drained", "deleted"]),
            force=dict(type="bool", default=False),
            wait_timeout=dict(type="int", default=300),
            **api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    drain = Drain(module)
    try:
        node = drain.api.get(drain.path)
        if node is None:
            module.exit_json(changed=False, evicted=[], waited=0.0)
        fates = drain.fates()
        if fates.refused:
            module.fail_json(msg="Node {0} was not drained: {1}. Move these Pods, or set 'force' (variable ccm_install_reregister_force) to "
                                 "evict them anyway".format(module.params["name"], "; ".join(fates.refused)), evicted=[], waited=0.0)
        deleted = module.params["state"] == "deleted"
        changed = deleted or bool(fates.evict) or not (node.get("spec") or {}).get("unschedulable")
        if module.check_mode:
            module.exit_json(changed=changed, evicted=sorted("/".join(key) for key in fates.evict), waited=0.0)
        drain.cordon(node)
        waited = drain.run()
        if deleted:
            drain.api.call("DELETE", drain.path, {"apiVersion": "v1", "kind": "DeleteOptions",
                                                  "preconditions": {"uid": node["metadata"]["uid"]}})
    except api.ApiError as exc:
        module.fail_json(msg="cannot drain Node {0}: {1}{2}".format(module.params["name"], api.explain(exc), drain.uncordon()),
                         evicted=sorted(drain.evicted), waited=0.0)
    module.exit_json(changed=changed, evicted=sorted(drain.evicted), waited=waited)


if __name__ == "__main__":
    main()

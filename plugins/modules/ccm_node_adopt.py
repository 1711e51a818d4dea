#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_node_adopt
short_description: Initialise a Node that registered without a cloud
description:
  - A cloud-controller-manager sets providerID, addresses, zone, region and type only on a Node with the taint
    C(node.cloudprovider.kubernetes.io/uninitialized). A kubelet sets that taint only when it registers. Therefore this module taints
    a Node that is already registered, and the controller does the rest. If somebody else changes the Node at the same time, the
    module reads it again and retries.
  - The effect of the taint is NoSchedule, so running Pods stay.
  - The module does not change a Node with this provider's providerID. It refuses a Node with another provider's providerID,
    because a providerID cannot be changed.
  - If the controller does not initialise the Node in time, the module removes the taint and fails with the Node's Events.
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
  name:
    description: Name of the Node.
    type: str
    required: true
  provider_id_prefix:
    description: Prefix of the cloud's providerIDs, for example V(sim://). If empty, any providerID is accepted.
    type: str
    default: ''
  state:
    description:
      - V(adopted) taints an unmanaged Node and waits until it is initialised.
      - V(released) removes the taint from a Node that no controller will initialise, for a rollback.
    type: str
    default: adopted
    choices: [adopted, released]
  wait:
    description: Whether to wait until the Node has a providerID and an address, and the taint is gone.
    type: bool
    default: true
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Adopt a worker that has been registered for years
  outoftree.ccm.ccm_node_adopt:
    name: worker-1
    provider_id_prefix: sim://
"""

RETURN = r"""
node:
  description: The Node afterwards. RV(outoftree.ccm.ccm_node_info#module:nodes) describes the fields.
  returned: when the Node exists
  type: dict
  sample: {name: worker-1, class: initialized, provider_id: "sim://north/i-2"}
waited:
  description: Seconds until the Node was initialised.
  returned: success
  type: float
  sample: 1.6
events:
  description: The newest Events about the Node, if it was not initialised in time.
  returned: failure
  type: list
  elements: str
  sample: ["Warning InstanceNotFound: no instance is called worker-1 (cloud-node-controller)"]
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes

POLL = 0.3
CONFLICTS = 10


class Adoption:
    """The adoption of one Node."""

    def __init__(self, module):
        self.module = module
        self.params = module.params
        self.api = api.connect(module)
        self.path = api.node_path(self.params["name"])

    def read(self):
        """Return the Node and its summary, or fail if there is no such Node."""
        node = self.api.get(self.path)
        if node is None:
            self.module.fail_json(msg="the cluster has no Node {0}. Check that its kubelet runs and registers under that name".format(
                self.params["name"]))
        return node, nodes.summary(node, self.params["provider_id_prefix"])

    def set_taints(self, choose, applies):
        """Write choose(node) as its taints while applies(summary) holds. Reads the Node again and retries on conflict."""
        for unused in range(CONFLICTS):
            node, summary = self.read()
            if not applies(summary):
                return False
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                    "spec": {"taints": choose(node) or None}}
            try:
                self.api.patch(self.path, body)
                return True
            except api.ApiError as exc:
                if exc.status != 409:
                    raise
                time.sleep(POLL)
        self.module.fail_json(msg="the taint of Node {0} could not be set, because something else changed the Node {1} times in "
                                  "between. Find out what writes it, then run again".format(self.params["name"], CONFLICTS))

    def wait(self, tainted):
        begun = time.monotonic()
        while True:
            node, summary = self.read()
            missing = nodes.missing(summary, "initialized")
            if not missing:
                return summary, round(time.monotonic() - begun, 1)
            if time.monotonic() - begun > self.params["wait_timeout"]:
                self.give_up(summary, missing, tainted)
            time.sleep(POLL)

    def give_up(self, summary, missing, tainted):
        """Fail, and remove a taint that this module set, so that it does not keep Pods off the Node for ever."""
        released = tainted and self.set_taints(nodes.without_taint, lambda now: now["uninitialized"] and not now["provider_id"])
        events = api.node_events(self.api, summary["name"])
        after = "The taint was removed again, so the Node accepts Pods as before." if released else \
            "The taint stays, because the Node had it before." if summary["uninitialized"] else "It has no taint."
        if released:
            summary = self.read()[1]
        self.module.fail_json(
            msg="the cloud-controller-manager did not initialise Node {0} within {1} s. Missing: {2}. {3} {4}".format(
                summary["name"], self.params["wait_timeout"], ", ".join(missing), after,
                "Events of the Node: {0}".format("; ".join(events)) if events else
                "There is no Event about it. See the controller's log and 'ccm_health_info'."),
            node=summary, events=events)


def difference(summary, taints):
    lines = ["{0}{1}:{2}".format(t["key"], "=" + t["value"] if t.get("value") else "", t["effect"]) for t in taints]
    header = "Node/{0} spec.taints".format(summary["name"])
    return dict(before_header=header, after_header=header, before="".join(t + "\n" for t in summary["taints"]),
                after="".join(line + "\n" for line in lines))


def refuse_foreign(module, summary):
    if summary["class"] == "foreign":
        module.fail_json(msg="Node {0} was not changed: {1}".format(summary["name"], summary["reason"]), node=summary)


def adopt(adoption):
    module, params = adoption.module, adoption.params
    node, summary = adoption.read()
    refuse_foreign(module, summary)
    needed = summary["class"] == "unmanaged"
    result = dict(changed=needed, node=summary, waited=0.0)
    if needed:
        result["diff"] = difference(summary, nodes.with_taint(node))
    if module.check_mode:
        module.exit_json(**result)
    tainted = needed and adoption.set_taints(nodes.with_taint, lambda now: now["class"] == "unmanaged")
    if needed:
        result["node"] = adoption.read()[1]
    if needed and not tainted:  # somebody else was faster
        refuse_foreign(module, result["node"])
        result["changed"] = False
        del result["diff"]
    if params["wait"]:
        result["node"], result["waited"] = adoption.wait(tainted)
    module.exit_json(**result)


def release(adoption):
    node, summary = adoption.read()
    result = dict(changed=summary["uninitialized"], node=summary, waited=0.0)
    if summary["uninitialized"]:
        result["diff"] = difference(summary, nodes.without_taint(node))
        if not adoption.module.check_mode:
            adoption.set_taints(nodes.without_taint, lambda now: now["uninitialized"])
            result["node"] = adoption.read()[1]
    adoption.module.exit_json(**result)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", required=True),
            provider_id_prefix=dict(type="str", default=""),
            state=dict(type="str", default="adopted", choices=["adopted", "released"]),
            wait=dict(type="bool", default=True),
            wait_timeout=dict(type="int", default=60),
            **api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    adoption = Adoption(module)
    try:
        (adopt if module.params["state"] == "adopted" else release)(adoption)
    except api.ApiError as exc:
        module.fail_json(msg="cannot initialise Node {0}: {1}".format(module.params["name"], api.explain(exc)))


if __name__ == "__main__":
    main()

#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_node_adopt
short_description: Initialise Nodes that registered without a cloud
description:
  - A cloud-controller-manager sets providerID, addresses, zone, region and type only on a Node with the taint
    C(node.cloudprovider.kubernetes.io/uninitialized). A kubelet sets that taint only when it registers. Therefore this module taints
    a Node that is already registered, and the controller does the rest. If somebody else changes the Node at the same time, the
    module reads it again and retries.
  - The effect of the taint is NoSchedule, so running Pods stay.
  - The module does not change a Node with this provider's providerID. It refuses a Node with another provider's providerID,
    because a providerID cannot be changed.
  - If the controller does not initialise the Node in time, the module removes the taint that it set, and fails with the Node's Events.
  - With O(names), the module adopts many Nodes, at most O(parallel) at a time. After the first failure it begins no other Node, finishes
    those that it began, and fails with all errors.
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
    description: Name of the Node. Either this or O(names) is required.
    type: str
  names:
    description: Names of the Nodes, in the order in which the module begins with them. The list may be empty.
    type: list
    elements: str
  parallel:
    description: Number of Nodes that the module taints and waits for at a time, from V(1) to V(100).
    type: int
    default: 10
  provider_id_prefix:
    description: Prefix of the cloud's providerIDs, for example V(sim://). If empty, the providerIDs of any cloud are accepted.
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
    description: Seconds to wait for each Node.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Adopt a worker that has been registered for years
  outoftree.ccm.ccm_node_adopt:
    name: worker-1
    provider_id_prefix: sim://

- name: Adopt many workers, ten at a time
  outoftree.ccm.ccm_node_adopt:
    names: "{{ groups['kube_node'] }}"
    provider_id_prefix: sim://
    parallel: 10
"""

RETURN = r"""
node:
  description: The Node afterwards. RV(outoftree.ccm.ccm_node_info#module:nodes) describes the fields.
  returned: with O(name), when the Node exists
  type: dict
  sample: {name: worker-1, class: initialized, provider_id: "sim://north/i-2"}
nodes:
  description: The name of each Node that was begun, whether it was changed, the seconds until it was initialised, and its error.
  returned: with O(names)
  type: list
  elements: dict
  sample:
    - {name: worker-1, changed: true, waited: 1.6, problem: ""}
waited:
  description: Seconds until the Node, or the last of the Nodes, was initialised.
  returned: success
  type: float
  sample: 1.6
events:
  description: The newest Events about the Node, if it was not initialised in time.
  returned: failure, with O(name)
  type: list
  elements: str
  sample: ["Warning InstanceNotFound: no instance is called worker-1 (cloud-node-controller)"]
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import nodes

POLL = 0.3
CONFLICTS = 10
MOST = 100


class NotAdopted(Exception):
    """A Node was not adopted or released. C(result) has what is known about the Node."""

    def __init__(self, message, **result):
        super().__init__(message)
        self.result = result


class Adoption:
    """The adoption or release of one Node, in steps: begin(), then poll() until it is done."""

    def __init__(self, api, params, name):
        self.api = api
        self.params = params
        self.name = name
        self.path = _api.node_path(name)
        self.begun = time.monotonic()
        self.tainted = False
        self.result = dict(changed=False, node={}, waited=0.0)

    def read(self):
        """Return the Node and its summary. Raises NotAdopted if there is no such Node."""
        node = self.api.get(self.path)
        if node is None:
            raise NotAdopted("the cluster has no Node {0}. Check that its kubelet runs and registers under that name".format(self.name))
        return node, nodes.summary(node, self.params["provider_id_prefix"])

    def set_taints(self, choose, applies):
        """Write choose(node) as the Node's taints if applies(summary) is true; return whether they were written. Reads the Node again and retries
        on conflict. Raises NotAdopted."""
        for unused in range(CONFLICTS):
            node, summary = self.read()
            if not applies(summary):
                return False
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                    "spec": {"taints": choose(node) or None}}
            try:
                self.api.patch(self.path, body)
                return True
            except _api.ApiError as exc:
                if exc.status != 409:
                    raise
                time.sleep(POLL)
        raise NotAdopted("the taint of Node {0} could not be set, because something else changed the Node {1} times in "
                         "between. Find out what writes it, then run again".format(self.name, CONFLICTS))

    def begin(self, check_mode):
        """Taint an unmanaged Node, or, for C(state=released), remove the taint; return whether there is nothing to wait for."""
        if self.params["state"] == "released":
            self.release(check_mode)
            return True
        node, summary = self.read()
        self.refuse_foreign(summary)
        needed = summary["class"] == "unmanaged"
        self.result.update(changed=needed, node=summary)
        if needed:
            self.result["diff"] = difference(summary, nodes.with_taint(node))
        if check_mode:
            return True
        if needed:
            self.tainted = self.set_taints(nodes.with_taint, lambda now: now["class"] == "unmanaged")
            self.result["node"] = self.read()[1]
            if not self.tainted:  # somebody else changed the Node's class in between
                self.refuse_foreign(self.result["node"])
                self.result["changed"] = False
                del self.result["diff"]
        self.begun = time.monotonic()
        return not self.params["wait"]

    def refuse_foreign(self, summary):
        if summary["class"] == "foreign":
            raise NotAdopted("Node {0} was not changed: {1}".format(summary["name"], summary["reason"]), node=summary)

    def release(self, check_mode):
        node, summary = self.read()
        self.result.update(changed=summary["uninitialized"], node=summary)
        if summary["uninitialized"]:
            self.result["diff"] = difference(summary, nodes.without_taint(node))
            if not check_mode:
                self.set_taints(nodes.without_taint, lambda now: now["uninitialized"])
                self.result["node"] = self.read()[1]

    def poll(self):
        """Return whether the Node is initialised; if it is, add the Node and the time that it took to the result.
        Raises NotAdopted after the time is over."""
        unused, summary = self.read()
        missing = nodes.missing(summary, "initialized")
        if not missing:
            self.result.update(node=summary, waited=round(time.monotonic() - self.begun, 1))
            return True
        if time.monotonic() - self.begun > self.params["wait_timeout"]:
            self.give_up(summary, missing)
        return False

    def give_up(self, summary, missing):
        """Remove a taint that this module set, because it would keep Pods off the Node for ever. Then raise
        NotAdopted."""
        released = self.tainted and self.set_taints(nodes.without_taint, lambda now: now["uninitialized"] and not now["provider_id"])
        events = _api.node_events(self.api, summary["name"])
        after = "The taint was removed again, so the Node accepts Pods as before." if released else \
            "The taint stays, because the Node had it before." if summary["uninitialized"] else "It has no taint."
        if released:
            summary = self.read()[1]
        raise NotAdopted(
            "the cloud-controller-manager did not initialise Node {0} within {1} s. Missing: {2}. {3} {4}".format(
                summary["name"], self.params["wait_timeout"], ", ".join(missing), after,
                "Events of the Node: {0}".format("; ".join(events)) if events else
                "There is no Event about it. See the controller's log and 'ccm_health_info'."),
            node=summary, events=events)


def difference(summary, taints):
    lines = ["{0}{1}:{2}".format(t["key"], "=" + t["value"] if t.get("value") else "", t["effect"]) for t in taints]
    header = "Node/{0} spec.taints".format(summary["name"])
    return dict(before_header=header, after_header=header, before="".join(t + "\n" for t in summary["taints"]),
                after="".join(line + "\n" for line in lines))


def run(adoptions, parallel, check_mode):
    """Begin the adoptions in order, at most C(parallel) at a time, and poll them.

    After a failure, no other adoption is begun. Those that were begun are finished. Return them, and [(adoption, NotAdopted)] of the failures.
    """
    waiting, active, begun, failures = list(adoptions), [], [], []
    while active or (waiting and not failures):
        while waiting and not failures and len(active) < parallel:
            adoption = waiting.pop(0)
            begun.append(adoption)
            if not attempt(adoption, failures, lambda: adoption.begin(check_mode)):
                active.append(adoption)
        active = [adoption for adoption in active if not attempt(adoption, failures, adoption.poll)]
        if active:
            time.sleep(POLL)
    return begun, failures


def attempt(adoption, failures, step):
    """Take a step of an adoption; return whether the adoption has succeeded or failed."""
    try:
        return step()
    except NotAdopted as exc:
        failures.append((adoption, exc))
    except _api.ApiError as exc:
        failures.append((adoption, NotAdopted("cannot initialise Node {0}: {1}".format(adoption.name, _api.explain(exc)))))
    return True


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str"),
            names=dict(type="list", elements="str"),
            parallel=dict(type="int", default=10),
            provider_id_prefix=dict(type="str", default=""),
            state=dict(type="str", default="adopted", choices=["adopted", "released"]),
            wait=dict(type="bool", default=True),
            wait_timeout=dict(type="int", default=60),
            **_api.API_OPTIONS
        ),
        mutually_exclusive=[("name", "names")],
        required_one_of=[("name", "names")],
        supports_check_mode=True,
    )
    params = module.params
    if not 1 <= params["parallel"] <= MOST:
        module.fail_json(msg="'parallel' is {0}: set a number from 1 to {1}".format(params["parallel"], MOST))
    names = [params["name"]] if params["name"] else params["names"]
    api = _api.connect(module)
    begun, failures = run([Adoption(api, params, name) for name in names], params["parallel"], module.check_mode)
    if params["name"]:
        for unused, exc in failures:
            module.fail_json(msg=str(exc), **exc.result)
        module.exit_json(**begun[0].result)
    problems = {adoption.name: str(exc) for adoption, exc in failures}
    result = dict(
        changed=any(adoption.result["changed"] for adoption in begun),
        waited=max([adoption.result["waited"] for adoption in begun] or [0.0]),
        diff=[adoption.result["diff"] for adoption in begun if "diff" in adoption.result],
        nodes=[dict(name=adoption.name, changed=adoption.result["changed"], waited=adoption.result["waited"],
                    problem=problems.get(adoption.name, "")) for adoption in begun])
    if failures:
        module.fail_json(msg="{0} of {1} Nodes failed, and {2} were not begun. {3}".format(
            len(failures), len(names), len(names) - len(begun), " | ".join(problems.values())), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

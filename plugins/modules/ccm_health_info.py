#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_health_info
short_description: Check whether the cloud-controller-manager is healthy, and wait until it is
description:
  - The controller is healthy if it runs on at least one node, all its Pods have the newest version and are Ready, one of them holds
    and renews the Lease, the leader runs the expected controllers, and a call to the cloud has succeeded.
  - The module reads the last two facts from the annotations C(ccm.outoftree.dev/*), which the runtime of this project writes to its Lease.
    It does not check them for other vendors' controllers, and lists them in RV(unjudged).
  - The module computes ages with the API server's clock.
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
    support: N/A
options:
  name:
    description: Name of the DaemonSet.
    type: str
    default: cloud-controller-manager
  lease:
    description: Name of the Lease.
    type: str
    default: cloud-controller-manager
  namespace:
    description: Namespace of the DaemonSet and the Lease.
    type: str
    default: kube-system
  notes:
    description: Whether the controller is the runtime of this project, which writes annotations to its Lease. If V(false), the module
      ignores annotations that a former holder left there.
    type: bool
    default: true
  leads:
    description: Whether one of the controller's Pods must hold the Lease. If V(false), the module checks only the Pods, for a controller
      that waits until another one stops.
    type: bool
    default: true
  controllers:
    description: Canonical names of the controllers that the leader must run.
    type: list
    elements: str
    default: []
  controllers_if_offered:
    description: Canonical names of controllers that the leader must also run, if its provider supports them. For example, the service
      controller needs a provider with load balancers.
    type: list
    elements: str
    default: []
  max_cloud_age:
    description: Maximum age in seconds of the last successful call to the cloud. V(0) accepts any age.
    type: int
    default: 0
  require_cloud:
    description:
      - Whether a controller without a successful call to the cloud is unhealthy. A controller that runs only its node controller makes
        no call until the first Node waits for it.
    type: bool
    default: true
  probe:
    description:
      - Whether to also request each Pod's C(/readyz) through the API server's proxy, which reports the controller's own messages.
      - The API server connects to the address of the Pod's host. By default, the controller does not serve that address (variable
        C(ccm_runtime_bind_address) of the role C(ccm_runtime)).
    type: bool
    default: false
  port:
    description: The controller's secure port, for O(probe).
    type: int
    default: 10258
  wait:
    description: Whether to wait until the controller is healthy, and to fail after O(wait_timeout).
    type: bool
    default: false
  wait_timeout:
    description: Seconds to wait.
    type: int
    default: 120
"""

EXAMPLES = r"""
- name: Wait for the runtime
  outoftree.ccm.ccm_health_info:
    controllers: [cloud-node-controller]
    wait: true
  register: health
"""

RETURN = r"""
healthy:
  description: Whether the controller is healthy.
  returned: always
  type: bool
  sample: true
reasons:
  description: Reasons why the controller is not healthy.
  returned: always
  type: list
  elements: str
  sample: ["1 of 3 Pods are Ready"]
unjudged:
  description: What the module could not check, because the controller does not write it to its Lease.
  returned: always
  type: list
  elements: str
  sample: []
last_cloud_success_age:
  description: Seconds since the last successful call to the cloud, if the controller writes it to its Lease.
  returned: always
  type: float
  sample: 12.0
daemonset:
  description: Counts of the rollout.
  returned: always
  type: dict
  sample: {exists: true, desired: 1, ready: 1, updated: 1, observed: true, image: "localhost/outoftree-ccm:0.1.0"}
pods:
  description: The Pods, with the reason for each Pod that does not run.
  returned: always
  type: list
  elements: dict
  sample: [{name: cloud-controller-manager-x7k2p, node: cp-1, ready: true, restarts: 0, reason: "", leaving: false}]
lease:
  description: Holder of the Lease, seconds since its renewal, and the runtime's annotations.
  returned: always
  type: dict
  sample: {exists: true, holder: cp-1_6f1a, held: true, age: 1.2, annotations: {cloud-provider: sim}}
held:
  description: Why the controller does not delete a Node, by the UID of the Node, from the newest Event. Events remain for an hour, so the
    Node may be Ready again. Empty with O(wait).
  returned: always
  type: dict
  sample: {5b1c8d1e-9d6c-4a55-9a3c-0a4ff1d6c7a9: "the Node is not Ready, but the cloud could not say whether its instance exists, so it is kept"}
probes:
  description: The answer of each Pod's C(/readyz), with O(probe).
  returned: always
  type: dict
  sample: {cloud-controller-manager-x7k2p: ok}
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health

POLL = 0.5
#: Events about Nodes are in the namespace default.
EVENTS = "/api/v1/namespaces/default/events"
HELD = {"fieldSelector": "reason=DeletionHeld,involvedObject.kind=Node"}


def probe(api, params, pods):
    """Return, by the name of each Pod that is not being deleted, its answer on /readyz: C(ok), or what is wrong. The request goes through the API server."""
    answers = {}
    for pod in pods:
        if pod["leaving"]:
            continue
        path = "/api/v1/namespaces/{0}/pods/https:{1}:{2}/proxy/readyz".format(params["namespace"], pod["name"], params["port"])
        try:
            api.call("GET", path)
            answers[pod["name"]] = "ok"
        except ValueError:  # it answered 200 with plain text, not JSON
            answers[pod["name"]] = "ok"
        except _api.ApiError as exc:
            answers[pod["name"]] = str(exc)
    return answers


def look(api, params):
    daemonset = api.get(_api.daemonset_path(params["name"], params["namespace"]))
    selector = ((daemonset or {}).get("spec") or {}).get("selector", {}).get("matchLabels") or {}
    items = api.items("/api/v1/namespaces/{0}/pods".format(params["namespace"]), {
        "labelSelector": ",".join("{0}={1}".format(*item) for item in sorted(selector.items()))}) if selector else []
    pods = [health.pod_state(pod) for pod in items]
    lease = health.lease_state(api.get(_api.lease_path(params["lease"], params["namespace"])), api.now)
    state = health.daemonset_state(daemonset)
    verdict = health.judge(state, pods, lease, api.now, params["controllers"], params["max_cloud_age"],
                           params["require_cloud"], params["notes"], params["leads"], params["controllers_if_offered"])
    answers = probe(api, params, pods) if params["probe"] else {}
    for name, answer in sorted(answers.items()):
        if answer != "ok":
            verdict["reasons"].append("/readyz of Pod {0} says: {1}".format(name, answer))
    verdict["healthy"] = not verdict["reasons"]
    held = {} if params["wait"] else health.held_deletions(api.items(EVENTS, HELD))
    return dict(verdict, daemonset=state, pods=pods, lease=lease, held=held, probes=answers)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", default=_api.NAME),
            lease=dict(type="str", default=_api.NAME),
            notes=dict(type="bool", default=True),
            leads=dict(type="bool", default=True),
            namespace=dict(type="str", default=_api.NAMESPACE),
            controllers=dict(type="list", elements="str", default=[]),
            controllers_if_offered=dict(type="list", elements="str", default=[]),
            max_cloud_age=dict(type="int", default=0),
            require_cloud=dict(type="bool", default=True),
            probe=dict(type="bool", default=False),
            port=dict(type="int", default=10258),
            wait=dict(type="bool", default=False),
            wait_timeout=dict(type="int", default=120),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    params = module.params
    api = _api.connect(module)
    begun = time.monotonic()
    while True:
        try:
            result = look(api, params)
        except _api.ApiError as exc:
            if not params["wait"] or exc.status in (401, 403):
                module.fail_json(msg="cannot read the cloud-controller-manager's state: {0}".format(_api.explain(exc)))
            result = {"healthy": False, "reasons": [_api.explain(exc)]}
        if result["healthy"] or not params["wait"]:
            module.exit_json(changed=False, **result)
        if time.monotonic() - begun > params["wait_timeout"]:
            module.fail_json(msg="the cloud-controller-manager is not healthy after {0} s: {1}".format(
                params["wait_timeout"], "; ".join(result["reasons"])), **result)
        time.sleep(POLL)


if __name__ == "__main__":
    main()

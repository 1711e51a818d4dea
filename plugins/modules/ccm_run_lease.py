#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations
DOCUMENTATION = r"""
module: ccm_run_lease
short_description: Hold the Lease of a run, so that no other run changes the cluster at the same time
description:
  - Creates, renews or takes over a Lease in C(kube-system). Fails if another run holds it, and reports who runs it, since when, and what to
    do.
  - A run is an C(ansible-playbook) process. The module takes over a Lease that was not renewed for its duration. If the holder's process
    ran on this Ansible controller and has ended, the module takes over the Lease at once, so that you can restart a killed run.
  - The action plugin of the same name sets the options O(holder), O(process) and O(ended).
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
    description: Name of the Lease in C(kube-system).
    type: str
    default: outoftree-ccm-run
  state:
    description: V(held) holds or renews the Lease. V(released) deletes it if this run holds it.
    type: str
    choices: [held, released]
    default: held
  duration:
    description: Seconds after which the Lease is stale if it is not renewed.
    type: int
    default: 900
  holder:
    description: User, host and process of this run.
    type: str
    default: ""
  process:
    description: Machine, PID and start of this run's process.
    type: dict
    default: {}
  ended:
    description: A holder that is known to have ended.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Make sure that no other run is changing this cluster
  outoftree.ccm.ccm_run_lease:
    duration: 1800

- name: Release the Lease
  outoftree.ccm.ccm_run_lease:
    state: released
"""

RETURN = r"""
holder:
  description: Holder of the Lease. Empty with O(state=released), and if the holder is not known.
  returned: always
  type: str
  sample: alice@bastion (process 4242, started at 91234)
process:
  description: Machine, PID and start of the holder's process.
  returned: always
  type: dict
  sample: {machine: "0b1c... pid:[4026531836]", pid: 4242, start: "91234"}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api, run_lease

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{0}/leases".format(_api.NAMESPACE)

#: Number of attempts to write while somebody else changes the Lease.
ATTEMPTS = 5


def hold(module, api):
    """Hold the Lease; return whether that changed more than its renewal time."""
    params = module.params
    path = _api.lease_path(params["name"])
    for unused in range(ATTEMPTS):
        lease = api.get(path)
        if lease is None:
            api.get(LEASES, {"limit": "1"})  # for the API server's time
        action = run_lease.decide(lease, params["holder"], api.now, params["ended"])
        if action == run_lease.REFUSE:
            module.fail_json(msg=run_lease.refusal(lease, params["name"], api.now), holder=run_lease.holder_of(lease),
                             process=run_lease.process_of(lease))
        if module.check_mode:
            return action != run_lease.RENEW
        wanted = run_lease.written(lease, action, params["holder"], params["process"], params["duration"], api.now)
        try:
            if lease is None:
                kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
                api.call("POST", LEASES, dict(wanted, metadata=dict(wanted["metadata"], name=params["name"]), **kind))
            else:
                api.patch(path, wanted)
            return action != run_lease.RENEW
        except _api.ApiError as exc:
            if exc.status not in (404, 409):  # it was created, changed or deleted in between: read it again
                raise
    module.fail_json(msg="somebody else changed the Lease kube-system/{0} {1} times in between. Run again".format(params["name"], ATTEMPTS),
                     holder="", process={})


def release(module, api):
    """Delete the Lease if this run holds it, except in check mode; return whether this run holds it."""
    path = _api.lease_path(module.params["name"])
    lease = api.get(path)
    if lease is None or run_lease.holder_of(lease) != module.params["holder"]:
        return False
    if not module.check_mode:
        try:
            api.call("DELETE", path, {"preconditions": {"resourceVersion": lease["metadata"]["resourceVersion"]}})
        except _api.ApiError as exc:
            if exc.status not in (404, 409):  # already deleted, or taken over
                raise
    return True


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", default=run_lease.NAME),
            state=dict(type="str", choices=["held", "released"], default="held"),
            duration=dict(type="int", default=900),
            holder=dict(type="str", default=""),
            process=dict(type="dict", default={}),
            ended=dict(type="str", default=""),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    params = module.params
    held = params["state"] == "held"
    try:
        changed = hold(module, api) if held else release(module, api)
    except _api.ApiError as exc:
        module.fail_json(msg="the Lease kube-system/{0} of the run cannot be {1}: {2}".format(params["name"], params["state"], _api.explain(exc)),
                         holder="", process={})
    module.exit_json(changed=changed, holder=params["holder"] if held else "", process=params["process"] if held else {})


if __name__ == "__main__":
    main()

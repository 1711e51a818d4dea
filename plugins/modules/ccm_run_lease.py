#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations
DOCUMENTATION = r"""
module: ccm_run_lease
short_description: Hold the Lease of a run, so that no other run changes the cluster meanwhile
description:
  - Creates, renews or takes a Lease in C(kube-system). Fails when another run holds it, and says which one, since when, and what to do.
  - A run is an C(ansible-playbook) process. A Lease that was not renewed for its duration is taken over. One whose process has ended on
    this Ansible controller is taken over at once, so that a run that was killed may be started again.
  - The options O(holder), O(process) and O(ended) are set by the action plugin of the same name.
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
    description: V(held) holds or renews the Lease, V(released) deletes it when this run holds it.
    type: str
    choices: [held, released]
    default: held
  duration:
    description: Seconds after which the Lease is stale when nobody renews it.
    type: int
    default: 900
  holder:
    description: Who runs this, where, and as which process.
    type: str
    default: ""
  process:
    description: Machine, process and its start.
    type: dict
    default: {}
  ended:
    description: A holder of which it is known that it has ended.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: See that no other run changes this cluster
  outoftree.ccm.ccm_run_lease:
    duration: 1800

- name: Let other runs change it
  outoftree.ccm.ccm_run_lease:
    state: released
"""

RETURN = r"""
holder:
  description: Who holds the Lease, empty when nobody does.
  returned: always
  type: str
  sample: alice@bastion (process 4242, started at 91234)
process:
  description: Machine, process and start of the holder.
  returned: always
  type: dict
  sample: {machine: "0b1c... pid:[4026531836]", pid: 4242, start: "91234"}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api, run_lease

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{0}/leases".format(_api.NAMESPACE)

#: How often a write is tried again because somebody else wrote in between.
ATTEMPTS = 5


def hold(module, api):
    """Hold the Lease; return whether that changed anything but the time of its renewal."""
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
            if exc.status not in (404, 409):  # it came, changed or went in between: look again
                raise
    module.fail_json(msg="the Lease kube-system/{0} was changed by others {1} times in between: run again".format(params["name"], ATTEMPTS),
                     holder="", process={})


def release(module, api):
    """Delete the Lease when this run holds it; return whether it did."""
    path = _api.lease_path(module.params["name"])
    lease = api.get(path)
    if lease is None or run_lease.holder_of(lease) != module.params["holder"]:
        return False
    if not module.check_mode:
        try:
            api.call("DELETE", path, {"preconditions": {"resourceVersion": lease["metadata"]["resourceVersion"]}})
        except _api.ApiError as exc:
            if exc.status not in (404, 409):  # gone already, or somebody else's by now
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

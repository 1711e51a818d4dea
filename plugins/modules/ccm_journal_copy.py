#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_journal_copy
short_description: Keep copies of the hosts' journals in the cluster
description:
  - Each Node has one Secret in C(kube-system), with the label C(ccm.outoftree.dev/journal-copy). It has what a rollback needs if the
    host loses its journal.
  - The module does not fail if it cannot write a copy. RV(said) names the host and the reason, and RV(missed) the Node, so that you can
    retry it.
  - Secrets and journals contain the contents of files. Use C(no_log) for the task.
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
  state:
    description:
      - V(present) writes O(contents) as copies. It does not replace a copy of another journal, or a newer copy. It marks the copy of a host
        that was restored, which is then no longer used.
      - V(read) changes nothing. It compares O(journals) with the copies, and returns the copies of hosts that lost their journal.
      - V(absent) deletes the copies of O(nodes), and reports those of other Nodes.
    type: str
    choices: [present, read, absent]
    default: present
  nodes:
    description: Name of the Node of each host.
    type: dict
    required: true
  journals:
    description: What M(outoftree.ccm.ccm_journal_info) returned as RV(outoftree.ccm.ccm_journal_info#module:journal), by host.
    type: dict
    default: {}
  contents:
    description: What M(outoftree.ccm.ccm_journal_info) returned as RV(outoftree.ccm.ccm_journal_info#module:content), by host.
    type: dict
    default: {}
seealso:
  - module: outoftree.ccm.ccm_journal_info
"""

EXAMPLES = r"""
- name: Keep a copy of the journal of worker-1 in the cluster
  outoftree.ccm.ccm_journal_copy:
    nodes: {worker-1: worker-1}
    journals: {worker-1: "{{ hostvars['worker-1'].packed.journal }}"}
    contents: {worker-1: "{{ hostvars['worker-1'].packed.content }}"}
  no_log: true

- name: Delete the copies after a complete rollback
  outoftree.ccm.ccm_journal_copy:
    state: absent
    nodes: {worker-1: worker-1}
"""

RETURN = r"""
hosts:
  description:
    - With O(state=read), which journal counts for each host. C(source) is V(local), V(copy) or V(none). C(place) is the copy's Secret, and
      C(content) is the copy if it is used. C(note) gives the reason, and C(problem) says what a person must decide.
  returned: always
  type: dict
  sample:
    worker-1: {source: local, place: Secret kube-system/outoftree-ccm-journal-worker-1-50a9e5c0f1b2, content: "", note: "", problem: ""}
stale:
  description: With O(state=read), the hosts whose readable journal has no up-to-date copy.
  returned: always
  type: list
  elements: str
  sample: []
kept:
  description: With O(state=present), the Nodes whose copies are up to date, or whose hosts have no journal.
  returned: always
  type: list
  elements: str
  sample: [worker-1]
missed:
  description: The Nodes whose copies could not be written and should be retried.
  returned: always
  type: list
  elements: str
  sample: []
said:
  description: A message about each copy that could not be kept up to date, read or deleted.
  returned: always
  type: list
  elements: str
  sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import host_facts
from ansible_collections.outoftree.ccm.plugins.module_utils.host import journal, journal_copy

SECRETS = "/api/v1/namespaces/{0}/secrets".format(_api.NAMESPACE)


def path_of(node):
    return "{0}/{1}".format(SECRETS, journal_copy.secret_name(node))


def keep(module, api, result, host, node):
    """Write the copy of one host's journal, or mark the copy of a restored host. Raises ApiError and BadCopy."""
    local = journal_copy.local_of(module.params["journals"].get(host))
    if local is None:
        raise journal_copy.BadCopy("its journal could not be read")
    node_object = api.get(path_of(node))
    if local["state"] in (journal.MISSING, journal.ROLLED_BACK):
        if node_object is not None and journal_copy.ends(local, node_object) and not journal_copy.is_restored(node_object):
            write(module, api, node_object, {"metadata": {"annotations": {journal_copy.RESTORED: "true"}}})
            result["changed"] = True
        return
    if local["state"] != journal.READABLE:
        raise journal_copy.BadCopy("the journal on the host is {0}".format(local["state"]))
    if journal_copy.is_kept(local, node_object):
        return
    reason = journal_copy.obstacle(local, node_object, node) if node_object is not None else ""
    if reason:
        raise journal_copy.BadCopy(reason)
    content = str(module.params["contents"].get(host) or "")
    wanted = journal_copy.secret(node, content)
    if journal_copy.size(content) > journal_copy.SECRET_LIMIT:
        raise journal_copy.BadCopy("its compressed size is {0} bytes, but a Secret can have at most {1}".format(
            journal_copy.size(content), journal_copy.SECRET_LIMIT))
    write(module, api, node_object, wanted)
    result["changed"] = True


def write(module, api, secret, wanted):
    if module.check_mode:
        return
    if secret is None:
        api.call("POST", SECRETS, wanted)
    else:
        metadata = dict(wanted["metadata"], resourceVersion=secret["metadata"]["resourceVersion"])
        api.patch(SECRETS + "/" + secret["metadata"]["name"], dict(wanted, metadata=metadata))


def present(module, api, result):
    for host, node in sorted(module.params["nodes"].items()):
        try:
            keep(module, api, result, host, node)
            result["kept"].append(node)
        except journal_copy.BadCopy as exc:
            result["said"].append("{0}: its journal has no up-to-date copy in the cluster: {1}. The journal on the host counts".format(host, exc))
        except _api.ApiError as exc:
            result["missed"].append(node)
            result["said"].append("{0}: the copy of its journal in {1} cannot be written: {2}. The end of the run retries it. The journal on the host "
                                  "counts".format(host, journal_copy.place(node), _api.explain(exc)))


def read(module, api, result):
    nodes = {host: node for host, node in module.params["nodes"].items() if isinstance(node, str) and host_facts.is_node_name(node)}
    alone = journal_copy.claimed_once(nodes)
    try:
        copies = {item["metadata"]["name"]: item for item in api.items(SECRETS, {"labelSelector": journal_copy.SELECTOR})}
    except _api.ApiError as exc:
        result["said"].append("the copies of the journals in kube-system cannot be read: {0}".format(_api.explain(exc)))
        return
    for host in alone:
        local = journal_copy.local_of(module.params["journals"].get(host))
        if local is None:
            continue
        secret = copies.get(journal_copy.secret_name(nodes[host]))
        choice = journal_copy.choose(local, secret, nodes[host])
        used = choice.source == journal_copy.COPY
        result["hosts"][host] = dict(choice._asdict(), place=journal_copy.place(nodes[host]), content=journal_copy.text_of(secret) if used else "")
        if journal_copy.is_stale(local, secret, nodes[host]):
            result["stale"].append(host)


def absent(module, api, result):
    mine = {journal_copy.secret_name(node) for node in module.params["nodes"].values()}
    for item in api.items(SECRETS, {"labelSelector": journal_copy.SELECTOR}):
        name = item["metadata"]["name"]
        if name not in mine:
            result["said"].append("Secret kube-system/{0} stays, because its Node is not in this inventory. Delete it when that host no longer needs "
                                  "a rollback".format(name))
            continue
        result["changed"] = True
        if not module.check_mode:
            try:
                api.call("DELETE", SECRETS + "/" + name)
            except _api.ApiError as exc:
                if exc.status != 404:
                    raise


def main():
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(type="str", choices=["present", "read", "absent"], default="present"),
            nodes=dict(type="dict", required=True),
            journals=dict(type="dict", default={}),
            contents=dict(type="dict", default={}, no_log=True),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    result = dict(changed=False, hosts={}, stale=[], kept=[], missed=[], said=[])
    try:
        {"present": present, "read": read, "absent": absent}[module.params["state"]](module, api, result)
    except _api.ApiError as exc:
        module.fail_json(msg="the copies of the journals in kube-system cannot be changed: {0}".format(_api.explain(exc)), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()

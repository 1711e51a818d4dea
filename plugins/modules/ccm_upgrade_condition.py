#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_upgrade_condition
short_description: Write into the cluster whether it can be upgraded to the next Kubernetes minor
description:
  - Writes the condition C(UpgradeableToNextMinor) of the namespace C(kube-system). Conditions of others stay as they are. C(kubectl get) and
    C(kubectl wait) read it there, and kube-state-metrics exports it as C(kube_namespace_status_condition).
  - The message ends with the time of the check, which each run writes. The module reports a change only if something else differs.
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
  condition:
    description: What the condition says. P(outoftree.ccm.lint_findings#filter) returns it.
    type: dict
    required: true
    suboptions:
      status:
        description: V(True) if no component of the next minor would stop, V(False) if one would, V(Unknown) if something could not be read.
        type: str
        required: true
        choices: ['True', 'False', 'Unknown']
      reason:
        description: The reason in one word.
        type: str
        required: true
      text:
        description: The reason for people, which begins the condition's message.
        type: str
        required: true
"""

EXAMPLES = r"""
- name: Write into the cluster whether it can be upgraded
  outoftree.ccm.ccm_upgrade_condition:
    condition: "{{ (detected | outoftree.ccm.lint_findings(cluster)).condition }}"
"""

RETURN = r"""
condition:
  description: The condition afterwards.
  returned: success
  type: dict
  sample:
    type: UpgradeableToNextMinor
    status: "True"
    reason: NothingFound
    message: "1.36 to 1.37: no component stops (checked 2026-11-26T03:17:09Z)"
    lastTransitionTime: "2026-11-20T03:17:08Z"
  contains:
    type:
      description: Always V(UpgradeableToNextMinor).
      type: str
      sample: UpgradeableToNextMinor
    status:
      description: V(True), V(False) or V(Unknown).
      type: str
      sample: "True"
    reason:
      description: The reason in one word.
      type: str
      sample: NothingFound
    message:
      description: The reason for people, and when it was checked.
      type: str
      sample: "1.36 to 1.37: no component stops (checked 2026-11-26T03:17:09Z)"
    lastTransitionTime:
      description: When the status changed last.
      type: str
      sample: "2026-11-20T03:17:08Z"
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api

TYPE = "UpgradeableToNextMinor"
PATH = "/api/v1/namespaces/{0}".format(_api.NAMESPACE)
WORDS = ("status", "reason", "message")
#: Attempts of a write, if others change the namespace in between.
ATTEMPTS = 5


def current(namespace):
    """Return the condition of this type in a namespace, {} if it has none, and the other conditions."""
    conditions = (namespace.get("status") or {}).get("conditions") or []
    ours = [condition for condition in conditions if condition["type"] == TYPE]
    return (ours or [{}])[0], [condition for condition in conditions if condition["type"] != TYPE]


def stamped(words, before, now):
    """Return the condition to write. Its lastTransitionTime stays as long as its status stays."""
    since = before.get("lastTransitionTime") if before.get("status") == words["status"] else None
    return dict(type=TYPE, status=words["status"], reason=words["reason"], lastTransitionTime=since or now,
                message="{0} (checked {1})".format(words["text"], now))


def without_time(condition):
    """Return the status, reason and message of a condition, without the time of the check."""
    return dict((word, re.sub(r" \(checked \S+\)$", "", condition.get(word) or "")) for word in WORDS)


def shown(condition):
    return "{status} {reason}: {message}\n".format(**without_time(condition)) if condition else ""


def write(api, words, check_mode):
    """Write the condition unless it is check mode; return (the condition before, {} if there was none, and the new one). Raises ApiError."""
    for attempt in range(ATTEMPTS, 0, -1):
        namespace = api.call("GET", PATH)
        before, others = current(namespace)
        condition = stamped(words, before, api.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        body = {"metadata": {"resourceVersion": namespace["metadata"]["resourceVersion"]}, "status": {"conditions": others + [condition]}}
        try:
            if not check_mode:
                api.patch(PATH + "/status", body)
            return before, condition
        except _api.ApiError as exc:
            if exc.status != 409 or attempt == 1:
                raise


def main():
    words = dict(
        status=dict(type="str", required=True, choices=["True", "False", "Unknown"]),
        reason=dict(type="str", required=True),
        text=dict(type="str", required=True),
    )
    module = AnsibleModule(
        argument_spec=dict(condition=dict(type="dict", required=True, options=words), **_api.API_OPTIONS),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    try:
        before, condition = write(api, module.params["condition"], module.check_mode)
    except _api.ApiError as exc:
        module.fail_json(msg="cannot write the condition {0} of the namespace {1}: {2}".format(TYPE, _api.NAMESPACE, _api.explain(exc)))
    result = dict(changed=without_time(before) != without_time(condition), condition=condition)
    if module._diff:
        header = "Namespace/{0} status.conditions {1}".format(_api.NAMESPACE, TYPE)
        result["diff"] = dict(before_header=header, after_header=header, before=shown(before), after=shown(condition))
    module.exit_json(**result)


if __name__ == "__main__":
    main()

#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_journal_info
short_description: Read the journal of this host for a copy in the cluster
description:
  - Returns the journal of this host with the original contents of its files, in the form in which M(outoftree.ccm.ccm_journal_copy)
    stores them in a Secret. Changes nothing.
  - The module replaces secrets in the configuration files of k3s and RKE2 with placeholders, so that they stay on the host.
  - RV(content) contains the contents of files. Use C(no_log) for the task.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  node_name:
    description: Name of the Node. It is part of the copy. Either this or O(plan_of) is required.
    type: str
  plan_of:
    description:
      - Host of the inventory for which the role C(ccm_install) stored the plan of this run. The action plugin of the same name then takes
        O(node_name) from the plan. It skips a host whose journal the plan does not change, unless the journal's copy is out of date.
    type: str
  state_directory:
    description: Directory of the journal and the backups.
    type: path
    default: /var/lib/outoftree-ccm
  wait_timeout:
    description: Seconds to wait for a run that changes this host.
    type: int
    default: 10
seealso:
  - module: outoftree.ccm.ccm_journal_copy
"""

EXAMPLES = r"""
- name: Read the journal of this host
  outoftree.ccm.ccm_journal_info:
    node_name: worker-1
  register: packed
  no_log: true
"""

RETURN = r"""
journal:
  description:
    - State of the journal on this host. C(state) is V(missing), V(readable), V(unreadable), V(damaged) if a recorded content is missing or
      altered, or V(rolled back) if the journal is gone because nothing was left to roll back.
    - C(id) stays the same from the first record until nothing is left to roll back. C(serial) counts the writes. C(machine) is a digest of
      C(/etc/machine-id).
  returned: always
  type: dict
  sample: {state: readable, id: 3f0c2a7b9d4e41f0a1b2c3d4e5f60718, serial: 3, machine: 5b1f...}
content:
  description: The copy. Empty if the journal is not readable.
  returned: always
  type: str
  sample: H4sIAAAAAAAC...
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, journal, journal_copy, machine as _machine


def main():
    module = AnsibleModule(
        argument_spec=dict(
            node_name=dict(type="str"),
            plan_of=dict(type="str"),
            state_directory=dict(type="path", default="/var/lib/outoftree-ccm"),
            wait_timeout=dict(type="int", default=10),
        ),
        required_one_of=[("node_name", "plan_of")],
        mutually_exclusive=[("node_name", "plan_of")],
        supports_check_mode=True,
    )
    content, machine = "", _machine.identity()
    try:
        directory = files.resolve(module.params["state_directory"])
        with journal.alone(directory, module.params["wait_timeout"]):
            state = journal.found(directory)
            if state["state"] == journal.READABLE:
                content = journal_copy.encode(journal.Journal(directory).exported(), module.params["node_name"], machine)
    except (journal.JournalRefused, OSError) as exc:
        module.fail_json(msg="the journal cannot be read: {0}".format(exc))
    module.exit_json(changed=False, journal=dict(state, machine=machine), content=content)


if __name__ == "__main__":
    main()

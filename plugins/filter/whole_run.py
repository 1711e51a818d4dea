# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: whole_run
short_description: Refuse tags with which a playbook would do nothing, or only a part
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Ansible skips every task without a requested tag, and the playbook then succeeds without having done anything. This filter fails
    instead. Ansible evaluates C(hosts) of a play whatever the tags and C(--limit) are, so the first play of each playbook uses the filter there.
positional: _input, run_tags, skip_tags
options:
  _input:
    description: The hosts of the play.
    type: str
    required: true
  run_tags:
    description: The variable C(ansible_run_tags).
    type: list
    elements: str
    required: true
  skip_tags:
    description: The variable C(ansible_skip_tags).
    type: list
    elements: str
    required: true
  parts:
    description: The tags of the playbook, each of which is safe alone.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
# The playbooks have the same expression in the hosts of their first play, where no tag can skip it.
- name: Name the hosts of a play, unless its tags would skip tasks
  ansible.builtin.set_fact:
    hosts_of_the_play: "{{ 'localhost' | outoftree.ccm.whole_run(ansible_run_tags, ansible_skip_tags) }}"
"""

RETURN = r"""
_value:
  description: The hosts of the play, unchanged.
  type: str
"""

import re

from ansible.errors import AnsibleFilterError

#: The tags of a run for which nobody chose tags. With --list-tasks and --list-tags, Ansible adds V(never).
NO_TAGS = ("all", "never")

#: Tags that molecule skips, such as molecule-notest and, in its idempotence step, molecule-idempotence-notest. No task of this collection has them.
OF_MOLECULE = re.compile(r"(molecule-([a-z]+-)*)?notest")


def whole_run(hosts, run_tags, skip_tags, parts=()):
    tags, skipped = sorted(set(run_tags) - set(NO_TAGS)), sorted(tag for tag in skip_tags if not OF_MOLECULE.fullmatch(tag))
    unknown = sorted(set(tags) - set(parts))
    if unknown or not run_tags:
        raise AnsibleFilterError("Nothing was changed or checked: this playbook has no tag {0}, and would skip its tasks. {1}".format(
            " ".join(unknown) or "''", "Run it with one of its tags: {0}".format(", ".join(parts)) if parts else
            "No part of it is safe alone: run it without --tags"))
    if skipped:
        raise AnsibleFilterError("Nothing was changed or checked: --skip-tags {0} would skip tasks, and a run needs all of them. Run it without "
                                 "--skip-tags".format(",".join(skipped)))
    return hosts


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"whole_run": whole_run}

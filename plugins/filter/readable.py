# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: readable
short_description: Format lines for Ansible's YAML or JSON output
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Returns one text, each line of which fits the terminal, for Ansible's YAML output. A terminal has 80 columns, unless C(COLUMNS) or the
    terminal itself says otherwise. A command at the end of a line gets a line of its own, however long it is.
  - Returns the lines unchanged for Ansible's JSON output, which shows a list line by line.
positional: _input, in_blocks
options:
  _input:
    description: The lines.
    type: list
    elements: str
    required: true
  in_blocks:
    description: Whether Ansible shows YAML.
    type: bool
    required: true
  separator:
    description: For JSON output, a text that joins the lines into one. Without it, the result is a list.
    type: str
"""

EXAMPLES = r"""
- name: Show a plan
  ansible.builtin.debug:
    msg: "{{ plan.table | outoftree.ccm.readable(in_blocks=true) }}"
"""

RETURN = r"""
_value:
  description: A text, or the list of lines.
  type: raw
"""

import shutil

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import columns


def readable(lines, in_blocks, separator=None):
    lines = [str(line) for line in lines]
    if in_blocks:
        return "\n".join(columns.fitted(lines, shutil.get_terminal_size((columns.TERMINAL, 24)).columns))
    return lines if separator is None else separator.join(lines)


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"readable": readable}

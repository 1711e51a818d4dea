# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: worker_batches
short_description: Judge the settings of worker batches, and announce a batch
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
description:
  - Reports what is wrong with the settings, and returns the line that announces a batch with the time that the rest takes. The filter reads
    and writes nothing.
positional: _input
options:
  _input:
    description: Sizes of the batches, as C(serial) of a play - a number, a share, or a list of both.
    type: raw
    required: true
  workers:
    description: The number of workers.
    type: int
    default: 0
  begun:
    description: When each batch began, up to the one to announce, in seconds since the epoch.
    type: list
    elements: float
    default: []
  pause:
    description: Seconds between two batches.
    type: raw
    default: 0
  command:
    description: The health command and its arguments.
    type: raw
    default: []
  timeout:
    description: Seconds that the health command may take.
    type: raw
    default: 300
  forks:
    description: Number of hosts that Ansible changes at a time.
    type: int
    default: 5
  gate_timeout:
    description: Seconds that a component may take to become healthy.
    type: int
    default: 180
  node_timeout:
    description: Seconds that the Nodes of a batch may take to become Ready.
    type: int
    default: 120
  parallel:
    description: Number of Nodes that are adopted at a time.
    type: raw
    default: 10
"""

EXAMPLES = r"""
- name: Announce the second batch
  ansible.builtin.debug:
    msg: "{{ ([1, '25%'] | outoftree.ccm.worker_batches(200, [1795337000.0, 1795337012.0])).line }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.problems) has a sentence about each setting that is not valid. RV(_value.line) announces the batch, and is empty without
      O(begun).
    - RV(_value.longest) has the seconds that a batch, or a control plane, takes at most. It is 0 if a setting is not valid.
  type: dict
"""

from ansible_collections.outoftree.ccm.plugins.module_utils.plan import batches


def worker_batches(serial, workers=0, begun=(), pause=0, command=(), timeout=300, parallel=10, forks=5, gate_timeout=180, node_timeout=120):
    problems = batches.problems(serial, pause, command, timeout, parallel)
    times = [float(each) for each in begun]
    longest = 0 if problems else batches.longest(serial, int(workers), int(forks), int(gate_timeout), int(node_timeout),
                                                 int(pause) + (int(timeout) if command else 0))
    return {"problems": problems, "longest": longest, "line": batches.progress(serial, int(workers), times, times[-1]) if times and not problems else ""}


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self):
        return {"worker_batches": worker_batches}

#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_disruption_probe
short_description: Measure how long a URL does not answer while other tasks run
description:
  - Requests a URL ten times a second in the background, from one task to a later one, and returns how many requests were answered, for how many
    milliseconds the URL did not answer, and how long the longest gap was.
  - The process in the background has no credentials. It keeps its result in a folder that only its user can read. It ends by itself, and
    removes the folder, when the process O(run) ends or O(limit) is over.
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
attributes:
  check_mode:
    support: full
    details: Requests the URL with O(state=asked). It starts no process.
  diff_mode:
    support: N/A
options:
  state:
    description:
      - V(asked) requests the URL at most three times until it answers, and fails if it does not.
      - V(started) starts the process, and V(stopped) ends it and returns its result.
    type: str
    choices: [asked, started, stopped]
    required: true
  url:
    description:
      - The URL to request, which begins with C(http://), C(https://) or C(tcp://). With C(tcp://), a port is required, and an open connection is
        an answer. Otherwise each HTTP status below 500 is an answer. Certificates are not verified, and redirects are not followed.
    type: str
    required: true
  folder:
    description: The RV(folder) that O(state=started) returned. O(state=stopped) needs it.
    type: path
  run:
    description:
      - A process, such as that of C(ansible-playbook). When it ends, the one in the background ends, too. M(outoftree.ccm.ccm_run_lease)
        returns it in RV(outoftree.ccm.ccm_run_lease#module:process). A process of another machine is ignored.
    type: dict
    default: {}
  limit:
    description: Seconds after which the process stops in any case.
    type: int
    default: 43200
  interval:
    description: Seconds from one request to the next one.
    type: float
    default: 0.1
  request_timeout:
    description: Seconds to wait for an answer to one request.
    type: float
    default: 2.0
seealso:
  - module: outoftree.ccm.ccm_load_balancer_check
"""

EXAMPLES = r"""
- name: Request the shop's URL from now on
  outoftree.ccm.ccm_disruption_probe:
    state: started
    url: http://203.0.113.7/
  register: probe

- name: Find out how many requests failed since then
  outoftree.ccm.ccm_disruption_probe:
    state: stopped
    url: http://203.0.113.7/
    folder: "{{ probe.folder }}"
  register: disruption
"""

RETURN = r"""
folder:
  description: Folder of the process.
  returned: if O(state=started)
  type: str
  sample: /tmp/outoftree-ccm-probe-x7k2
result:
  description:
    - C(requests), C(answered), C(errors) by kind, C(seconds), C(median_ms) and C(slowest_ms) of the answers, C(disrupted_ms), C(longest_ms),
      C(gap_count), C(gaps) (the longest 20, with C(at) in seconds since the start, C(ms), C(requests) and C(errors)), and C(answers_now).
    - If the process stopped early, the result has only C(why).
  returned: if O(state=stopped)
  type: dict
  sample: {requests: 900, answered: 897, errors: {refused: 3}, seconds: 90.0, disrupted_ms: 310, longest_ms: 310, gap_count: 1}
lines:
  description: The result for people.
  returned: if O(state=stopped)
  type: list
  elements: str
  sample: ["http://203.0.113.7/: 900 of 900 requests answered in 90 s, median 2 ms, slowest 9 ms. No disruption."]
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import prober, this_machine
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import disruption

ATTEMPTS = 3


def asked(url, timeout):
    """Return the error of the last of at most three attempts, '' if one was answered."""
    error = ""
    for attempt in range(ATTEMPTS):
        error = prober.ask(url, timeout)
        if not error:
            break
        time.sleep(timeout if attempt < ATTEMPTS - 1 else 0)
    return error


def probe(folder, params):
    """Send requests until a task asks for the result, the run has ended, or the time is over. Then write the result, or remove the folder if none asked."""
    measurement, start = disruption.Measurement(), time.monotonic()
    while prober.goes_on(folder) and not this_machine.has_ended(params["run"]) and time.monotonic() - start < params["limit"]:
        began = time.monotonic()
        error = prober.ask(params["url"], params["request_timeout"])
        ended = time.monotonic()
        measurement.add(began - start, ended - start, error)
        time.sleep(max(0.0, params["interval"] - (ended - began)))
    prober.leave(folder, measurement.result())


def stopped(params):
    result = prober.end(params["folder"], 5 * params["request_timeout"] + 10)
    return result or {"why": "its process stopped early, or its machine was restarted"}


def main():
    module = AnsibleModule(
        argument_spec=dict(
            state=dict(type="str", choices=["asked", "started", "stopped"], required=True),
            url=dict(type="str", required=True),
            folder=dict(type="path"),
            run=dict(type="dict", default={}),
            limit=dict(type="int", default=43200),
            interval=dict(type="float", default=0.1),
            request_timeout=dict(type="float", default=2.0),
        ),
        required_if=[("state", "stopped", ["folder"])],
        supports_check_mode=True,
    )
    params = module.params
    state, url = params["state"], params["url"]
    problem = prober.problem_of(url)
    if problem:
        module.fail_json(msg="The URL {0} cannot be asked: {1}.".format(url, problem))
    if state == "asked":
        error = asked(url, params["request_timeout"])
        if error:
            module.fail_json(msg="{0} does not answer ({1}), so its disruption could not be measured.".format(url, error))
    elif module.check_mode:
        module.exit_json(changed=False, folder="", result={}, lines=[])
    elif state == "started":
        try:
            module.exit_json(changed=False, folder=prober.begin(lambda folder: probe(folder, params)))
        except OSError as exc:
            module.fail_json(msg="The process that asks {0} could not be started: {1}".format(url, exc))
    else:
        result = stopped(params)
        module.exit_json(changed=False, result=result, lines=disruption.sentences(url, result))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()

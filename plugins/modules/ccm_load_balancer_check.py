#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_load_balancer_check
short_description: Create a load balancer, send requests to it from outside and from Pods, and delete it
description:
  - Creates a namespace with a DaemonSet of small HTTP servers and a Service of type LoadBalancer. The module's host sends requests to the Service. A Pod
    on each of at most 40 Nodes sends requests to the Service, to Pods of other Nodes, and to ports of the Nodes. The module repeats this with another port
    and C(externalTrafficPolicy) V(Local), which shows the Nodes behind the load balancer. Finally, it deletes everything and checks that no Node changed.
  - Reports what works, what does not and why, and what could not be tested. A fault that it finds does not fail the module. See RV(ok).
  - The module fails before its first change if the namespace exists. It deletes what it created even if it fails, or if SIGTERM, SIGHUP or SIGINT ends it.
    It never removes a finalizer, because the controller would then leave a load balancer in the cloud.
  - The Pods run Python from an image that the cluster has. They fulfil the Pod security standard V(restricted).
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
  - outoftree.ccm.api
attributes:
  check_mode:
    support: full
    details: Reports what it would create and on how many Nodes. It creates nothing and sends no requests.
  diff_mode:
    support: N/A
options:
  name:
    description: Name of the controller's DaemonSet in C(kube-system). Its image runs in the Pods if O(image) is empty.
    type: str
    default: cloud-controller-manager
  lease:
    description: Name of the controller's Lease in C(kube-system).
    type: str
    default: cloud-controller-manager
  check_namespace:
    description: Namespace to create.
    type: str
    default: outoftree-ccm-check
  image:
    description: Image with Python 3.8 or newer for the Pods. If empty, the Pods run the image of this collection's runtime.
    type: str
    default: ""
  python:
    description: Path of Python in the image. The default is that of the runtime's image.
    type: str
    default: /opt/ccm/bin/python
  annotations:
    description: Annotations of the Service. Some clouds need one, such as the location of a load balancer.
    type: dict
    default: {}
  wait_timeout:
    description: Maximum seconds for each wait - for an address, answers, the new port, the removal. At an IP address, a wait ends after 35 s without progress.
    type: int
    default: 180
  request_timeout:
    description: Seconds to wait for an answer to one request.
    type: float
    default: 2.0
seealso:
  - module: outoftree.ccm.ccm_health_info
"""

EXAMPLES = r"""
- name: Check that load balancers work
  outoftree.ccm.ccm_load_balancer_check:
    image: registry.example.com/python:3.13
    python: python3
    wait_timeout: 120
  register: traffic
"""

RETURN = r"""
ok:
  description: Whether no check failed. Checks that were not possible do not count.
  returned: always
  type: bool
  sample: true
cause:
  description: A word for the cause of the first failure, such as V(quota), V(no-route) or V(security-group). Empty without one.
  returned: always
  type: str
  sample: ""
checks:
  description: Each check with C(name), C(state) (V(ok), V(failed) or V(not asked)), C(detail) and C(cause). Empty in check mode.
  returned: always
  type: list
  elements: dict
  sample: [{name: outside, state: ok, detail: "40 of 40 requests answered, median 2 ms, slowest 9 ms", cause: ""}]
message:
  description: The failures as texts.
  returned: always
  type: list
  elements: str
  sample: []
advice:
  description: What to do about the first failure. Empty without one.
  returned: always
  type: str
  sample: ""
lines:
  description: The checks for people, at most 80 columns wide.
  returned: always
  type: list
  elements: str
  sample: ["ok    outside       40 of 40 requests answered, median 2 ms, slowest 9 ms"]
requests:
  description: For each kind of request, C(asked), C(answered), C(errors) by kind, C(median_ms) and C(slowest_ms).
  returned: always
  type: dict
  sample: {outside: {asked: 40, answered: 40, errors: {}, median_ms: 2.0, slowest_ms: 9.0}}
"""

import inspect
import json
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api, asker, controllers
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import traffic, traffic_verdict

POLL = 0.5
#: Time limit, in seconds, of the command in a Pod. It asks all targets at the same time, and gives up a target after three failures in a row.
COMMAND_SECONDS = 30
#: The minimum seconds for the Pods to start, and for the removal, even if the user's limit, which is meant for the cloud, is shorter.
LEAST_SECONDS = 60
SIDE_BY_SIDE = 8
#: The reasons that a kubelet reports for a Pod that will not start unless somebody fixes the cause.
HOPELESS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CrashLoopBackOff", "CreateContainerConfigError")


class Ended(Exception):
    """A signal ended the module."""


class Check:
    """One run: the cluster, what was created, and the evidence so far."""

    def __init__(self, module, api):
        self.module, self.api, self.params = module, api, module.params
        self.place = module.params["check_namespace"]
        self.token, self.uid = secrets.token_hex(8), ""
        self.limit = module.params["wait_timeout"]
        self.spent = 0.0  # seconds that ask_often() has waited for a load balancer to stop losing requests
        self.evidence = traffic.no_evidence(self.limit)

    # -- reading ---------------------------------------------------------------------------------------------------------------------------

    def path(self, kind, name="", group="/api/v1"):
        return "{0}/namespaces/{1}/{2}{3}".format(group, self.place, kind, "/" + name if name else "")

    def look_around(self):
        """Read what the check needs to know before its first change; return why it cannot begin, '' if it can."""
        self.runtime = traffic.runtime_image(self.api.get(_api.daemonset_path(self.params["name"])))
        self.served = controllers.read_served_classes(self.api, self.params["name"], _api.NAMESPACE)
        self.read_controller()
        items = self.api.items("/api/v1/nodes")
        self.before = traffic.identity(items)
        self.evidence["nodes"] = traffic.nodes(items)
        self.image = self.params["image"] or self.runtime
        return traffic.refusal(self.place, self.api.get("/api/v1/namespaces/" + self.place), self.image)

    def read_controller(self):
        lease = health.lease_state(self.api.get(_api.lease_path(self.params["lease"])), self.api.now)
        self.evidence["controller"] = traffic.controller(lease, bool(self.runtime))

    def read_pods(self):
        expected = [node["name"] for node in self.evidence["nodes"] if node["ready"] and node["linux"]]
        pods = {name: {"ready": False, "reason": "there is no Pod", "ip": "", "pod": ""} for name in expected}
        for item in self.api.items(self.path("pods")):
            state = health.pod_state(item)
            if state["node"] and not state["leaving"]:
                pods[state["node"]] = {"ready": state["ready"], "reason": state["reason"], "pod": state["name"],
                                       "ip": (item.get("status") or {}).get("podIP") or ""}
        self.evidence["pods"] = pods

    def read_service(self, began):
        item = self.api.get(self.path("services", traffic.NAME)) or {"metadata": {}, "spec": {}}
        known, spec = self.evidence["service"], item["spec"]
        name = spec.get("loadBalancerClass") or ""
        address = traffic.address_of(item)
        if address and not known["address"]:
            known["seconds"] = round(time.monotonic() - began, 1)
        known.update({
            "class": "" if health.serves(self.served, name) else name, "finalizer": traffic.CLEANUP in (item["metadata"].get("finalizers") or []),
            "address": address or known["address"], "cluster_ip": spec.get("clusterIP") or "",
            "node_port": ((spec.get("ports") or [{}])[0]).get("nodePort") or 0, "health_port": spec.get("healthCheckNodePort") or 0})
        return item

    def read_events(self):
        query = {"fieldSelector": "involvedObject.kind=Service,involvedObject.uid={0}".format(self.uid)}
        self.evidence["service"]["events"] = traffic.events(self.api.items(self.path("events"), query))

    # -- the check -------------------------------------------------------------------------------------------------------------------------

    def create(self):
        """Create everything. The cloud works on the load balancer while the Pods start."""
        self.api.call("POST", "/api/v1/namespaces", traffic.namespace(self.place))
        self.api.call("POST", self.path("daemonsets", group="/apis/apps/v1"),
                      traffic.daemonset(self.image, self.params["python"], inspect.getsource(asker), self.token))
        try:
            created = self.api.call("POST", self.path("services"), traffic.service(self.params["annotations"], self.served))
            self.uid = created["metadata"]["uid"]
            self.evidence["service"]["created"] = True
        except _api.ApiError as exc:
            if exc.status not in (403, 422):
                raise
            self.evidence["service"]["refused"] = str(exc)

    def wait_for_pods(self, deadline):
        while True:
            self.read_pods()
            pods = self.evidence["pods"].values()
            if all(pod["ready"] or pod["reason"].startswith(HOPELESS) for pod in pods) or time.monotonic() > deadline:
                return any(pod["ready"] for pod in pods)
            time.sleep(POLL)

    def wait_for_address(self, began):
        """Wait for the address. If there are signs that none will come, let the Pods send their requests meanwhile."""
        first, service, patience = self.evidence["first"], self.evidence["service"], traffic.Patience(self.limit, began)
        while service["created"]:
            self.read_service(began)
            self.read_controller()
            self.read_events()
            now = time.monotonic()
            service["waited"] = now - began
            if patience.is_over(now, service, self.evidence["controller"]):
                return
            if "inside" not in first and patience.is_in_doubt(now):
                first["inside"] = self.ask_inside(traffic.FIRST_PORT)
            time.sleep(POLL)

    def expected(self):
        return traffic.expected(self.evidence["nodes"], self.evidence["pods"])

    def ask_outside(self, port, requests=1):
        """Return what the load balancer answers to this host."""
        job = {"targets": traffic.outside(self.evidence["service"]["address"], port, requests), "token": self.token,
               "timeout": self.params["request_timeout"]}
        return traffic.merged(asker.ask_all(job))

    def hope(self):
        return traffic.Hope(self.limit, self.evidence["service"]["address"], time.monotonic())

    def first_answer(self, port, began):
        """Wait until the load balancer answers, or no answer is expected any more; return (last result, seconds until then)."""
        hope, kinds = self.hope(), set()
        while True:
            result = self.ask_outside(port)
            kinds.update(result["errors"])
            now = time.monotonic()
            if result["answered"] or hope.is_over(now, (len(kinds),)):
                return result, round(now - began, 1)
            time.sleep(POLL)

    def ask_often(self, port, names, look_inside):
        """Ask until every request is answered and each of these Nodes answers, or no better answer is expected; return the last (result, inside).

        C(look_inside) returns C(inside), the results of the Pods. A load balancer needs a while until it knows that a Node is healthy. The pauses
        grow: with fewer attempts, a load balancer that loses requests is less likely to answer all requests of one attempt by chance.
        """
        hope, pause, inside = self.hope(), POLL, None
        while True:
            if inside is None or not traffic.is_local(inside):
                inside = look_inside()
            result, now = self.ask_outside(port, traffic.requests_for(len(self.expected()))), time.monotonic()
            served, whole = traffic.is_served(result, names, inside), result["answered"] == result["asked"]
            if served and not whole:
                hope.shorten(now, self.spent)
            if served and whole or hope.is_over(now, traffic.score(result, names, inside)):
                self.spent += hope.waited_for_losses(now)
                return result, inside
            time.sleep(min(pause, max(hope.left(now), POLL)))
            pause *= 2

    def ask_inside(self, port):
        """Return the results of the Pods that asked, by Node; {} if the Service has no cluster IP."""
        world, pods = traffic.world(self.evidence, port), self.evidence["pods"]
        silent = self.evidence["unheard"].__setitem__

        def run(name, targets):
            command = traffic.question(self.params["python"], targets, self.token, self.params["request_timeout"])
            try:
                status, out, err = self.api.execute(self.place, pods[name]["pod"], traffic.NAME, command, COMMAND_SECONDS)
                return json.loads(out) if status == 0 else silent(name, " ".join(err.split())[-300:])
            except (_api.ApiError, ValueError) as exc:
                return silent(name, str(exc))

        def run_all(targets):
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                return {name: results for name, results in zip(targets, pool.map(lambda name: run(name, targets[name]), targets)) if results is not None}

        targets = {name: traffic.inside(name, world) for name in (traffic.askers(sorted(world["pods"])) if world["cluster_ip"] else [])}
        results = run_all(targets)
        again = run_all(traffic.lossy(targets, results))
        return {name: traffic.asked_again(results[name], again.get(name, [])) for name in results}

    def ask_until_reached(self, inside):
        """Ask from Pods until the Service answers each of them, for about SETTLED seconds. kube-proxy writes its rules a moment after the Pods are Ready."""
        deadline = time.monotonic() + traffic.SETTLED
        while inside is None or (not traffic.is_reached(inside) and time.monotonic() < deadline):
            inside = self.ask_inside(traffic.FIRST_PORT)
        return inside

    def run(self):
        began = time.monotonic()
        self.create()
        if not self.wait_for_pods(began + max(self.limit, LEAST_SECONDS)):
            return
        self.wait_for_address(began)
        first, service = self.evidence["first"], self.evidence["service"]
        if service["address"]:
            first["outside"], first["seconds"] = self.first_answer(traffic.FIRST_PORT, time.monotonic())
            if first["outside"]["answered"]:
                first["outside"] = self.ask_often(traffic.FIRST_PORT, [], dict)[0]
        first["inside"] = self.ask_inside(traffic.FIRST_PORT) if service["address"] else self.ask_until_reached(first.get("inside"))
        if service["address"] and first["outside"]["answered"]:
            self.change_port()
        if not (self.evidence["second"].get("outside") or {}).get("answered"):
            self.ask_controller()

    def change_port(self):
        second, began = self.evidence["second"], time.monotonic()
        self.api.patch(self.path("services", traffic.NAME), traffic.changed_service(self.read_service(began)))
        self.read_service(began)
        second["outside"], second["seconds"] = self.first_answer(traffic.SECOND_PORT, began)
        # A load balancer may close its old port a little later than it opens the new one.
        second["old"] = self.ask_until_silent(traffic.FIRST_PORT)
        if second["outside"]["answered"]:
            # Once Nodes serve only their own Pods, each answer comes from the Node that the load balancer asked.
            second["outside"], second["inside"] = self.ask_often(traffic.SECOND_PORT, self.expected(), lambda: self.ask_inside(traffic.SECOND_PORT))
        else:
            second["inside"] = self.ask_inside(traffic.SECOND_PORT)

    def ask_controller(self):
        """Ask the runtime what the cloud has. Other controllers have no such command."""
        params = {"name": self.params["name"], "namespace": _api.NAMESPACE}
        command = ["ccm", "explain", "service", "{0}/{1}".format(self.place, traffic.NAME), "--output=json"]
        answer, unused = controllers.run_in_runtime(self.api, params, dict.fromkeys(("exists", "managed"), bool(self.runtime)), command, (0, 1, 2))
        self.evidence["controller"].update(traffic.explained(answer))

    # -- cleaning up -----------------------------------------------------------------------------------------------------------------------

    def remove(self):
        """Delete what was created, the Service first: its controller needs the namespace for Events."""
        began, removal = time.monotonic(), self.evidence["removal"]
        self.delete(self.path("services", traffic.NAME))
        if not self.is_gone(self.path("services", traffic.NAME), began):
            removal["left"].append("the Service {0}/{1} waits for its controller ({2})".format(self.place, traffic.NAME, traffic.CLEANUP))
        elif (self.evidence["first"].get("outside") or {}).get("answered"):
            changed = (self.evidence["second"].get("outside") or {}).get("answered")
            removal["after"] = self.ask_until_silent(traffic.SECOND_PORT if changed else traffic.FIRST_PORT)
        self.delete("/api/v1/namespaces/" + self.place)
        if not self.is_gone("/api/v1/namespaces/" + self.place, began) and not removal["left"]:
            removal["left"].append("the namespace {0} is still being deleted".format(self.place))
        removal["seconds"] = round(time.monotonic() - began, 1)
        self.evidence["changed_nodes"] = traffic.changed_nodes(self.before, traffic.identity(self.api.items("/api/v1/nodes")))

    def delete(self, path):
        try:
            self.api.call("DELETE", path)
        except _api.ApiError as exc:
            if exc.status != 404:
                raise

    def is_gone(self, path, began):
        while self.api.get(path) is not None:
            if time.monotonic() - began > max(self.limit, LEAST_SECONDS):
                return False
            time.sleep(POLL)
        return True

    def ask_until_silent(self, port):
        hope, result = self.hope(), self.ask_outside(port)
        while result["answered"] and not hope.is_over(time.monotonic(), ()):
            time.sleep(POLL)
            result = self.ask_outside(port)
        return result


def end(number, frame):
    raise Ended("signal {0}".format(number))


def checked(check):
    """Run the check, and clean up even after a signal or any error; return why either stopped, '' if both are complete."""
    problem = ""
    try:
        check.run()
    except (Ended, KeyboardInterrupt) as exc:
        problem = "it was ended by {0}".format(exc or "a signal")
    except Exception as exc:
        problem = _api.explain(exc) if isinstance(exc, _api.ApiError) else "a fault of this module, please report it: {0!r}".format(exc)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    try:
        check.remove()
    except _api.ApiError as exc:
        problem = "{0}; the namespace {1} may be left: {2}. Remove it: kubectl delete namespace {1}".format(
            problem or "the check could not clean up", check.place, _api.explain(exc)).strip()
    return problem


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", default=_api.NAME),
            lease=dict(type="str", default=_api.NAME),
            check_namespace=dict(type="str", default=traffic.NAMESPACE),
            image=dict(type="str", default=""),
            python=dict(type="str", default="/opt/ccm/bin/python"),
            annotations=dict(type="dict", default={}),
            wait_timeout=dict(type="int", default=180),
            request_timeout=dict(type="float", default=2.0),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    check = Check(module, _api.connect(module))
    try:
        problem = check.look_around()
    except _api.ApiError as exc:
        problem = _api.explain(exc)
    nothing = dict(checks=[], message=[], advice="", requests={})
    if problem:
        module.fail_json(msg="Nothing was created: {0}".format(problem), ok=False, cause="refused", lines=[], **nothing)
    if module.check_mode:
        lines = ["Would create the namespace {0} with a Service of type LoadBalancer and Pods of {1}".format(check.place, check.image),
                 "on {0} Node(s), ask them, and delete everything".format(len([n for n in check.evidence["nodes"] if n["ready"]]))]
        module.exit_json(changed=False, ok=True, cause="", lines=lines, **nothing)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    problem = checked(check)
    verdict = traffic_verdict.judge(check.evidence)
    if problem:
        module.fail_json(msg="The check of load balancers stopped: {0}".format(problem), **verdict)
    module.exit_json(changed=bool(check.evidence["removal"]["left"]), **verdict)


if __name__ == "__main__":
    main()

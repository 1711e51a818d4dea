# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the cloud-controller-managers of a cluster: that of this collection, the others, and objects that a rollout would overwrite.

It changes nothing. C(params) are the options of M(outoftree.ccm.ccm_cluster_info).
"""

from __future__ import annotations

import base64
import json
from typing import Any, Dict, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import kubernetes_yaml
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health, others as _others
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import (
    ApiObject, CloudMatch, HeldLease, OtherController, RuntimeFacts, ServedClasses,
)

Params = Dict[str, Any]

#: The annotation that the role sets only on Pods of a vendor's controller. A container with a C(command) is a vendor's, too, but not every
#: vendor sets one.
FOREIGN_POD = "ccm.outoftree.dev/cloud-config"


def read_leases(api: Any, params: Params, others: List[OtherController]) -> List[HeldLease]:
    """Return the held Leases of cloud-controller-managers that no known workload uses, with their holders."""
    known = [(params["namespace"], params["lease"])] + [(item["lease"]["namespace"], item["lease"]["name"]) for item in others if item["lease"]]
    # kube-node-lease has one Lease for each Node.
    leases = api.items("/apis/coordination.k8s.io/v1/leases", {"fieldSelector": "metadata.namespace!=kube-node-lease"})
    held: List[HeldLease] = []
    for lease in _others.strange_leases(leases, known, params["ignored"]):
        state = health.lease_state(lease, api.now)
        if state["held"]:
            held.append({"namespace": lease["metadata"]["namespace"], "name": lease["metadata"]["name"], "holder": state["holder"]})
    return held


def read_runtime(api: Any, params: Params) -> RuntimeFacts:
    daemonset = api.get(_api.daemonset_path(params["name"], params["namespace"]))
    state = health.daemonset_state(daemonset)
    meta = (daemonset or {}).get("metadata") or {}
    return {
        "exists": state["exists"],
        "name": params["name"],
        "image": state["image"],
        "created": meta.get("creationTimestamp") or "",
        "managed": (meta.get("labels") or {}).get("app.kubernetes.io/managed-by") == params["managed_by"],
        "wide": (meta.get("annotations") or {}).get("ccm.outoftree.dev/stage") == params["all_controllers"],
        "leftovers": [] if state["exists"] else leftovers(api, params),
    }


def leftovers(api: Any, params: Params) -> List[str]:
    """Return the objects that an interrupted rollout or removal left behind. This makes sense only if the controller has
    no DaemonSet."""
    names = []
    for kind, name in (("serviceaccounts", params["name"]), ("secrets", params["name"] + "-cloud-config")):
        try:
            item = api.get("/api/v1/namespaces/{0}/{1}/{2}".format(params["namespace"], kind, name)) or {}
        except _api.ApiError as exc:
            if exc.status != 403:
                raise
            continue  # preflight only needs to read, and needs no access to Secrets
        if ((item.get("metadata") or {}).get("labels") or {}).get("app.kubernetes.io/managed-by") == params["managed_by"]:
            names.append("{0}/{1}".format(kind, name))
    return names


def read_served_classes(api: Any, name: str, namespace: str) -> ServedClasses:
    """Return which Services the controller serves according to its flags, and to its C(--config) file if a ConfigMap or Secret contains it."""
    daemonset = api.get(_api.daemonset_path(name, namespace))
    place = health.mounted_file(daemonset, "config")
    return health.served_classes(daemonset, _configuration(api, namespace, *place) if place else None)


def _configuration(api: Any, namespace: str, resource: str, name: str, key: str) -> Dict[str, Any]:
    """Return the options under C(OutOfTree) in a C(--config) file; {} if the file is missing, not YAML, or the user may not read it."""
    try:
        item = api.get("/api/v1/namespaces/{0}/{1}/{2}".format(namespace, resource, name)) or {}
    except _api.ApiError as exc:
        if exc.status != 403:
            raise
        return {}
    text = (item.get("data") or {}).get(key) or ""
    try:
        data = kubernetes_yaml.load(base64.b64decode(text).decode("utf-8") if resource == "secrets" else text)
    except ValueError:
        return {}
    own = data.get("OutOfTree") if isinstance(data, dict) else None
    return own if isinstance(own, dict) else {}


def _is_ready(pod: ApiObject) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in pod["status"].get("conditions") or [])


def ask_runtime(api: Any, params: Params, runtime: RuntimeFacts) -> Tuple[List[CloudMatch], str]:
    """Return (the rows of C(ccm nodes), the reason if there are none, else ''). The rows correct the classes of the Nodes (nodes.judged)."""
    answer, why = run_in_runtime(api, params, runtime, ["ccm", "nodes", "--output=json"], (0,))
    return answer or [], why


def run_in_runtime(api: Any, params: Params, runtime: RuntimeFacts, command: List[str], accepted: Tuple[int, ...]) -> Tuple[Any, str]:
    """Run a command in a Pod of the runtime; return (its JSON, the reason if there is none, else '').

    C(accepted): the exit statuses with which the command prints JSON.
    """
    if not (runtime["exists"] and runtime["managed"]):
        return None, "the runtime is not installed yet"
    query = {"labelSelector": "app.kubernetes.io/name={0}".format(params["name"])}
    pods = api.items("/api/v1/namespaces/{0}/pods".format(params["namespace"]), query)
    # A Pod that is not Ready may also answer. The cloud may be the only reason why it is not Ready.
    running = sorted((pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"), key=lambda pod: not _is_ready(pod))
    if not running:
        return None, "the runtime has no running Pod"
    meta, container = running[0]["metadata"], running[0]["spec"]["containers"][0]
    if container.get("command") or FOREIGN_POD in (meta.get("annotations") or {}):
        return None, "the controller is not this collection's own runtime"
    flags = ("--cloud-provider=", "--cloud-config=", "--cloud-nodes=")
    cloud = [argument for argument in container.get("args") or [] if argument.startswith(flags)]
    try:
        status, out, err = api.execute(params["namespace"], meta["name"], container["name"], command + cloud)
        problem = "'{0}' failed: {1}".format(" ".join(command[:2]), " ".join(err.split())[-300:])
        return (json.loads(out), "") if status in accepted else (None, problem)
    except (_api.ApiError, ValueError) as exc:
        return None, str(exc)


def read_others(api: Any, params: Params) -> List[OtherController]:
    """Return the other cloud-controller-managers, each with the holder of its Lease."""
    others = []
    for kind, plural in sorted(_others.KINDS.items()):
        for workload in api.items("/apis/apps/v1/{0}".format(plural)):
            controller = _others.summary(kind, workload)
            where = "{namespace}/{name}".format(**controller) if controller else ""
            if not controller or where in params["ignored"]:
                continue
            if kind == "DaemonSet" and where == "{namespace}/{name}".format(**params):
                continue
            if controller["lease"]:
                lease = api.get(_api.lease_path(controller["lease"]["name"], controller["lease"]["namespace"]))
                state = health.lease_state(lease, api.now)
                controller["holder"] = state["holder"] if state["held"] else ""
            others.append(controller)
    return others


def read_taken(api: Any, params: Params) -> List[str]:
    """Return the objects that a rollout would overwrite although this collection did not create them."""
    name, namespace = params["name"], params["namespace"]
    rbac = "/apis/rbac.authorization.k8s.io/v1/"
    objects = [("DaemonSet", name, _api.daemonset_path(name, namespace)),
               ("ServiceAccount", name, "/api/v1/namespaces/{0}/serviceaccounts/{1}".format(namespace, name)),
               ("Secret", name + "-cloud-config", "/api/v1/namespaces/{0}/secrets/{1}-cloud-config".format(namespace, name))]
    objects += [(kind, name, "{0}namespaces/{1}/{2}/{3}".format(rbac, namespace, plural, name))
                for kind, plural in (("Role", "roles"), ("RoleBinding", "rolebindings"))]
    taken = []
    for kind, called, path in objects:
        if _is_not_ours(api.get(path), params):
            taken.append("{0} {1}/{2}".format(kind, namespace, called))
    for kind, plural in (("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings")):
        if _is_not_ours(api.get("{0}{1}/system:{2}".format(rbac, plural, name)), params):
            taken.append("{0} system:{1}".format(kind, name))
    return taken


def _is_not_ours(workload: Optional[ApiObject], params: Params) -> bool:
    return workload is not None and (workload["metadata"].get("labels") or {}).get(_others.MANAGED) != params["managed_by"]

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Other cloud-controller-managers in a cluster: how to identify them, and how to pause and resume them without deleting them.

Pure and stdlib-only: it takes Deployments and DaemonSets as dicts from the API. Vendors use no common label, so a controller is identified by the
names of the workload, its containers, their programs and images.
"""

from __future__ import annotations

import json
import re
from typing import Any, Iterable, List, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject, LeaseName, OtherController, StaticController

#: Kinds of workloads -> the plural in the path of their lists.
KINDS = {"Deployment": "deployments", "DaemonSet": "daemonsets"}

#: The Lease of upstream's controllers, if no flags name another one.
NAMESPACE, NAME = "kube-system", "cloud-controller-manager"

#: Annotation of a paused workload, with a Deployment's former replicas, and the label in a paused DaemonSet's node selector, which no node has.
PAUSED = "ccm.outoftree.dev/paused"

MANAGED = "app.kubernetes.io/managed-by"

_NAMES = re.compile(r"cloud-controller-manager|cloud-node-manager|cloud-provider|(^|-)ccm(-|$)")
#: A name that only a controller has. Other programs are called cloud-provider, too, such as that of kube-vip.
_CERTAIN = re.compile(r"cloud-controller-manager|(^|-)ccm(-|$)")

#: Labels and annotations of objects whose changes a tool may undo, and the name of each tool in messages.
_KEEPERS = (
    ("addonmanager.kubernetes.io/mode", "the addon manager"), ("argocd.argoproj.io/tracking-id", "Argo CD"), ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"), ("helm.toolkit.fluxcd.io/name", "Flux"), ("kapp.k14s.io/app", "kapp"),
    ("objectset.rio.cattle.io/owner-name", "k3s or RKE2"), ("objectset.rio.cattle.io/hash", "k3s, RKE2 or Fleet"),
    ("helmcharts.helm.cattle.io/chart", "the HelmChart of k3s or RKE2"), ("meta.helm.sh/release-name", "Helm"),
)
_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def _base(path: str) -> str:
    """Return the last part of a path or of an image without its tag: 'x' of 'registry:5000/a/x:1.2@sha256:...'."""
    return path.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _names(workload: ApiObject) -> List[str]:
    """Return the names of a workload. An image often contains several programs, so its name counts only without a command."""
    names = [workload["metadata"]["name"]]
    for container in workload["spec"]["template"]["spec"]["containers"]:
        names.append(container.get("name", ""))
        names.append(_base((container.get("command") or [container.get("image", "")])[0]))
    return names


def controller_container(workload: ApiObject) -> ApiObject:
    """Return the container whose own name or program is like a controller's, or else the first container."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    for container in containers:
        program = _base((container.get("command") or [container.get("image", "")])[0])
        if _NAMES.search(container.get("name", "")) or _NAMES.search(program):
            return container
    return containers[0]


def words_of(container: ApiObject) -> List[str]:
    """Return the words of a container's command line, with the values of C($(NAME)) that its env sets."""
    known = {item["name"]: item["value"] for item in container.get("env") or [] if item.get("value")}

    def put(text: str) -> str:
        return _VARIABLE.sub(lambda match: known.get(match.group(1), match.group(0)), text)

    return [word for text in (container.get("command") or []) + (container.get("args") or []) for word in put(text).split()]


def flag_values(words: List[str], name: str) -> List[str]:
    """Return each value of a flag, which is written as C(--name=value) or C(--name value); C(true) for a flag without a value."""
    values = []
    for index, word in enumerate(words):
        if word.startswith("--{0}=".format(name)):
            values.append(word.split("=", 1)[1])
        elif word == "--" + name:
            values.append(words[index + 1] if index + 1 < len(words) and not words[index + 1].startswith("-") else "true")
    return values


def _flag(words: List[str], name: str, default: str = "") -> str:
    """Return a flag's last value, C(default) if it is not set."""
    return (flag_values(words, name) or [default])[-1]


def summary(kind: str, workload: ApiObject) -> Optional[OtherController]:
    """Return the facts that a migration needs, None if the workload is not a cloud-controller-manager.

    C(lease) is empty if it runs without leader election. C(active): whether its Pods may run. C(port): its port on its nodes, 0 for none.
    """
    if not any(_NAMES.search(name) for name in _names(workload)):
        return None
    meta = workload["metadata"]
    container = controller_container(workload)
    words = words_of(container)
    paused = PAUSED in (meta.get("annotations") or {})
    wanted = workload["spec"].get("replicas", 1) if kind == "Deployment" else \
        (workload.get("status") or {}).get("desiredNumberScheduled", 0)
    lease: LeaseName = {} if _flag(words, "leader-elect", "true") == "false" else {
        "namespace": _flag(words, "leader-elect-resource-namespace", NAMESPACE),
        "name": _flag(words, "leader-elect-resource-name", NAME)}
    port = _flag(words, "secure-port", "10258")
    return {
        "kind": kind, "namespace": meta["namespace"], "name": meta["name"], "image": container.get("image", ""),
        "managed": (meta.get("labels") or {}).get(MANAGED, ""), "pods": wanted, "paused": paused,
        "active": not paused and wanted > 0, "cloud_provider": _flag(words, "cloud-provider"),
        "cluster_name": _flag(words, "cluster-name", "kubernetes"), "lease": lease, "holder": "", "keeper": keeper(workload),
        "port": int(port) if workload["spec"]["template"]["spec"].get("hostNetwork") and port.isdigit() else 0,
    }


def keeper(workload: ApiObject) -> str:
    """Return which tool may undo a change of a workload, with the mark or the owner that shows it; '' if nothing shows one."""
    meta = workload["metadata"]
    marks = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    for mark, tool in _KEEPERS:
        if mark in marks:
            return "{0} ({1}={2})".format(tool, mark, str(marks[mark])[:100])
    owner = next((owner for owner in meta.get("ownerReferences") or [] if owner.get("controller")), None)
    return "an operator (it belongs to {0} {1})".format(owner.get("kind"), owner.get("name")) if owner else ""


def static_pod(pod: Any) -> Optional[StaticController]:
    """Return C(name), C(image) and C(certain) of a static Pod that has a name like a cloud-controller-manager's, None for any other Pod.
    C(certain): whether only such a controller has a name like that."""
    spec = pod.get("spec") if isinstance(pod, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers or not all(isinstance(item, dict) for item in containers):
        return None
    meta = pod.get("metadata") if isinstance(pod.get("metadata"), dict) else {}
    workload: ApiObject = {"metadata": {"name": str(meta.get("name") or "")},
                           "spec": {"template": {"spec": {"containers": [_plain(item) for item in containers]}}}}
    names = [name for name in _names(workload) if _NAMES.search(name)]
    if not names:
        return None
    return {"name": "{0}/{1}".format(meta.get("namespace") or "default", workload["metadata"]["name"]), "image": controller_container(workload)["image"],
            "certain": any(_CERTAIN.search(name) for name in names)}


def _plain(container: ApiObject) -> ApiObject:
    """Return the needed parts of a container as text, because a manifest on a host may contain anything."""
    command = container.get("command")
    return {"name": str(container.get("name") or ""), "image": str(container.get("image") or ""),
            "command": [str(word) for word in command] if isinstance(command, list) else []}


#: Leases that are named like a controller's (C(_CERTAIN)), but belong to no other controller: those of this collection's runs, and of k3s and
#: RKE2, whose controller a plan turns off.
_KNOWN_LEASES = ("outoftree-ccm-run", "k3s-cloud-controller-manager", "rke2-cloud-controller-manager")


def strange_leases(leases: Iterable[ApiObject], known: Iterable[Tuple[str, str]], ignored: Iterable[str]) -> List[ApiObject]:
    """Return the Leases that are named like a cloud-controller-manager's and that no known controller uses.

    C(known) are the Leases of the new controller and of the workloads found, C(ignored) are names of the form
    C(NAMESPACE/NAME).
    """
    strange = []
    for lease in leases:
        namespace, name = lease["metadata"].get("namespace", ""), lease["metadata"]["name"]
        if _CERTAIN.search(name) and name not in _KNOWN_LEASES and (namespace, name) not in set(known) \
                and "{0}/{1}".format(namespace, name) not in ignored:
            strange.append(lease)
    return strange


def pause(kind: str, workload: ApiObject) -> Optional[ApiObject]:
    """Return the merge patch that stops a workload's Pods and records a Deployment's replicas; None if the workload is already paused."""
    meta = workload["metadata"]
    if PAUSED in (meta.get("annotations") or {}):
        return None
    if kind == "Deployment":
        replicas = workload["spec"].get("replicas", 1)
        return _patch(meta, json.dumps({"replicas": replicas}), {"replicas": 0})
    return _patch(meta, json.dumps({}), {"template": {"spec": {"nodeSelector": {PAUSED: "true"}}}})


def resume(kind: str, workload: ApiObject) -> Optional[ApiObject]:
    """Return the merge patch that restores a workload's state; None if it is not paused. A scale that was changed in between stays."""
    meta = workload["metadata"]
    noted = (meta.get("annotations") or {}).get(PAUSED)
    if noted is None:
        return None
    if kind == "Deployment":
        replicas = workload["spec"].get("replicas", 1) or json.loads(noted)["replicas"]
        return _patch(meta, None, {"replicas": replicas})
    return _patch(meta, None, {"template": {"spec": {"nodeSelector": {PAUSED: None}}}})


def _patch(meta: ApiObject, note: Optional[str], spec: ApiObject) -> ApiObject:
    return {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": {PAUSED: note}}, "spec": spec}


def owned(kind: str, name: str, pods: Iterable[ApiObject]) -> List[str]:
    """Return the names of the workload's Pods. A Deployment's Pods belong to ReplicaSets whose names are its name and a hash."""
    names = []
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or []:
            maker = owner["name"].rsplit("-", 1)[0] if kind == "Deployment" else owner["name"]
            if owner.get("kind") == ("ReplicaSet" if kind == "Deployment" else kind) and maker == name:
                names.append(pod["metadata"]["name"])
    return names


def ready(kind: str, workload: ApiObject) -> bool:
    """Return whether the status of a workload is up to date, and all its Pods are Ready; false for a DaemonSet without Pods."""
    status = workload.get("status") or {}
    if status.get("observedGeneration", 0) < workload["metadata"].get("generation", 0):
        return False
    if kind == "Deployment":
        return status.get("readyReplicas", 0) >= workload["spec"].get("replicas", 1)
    return status.get("numberReady", 0) >= status.get("desiredNumberScheduled", 0) > 0

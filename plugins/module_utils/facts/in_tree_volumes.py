# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the objects of a cluster that have volumes of an in-tree plug-in, and the Nodes on which Pods use them.

Pure and stdlib-only: it takes objects as dicts from the API, page by page, and keeps only what a decision needs. It decides nothing.
"""

from __future__ import annotations

from typing import Dict, Iterable, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import (
    ApiObject, InlineVolume, NodeDrivers, PersistentVolume, PodVolumes, StorageClass,
)

#: Annotations that mark a StorageClass as the default. The second one is from before 1.6, and Kubernetes still reads it.
DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")

#: The annotation that named a claim's StorageClass before 1.6. Kubernetes still reads it.
CLASS = "volume.beta.kubernetes.io/storage-class"

#: Kinds of workloads with a template of Pods -> the path of their list. ReplicaSets are left out: either a Deployment has the same
#: template, or their Pods show the volumes.
WORKLOADS = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Job": "/apis/batch/v1/jobs",
    "CronJob": "/apis/batch/v1/cronjobs",
}

#: Controllers of Kubernetes itself. An object that one of them controls has no C(inline) volumes of its own: the controller's template has them, or the
#: C(sources) of the Pods show them. The template of any other controller, such as an operator's resource, is not read.
_CONTROLLERS = {*WORKLOADS, "ReplicaSet", "ReplicationController", "Node"}

_SOURCES = tuple(volume.source for volume in versions.IN_TREE_VOLUMES)
_PROVISIONERS = {volume.provisioner: volume.source for volume in versions.IN_TREE_VOLUMES}
_DRIVERS = tuple(volume.driver for volume in versions.IN_TREE_VOLUMES if volume.driver)


def source_of(volume: ApiObject) -> str:
    """Return the in-tree source of a volume of a Pod, or of a PersistentVolume's spec; '' if it has another one."""
    return next((source for source in _SOURCES if volume.get(source) is not None), "")


def persistent(items: Iterable[ApiObject]) -> List[PersistentVolume]:
    """Return {name, source, claim} of each in-tree PersistentVolume; C(claim) is V(namespace/name), '' if none is bound."""
    volumes: List[PersistentVolume] = []
    for item in items:
        spec = item.get("spec") or {}
        claim = spec.get("claimRef") or {}
        if source_of(spec):
            volumes.append({"name": item["metadata"]["name"], "source": source_of(spec),
                            "claim": "{0}/{1}".format(claim.get("namespace"), claim.get("name")) if claim else ""})
    return volumes


def classes(items: Iterable[ApiObject]) -> List[StorageClass]:
    """Return {name, source, default} of each StorageClass with an in-tree provisioner."""
    storage_classes: List[StorageClass] = []
    for item in items:
        marks = item["metadata"].get("annotations") or {}
        if item.get("provisioner") in _PROVISIONERS:
            storage_classes.append({"name": item["metadata"]["name"], "source": _PROVISIONERS[item["provisioner"]],
                                    "default": any(marks.get(mark) == "true" for mark in DEFAULT)})
    return storage_classes


def class_names(items: Iterable[ApiObject]) -> List[str]:
    """Return the name of the StorageClass of each PersistentVolumeClaim that has one."""
    names = [(item["metadata"].get("annotations") or {}).get(CLASS) or (item.get("spec") or {}).get("storageClassName") for item in items]
    return [name for name in names if name]


def counted(known: Iterable[StorageClass], names: List[str]) -> List[StorageClass]:
    """Return the StorageClasses that claims use, or that are the default, each with its number of C(claims)."""
    used_classes: List[StorageClass] = []
    for item in known:
        used = item.copy()
        used["claims"] = names.count(item["name"])
        used_classes.append(used)
    return [item for item in used_classes if item["claims"] or item["default"]]


def templates(kind: str, items: Iterable[ApiObject]) -> List[InlineVolume]:
    """Return {kind, namespace, name, source} for each in-tree source that the Pods of a workload have.

    A workload that one of C(_CONTROLLERS) controls, such as a Job of a CronJob, is left out. A workload of an operator's resource is included.
    """
    volumes: List[InlineVolume] = []
    for item in items:
        spec = item.get("spec") or {}
        if _owned(item["metadata"]):
            continue
        if kind == "CronJob":
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        volumes += _inline(kind, item["metadata"], (spec.get("template") or {}).get("spec") or {})
    return volumes


def pods(items: Iterable[ApiObject], claims: Dict[str, str]) -> List[PodVolumes]:
    """Return {namespace, name, node, sources, inline} of each Pod that uses an in-tree volume and has not ended.

    C(claims) has the source of each bound claim, by V(namespace/name). C(node) is '' if the Pod is not scheduled. C(inline) has the
    sources that the Pod itself names, in the form of C(templates); it is empty for a Pod that one of C(_CONTROLLERS) controls.
    """
    users: List[PodVolumes] = []
    for item in items:
        meta, spec = item["metadata"], item.get("spec") or {}
        if (item.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        sources = [source_of(volume) or claims.get("{0}/{1}".format(meta["namespace"], _claim(meta["name"], volume)), "")
                   for volume in spec.get("volumes") or []]
        if any(sources):
            users.append({"namespace": meta["namespace"], "name": meta["name"], "node": spec.get("nodeName") or "",
                          "sources": sorted({source for source in sources if source}),
                          "inline": [] if _owned(meta) else _inline("Pod", meta, spec)})
    return users


def _owned(meta: ApiObject) -> bool:
    return any(owner.get("controller") and owner.get("kind") in _CONTROLLERS for owner in meta.get("ownerReferences") or [])


def _claim(pod: str, volume: ApiObject) -> str:
    """Return the name of the claim that a volume of a Pod uses; '' if it uses none. An ephemeral volume has a claim of its own."""
    if volume.get("ephemeral") is not None:
        return "{0}-{1}".format(pod, volume["name"])
    return (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""


def _inline(kind: str, meta: ApiObject, spec: ApiObject) -> List[InlineVolume]:
    sources = sorted({source_of(volume) for volume in spec.get("volumes") or []} - {""})
    return [{"kind": kind, "namespace": meta["namespace"], "name": meta["name"], "source": source} for source in sources]


def drivers(items: Iterable[ApiObject]) -> List[str]:
    """Return the names of CSIDrivers that serve in-tree volumes."""
    return [item["metadata"]["name"] for item in items if item["metadata"]["name"] in _DRIVERS]


def registered(items: Iterable[ApiObject]) -> List[NodeDrivers]:
    """Return {name, drivers} of each CSINode, which has the name of its Node. C(drivers) are those that serve in-tree volumes."""
    return [{"name": item["metadata"]["name"],
             "drivers": [driver["name"] for driver in (item.get("spec") or {}).get("drivers") or [] if driver["name"] in _DRIVERS]}
            for item in items]

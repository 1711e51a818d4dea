# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads which volumes a cluster uses, which CSI drivers serve them, and which images its Pods pull: page by page, because clusters are large.

It changes nothing. The module in_tree_volumes decides what counts as an in-tree volume.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterable, List, Optional, Set

from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import image_pulls, in_tree_volumes as _volumes
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject, PodVolumes, VolumeFacts

#: Takes the objects of one page of a list, and returns the parts of them to keep.
Keep = Callable[[Iterable[ApiObject]], List[Any]]


def read_volumes(api: Any) -> Dict[str, Any]:
    """Return C(volumes) and C(images) as M(outoftree.ccm.ccm_cluster_info) describes them. Of each page, only those fields are kept."""
    unread: List[str] = []
    images: Set[str] = set()

    def listed(path: str, kind: str, keep: Keep, query: Optional[Dict[str, str]] = None) -> List[Any]:
        objects: List[Any] = []
        try:
            for page in api.pages(path, query):
                objects += keep(page)
        except _api.ApiError as exc:
            if exc.status != 403:
                raise
            unread.append(kind)
        return objects

    storage = "/apis/storage.k8s.io/v1/"
    persistent = listed("/api/v1/persistentvolumes", "persistentvolumes", _volumes.persistent)
    classes = listed(storage + "storageclasses", "storageclasses.storage.k8s.io", _volumes.classes)
    if classes:
        classes = _volumes.counted(classes, listed("/api/v1/persistentvolumeclaims", "persistentvolumeclaims", _volumes.class_names))
    claims = {item["claim"]: item["source"] for item in persistent if item["claim"]}

    def of_pods(items: Iterable[ApiObject]) -> List[PodVolumes]:
        items = list(items)
        images.update(image_pulls.pulled(items))
        return _volumes.pods(items, claims)

    pods = listed("/api/v1/pods", "pods", of_pods,
                  {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"})
    inline = [item for pod in pods for item in pod.pop("inline")]
    for kind, path in sorted(_volumes.WORKLOADS.items()):
        group, plural = path.split("/")[2], path.split("/")[-1]
        inline += listed(path, "{0}.{1}".format(plural, group), functools.partial(_volumes.templates, kind))
    volumes: VolumeFacts = {"persistent": persistent, "classes": classes, "inline": inline, "pods": pods, "drivers": [], "nodes": {}}
    if persistent or classes or inline or pods:
        volumes["drivers"] = listed(storage + "csidrivers", "csidrivers.storage.k8s.io", _volumes.drivers)
        registered = listed(storage + "csinodes", "csinodes.storage.k8s.io", _volumes.registered)
        volumes["nodes"] = {item["name"]: item["drivers"] for item in registered}
    return dict({} if "pods" in unread else {"images": sorted(images)}, volumes=dict(volumes, unread=unread))

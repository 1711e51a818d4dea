# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registries for which the kubelet once had credentials of its own (KEP-541), and the images that Pods pull from them.

Pure and stdlib-only. The sources are pkg/credentialprovider/gcp and azure of Kubernetes 1.29 and 1.30.
"""

from __future__ import annotations

import re
from typing import Iterable, List, NamedTuple, Set, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ApiObject


class Registry(NamedTuple):
    """A cloud's registry: the first release whose kubelet has no credentials for it, and the plug-in that provides them instead."""

    name: str
    gone_in: Tuple[int, int]
    hosts: str
    plugin: str


#: The kubelet's credentials for ECR were removed in 1.27. The credentials for the registries below need the gate C(GATE) to be false. It is true by default
#: from 1.29 on.
REGISTRIES = (
    Registry("GCR and Artifact Registry", (1, 31), r"([^/]+\.)?gcr\.io|container\.cloud\.google\.com|[^/]+\.pkg\.dev", "auth-provider-gcp"),
    Registry("ACR", (1, 30), r"[^/]+\.azurecr\.(io|cn|de|us)", "acr-credential-provider"),
)

GATE = "DisableKubeletCloudCredentialProviders"


def built_in(version: Tuple[int, int]) -> List[Registry]:
    """Return the registries for which a kubelet of this release has credentials, if the gate is false."""
    return [registry for registry in REGISTRIES if version < registry.gone_in]


def of_registry(image: str, registry: Registry) -> bool:
    return re.fullmatch("(?:{0})(:[0-9]+)?".format(registry.hosts), image.partition("/")[0]) is not None


def pulled(pods: Iterable[ApiObject]) -> List[str]:
    """Return the images of C(REGISTRIES) in Pods that have not ended and that bring no credentials (C(imagePullSecrets))."""
    images: Set[str] = set()
    for pod in pods:
        spec = pod.get("spec") or {}
        if spec.get("imagePullSecrets") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        containers = (spec.get("containers") or []) + (spec.get("initContainers") or [])
        images.update(container["image"] for container in containers
                      if any(of_registry(container.get("image") or "", registry) for registry in REGISTRIES))
    return sorted(images)

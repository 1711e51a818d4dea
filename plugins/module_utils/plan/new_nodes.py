# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration for nodes that join later, because no installer gives their kubelets --cloud-provider=external by itself. Pure."""

from __future__ import annotations

from typing import Iterable, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import ClusterFacts


def instructions(layouts: Iterable[str], cluster: ClusterFacts) -> List[str]:
    """Return, as lines of text, the configuration that a new node needs, for each layout in the cluster."""
    lines: List[str] = []
    if "kubeadm" in layouts:
        version = versions.parse(cluster["version"]) or versions.SUPPORTED[1]
        kind, extra = ("v1beta4", "    - name: cloud-provider\n      value: external") if version >= (1, 31) else \
            ("v1beta3", "    cloud-provider: external")
        lines += ["New nodes: kubeadm join --config FILE, with this content of FILE:", "apiVersion: kubeadm.k8s.io/" + kind, "kind: JoinConfiguration",
                  "nodeRegistration:", "  kubeletExtraArgs:"] + extra.split("\n")
    if "kubespray" in layouts:
        lines += ["New nodes of kubespray, in group_vars/all: cloud_provider: external and external_cloud_provider: manual"]
    if "systemd" in layouts:
        lines += ["New nodes with other systemd units: start the kubelet with --cloud-provider=external"]
    for name in ("k3s", "rke2"):
        if name in layouts:
            lines += ["/etc/rancher/{0}/config.yaml of a new agent:".format(name), "kubelet-arg:", "- cloud-provider=external",
                      "A new server needs the same files as the existing servers."]
    return lines

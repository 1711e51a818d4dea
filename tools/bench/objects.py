# SPDX-License-Identifier: Apache-2.0
"""The Nodes and Services that both measured programs get, and checks of encoded objects that show when a program is
done. Pure.
"""

from __future__ import annotations

import re
from typing import Any

TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
#: How many images a Node lists: a machine that has just registered has pulled few.
IMAGES = 2
NAME = re.compile(rb"bench-\d{5}")


def name(number: int) -> str:
    return f"bench-{number:05d}"


def node(number: int, *, provider_id: str = "", address: str = "", pod_cidr: str = "", ready: bool = True) -> Any:
    """Return a Node as a kubelet registers and reports it, about 4 KB in the API server. Without `provider_id`, the
    Node has the taint and must be initialised."""
    spec: dict[str, Any] = {"providerID": provider_id} if provider_id else {"taints": [TAINT]}
    if pod_cidr:
        spec |= {"podCIDR": pod_cidr, "podCIDRs": [pod_cidr]}
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    resources = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi", "hugepages-2Mi": "0"}
    conditions = [
        condition(kind, "False", f"KubeletHas{word}")
        for kind, word in (
            ("MemoryPressure", "SufficientMemory"),
            ("DiskPressure", "NoDiskPressure"),
            ("PIDPressure", "SufficientPID"),
        )
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name(number),
            "labels": {
                "kubernetes.io/hostname": name(number),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node-role.example/pool": f"pool-{number % 5}",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": spec,
        "status": {
            "addresses": [*addresses, {"type": "Hostname", "address": name(number)}],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [*conditions, condition("Ready", "True" if ready else "False", "KubeletReady")],
            "nodeInfo": {
                "machineID": f"{number:032x}",
                "systemUUID": f"{number:032x}",
                "bootID": f"{number:032x}",
                "kernelVersion": "6.1.0-30-amd64",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {"names": [f"registry.example/app-{image}@sha256:{image:064x}"], "sizeBytes": 10_000_000 + image}
                for image in range(IMAGES)
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        },
    }


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    at = "2026-11-01T00:00:00Z"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"kubelet reports {kind}",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def service(number: int) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name(number), "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name(number)},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        },
    }


# A frame of a watch is one object, in JSON or protobuf. In both, the texts that are searched for below are unchanged.


def is_initialised(frame: bytes) -> bool:
    """Return whether the taint is gone and the addresses are there. Upstream writes the addresses after it removes the
    taint, our runtime before."""
    return TAINT["key"].encode() not in frame and b"InternalIP" in frame


def is_served(frame: bytes) -> bool:
    return b"198.18." in frame


def is_routed(frame: bytes) -> bool:
    return b"RouteCreated" in frame


def object_name(frame: bytes) -> str:
    """Return the name of a Node or Service of a bench (see `name`); "" for any other object."""
    found = NAME.search(frame)
    return found[0].decode() if found else ""

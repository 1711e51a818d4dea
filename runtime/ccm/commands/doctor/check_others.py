# SPDX-License-Identifier: Apache-2.0
"""Checks whether other controllers write the same Nodes, from the Nodes' managed fields, from Leases, and from what
runs. No I/O."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence

from ccm.engine.objects import Lease

from ..asking.cluster_objects import NodeLease, Pod, Workload, WrittenNode, cloud_controllers
from ..asking.leading import ago, is_led, leader_facts
from .diagnosis import Check, State, some

NAME = "other controllers"
#: Prefixes of the names of programs that write Nodes but are not other cloud-controller-managers.
_FRIENDS = ("kubelet", "kubectl", "kubeadm", "outoftree-ccm", "kube-controller-manager", "kube-apiserver", "OpenAPI")
_CLOUD_LEASE = re.compile(r"cloud-controller|cloud-provider|ccm")
#: What a cloud-controller-manager writes to a Node -> where it is in `fieldsV1`.
_FIELDS = {"spec.providerID": ("f:spec", "f:providerID"), "status.addresses": ("f:status", "f:addresses")}


def writers(nodes: Iterable[WrittenNode], lease: Lease | None, now: datetime.datetime) -> list[Check]:
    """Report which other programs wrote providerIDs and addresses, and whether they still do."""
    names: dict[tuple[str, str], list[str]] = {}
    latest: dict[tuple[str, str], str] = {}
    for node in nodes:
        for entry in node.metadata.managed_fields:
            if entry.manager.startswith(_FRIENDS):
                continue
            for field, (section, key) in _FIELDS.items():
                if key in (entry.fields_v1.get(section) or {}):
                    names.setdefault((entry.manager, field), []).append(node.metadata.name)
                    latest[entry.manager, field] = max(latest.get((entry.manager, field), ""), entry.time or "")
    began = lease.spec.acquire_time or "" if lease is not None and leader_facts(lease) and is_led(lease, now) else ""
    checks = []
    for (manager, field), written in sorted(names.items()):
        last = latest[manager, field]
        text = f"{manager} wrote {field} of {some(written)}, last {ago(last, now)}"
        if began and _moment(last) > _moment(began):
            text += ", after this project's controller became the leader: both write the same Nodes"
            checks.append(Check(NAME, State.PROBLEM, text, f"stop {manager}"))
        else:
            checks.append(Check(NAME, State.NOTE, text))
    return checks


def _moment(text: str) -> str:
    """Return an RFC 3339 time in UTC without its fraction and zone, so that such texts sort by time."""
    return text.partition(".")[0].rstrip("Z")


def leases(leases: Iterable[NodeLease], ours: Sequence[str], now: datetime.datetime) -> list[Check]:
    """Report other controllers that hold a Lease. `leases`: the Leases of the namespace; `ours`: the names of the
    Leases that this project's controller uses."""
    checks = []
    for item in leases:
        name, lease = item.metadata.name, Lease(item.metadata, item.spec)
        if not is_led(lease, now):
            continue
        holder = item.spec.holder_identity
        if name == ours[0] and not leader_facts(lease):
            text = f"{holder} holds the Lease {name} and does not describe itself: it is another controller"
            to_do = "this project's controller waits for that Lease: stop the other one when you switch"
            checks.append(Check(NAME, State.WARNING, text, to_do))
        elif name not in ours and _CLOUD_LEASE.search(name):
            text = f"{holder} leads by the Lease {name}: it is another cloud controller"
            checks.append(Check(NAME, State.PROBLEM, text, f"stop {holder}, or give both the same Lease"))
    return checks


def workloads(workloads: Iterable[tuple[str, Workload]], pods: Iterable[Pod]) -> list[Check]:
    """Report other cloud-controller-managers that are deployed. `workloads`: kind and object; `pods`: only static Pods
    count."""
    named = [
        (f"{kind} {each.metadata.namespace}/{each.metadata.name}", each.spec.template.spec) for kind, each in workloads
    ]
    named += [(f"static Pod {pod.metadata.name}", pod.spec) for pod in pods if pod.is_static]
    checks = []
    for name, spec in named:
        for container in cloud_controllers(spec.containers):
            if not container.is_ours:
                text = f"{name} runs {container.image}, which looks like another cloud-controller-manager"
                to_do = "remove it when this project's controller leads: two of them write the same Nodes"
                checks.append(Check(NAME, State.WARNING, text, to_do))
    return checks

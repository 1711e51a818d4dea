# SPDX-License-Identifier: Apache-2.0
"""Kubernetes objects for tests of the commands' conclusions."""

from __future__ import annotations

import datetime

import msgspec

from ccm.cloud import Address, AddressType, Instance
from ccm.commands.outlooks.judging import Judging
from ccm.engine.objects import Node, PersistentVolume, Service
from ccm.gateway.instance_snapshot import Snapshot

NOW = datetime.datetime(2026, 11, 1, 12, 0, 0, tzinfo=datetime.UTC)
TAINT = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
SHUT_DOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def before(seconds):
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def instance(name, address="10.0.0.1", **more):
    own = (Address(AddressType.INTERNAL_IP, address),) if address else ()
    return Instance(more.pop("provider_id", f"sim://{name}"), name, addresses=own, **more)


def node(name="w1", provider_id="", *taints, ready="True", address="", age=3600, labels=(), **meta):
    addresses = [{"type": "InternalIP", "address": address}] if address else []
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": before(age), "labels": dict(labels), **meta}
    conditions = [{"type": "Ready", "status": ready, "reason": "Test"}]
    spec = {"providerID": provider_id, "taints": list(taints)}
    status = {"conditions": conditions, "addresses": addresses}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Node)


def service(name="web", type="LoadBalancer", *, addresses=(), ours=True, **spec):
    finalizers = ["service.kubernetes.io/load-balancer-cleanup"] if ours else []
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "finalizers": finalizers}
    meta |= {key: spec.pop(key) for key in ("annotations", "deletionTimestamp", "creationTimestamp") if key in spec}
    status = {"loadBalancer": {"ingress": [{"ip": each, "ipMode": "VIP"} for each in addresses]}}
    body = {"metadata": meta, "spec": {"type": type, "ports": [{"port": 80}], **spec}, "status": status}
    return msgspec.convert(body, Service)


def volume(handle="v-1", *, labels=(), annotations=(), driver="sim.ccm.outoftree.dev"):
    meta = {"name": "pv", "uid": "uid-pv", "labels": dict(labels), "annotations": dict(annotations)}
    spec = {"csi": {"driver": driver, "volumeHandle": handle}} if handle else {}
    return msgspec.convert({"metadata": meta, "spec": spec}, PersistentVolume)


def judging(nodes, instances, singles=(), **snapshot):
    listing = Snapshot.of(instances, 0.0, 1, **snapshot)
    return Judging(nodes, listing, lambda text: text.startswith("sim://"), dict(singles))

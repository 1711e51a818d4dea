# SPDX-License-Identifier: Apache-2.0
"""Tables of k8s.io/cloud-provider. Its other tests are the behaviours of docs/reference/parity.md."""

from __future__ import annotations

from typing import Any

from ccm.cloud import Address, AddressType
from ccm.controllers.nodes import node_rules
from ccm.controllers.nodes.vouching_rules import Vouched
from ccm.controllers.services import backend_rules, service_rules
from ccm.engine.objects import (
    IngressEntry,
    IngressPortStatus,
    Node,
    NodeSpec,
    ObjectMeta,
    Service,
    ServiceSpec,
    Taint,
)

from ..suite import ERROR, Row, Suite, outcome

SUITE = Suite("framework", "controllers/service")


def judge(node: Node) -> Vouched | None:
    """Judge a Node for a cloud that vouches for every Node with a providerID."""
    return Vouched((Address(AddressType.INTERNAL_IP, node.spec.provider_id),)) if node.spec.provider_id else None


def _node(row: Row, field: str) -> Node:
    """Return the Node of the peer's makeNode with its tweaks. Tweaks of conditions are ignored: our backends do not
    depend on conditions."""
    labels, taints, provider_id, deleted = {}, [], "providerID", None
    for name, arguments in row.calls(field):
        if name == "tweakSetLabel":
            labels[arguments[0]] = arguments[1]
        elif name == "tweakAddTaint":
            taints.append(Taint(key=arguments[0], effect="NoSchedule"))
        elif name == "tweakProviderID":
            provider_id = arguments[0]
        elif name == "tweakDeleted":
            deleted = "2026-01-01T00:00:00Z"
        elif name not in ("tweakSetReady", "tweakUnsetCondition", "tweakSetCondition"):
            raise LookupError(f"the peer has a new helper: {name}")
    meta = ObjectMeta(name="node", labels=labels, deletion_timestamp=deleted)
    return Node(metadata=meta, spec=NodeSpec(provider_id=provider_id, taints=taints))


def _should_sync(row: Row) -> tuple[Any, Any]:
    old, new = _node(row, "oldNode"), _node(row, "newNode")
    return row["shouldSync"], not backend_rules.serves_alike(old, new, judge)


SUITE.table("controller_test.go::Test_shouldSyncUpdatedNode_individualPredicates", rows=21, variable="testcases")(
    _should_sync
)
SUITE.table("controller_test.go::Test_shouldSyncUpdatedNode_compoundedPredicates", rows=27, variable="testcases")(
    _should_sync
)


@SUITE.table("controller_test.go::TestNeedsCleanup", rows=4, variable="testCases")
def cleanup(row: Row) -> tuple[Any, Any]:
    meta = row["svc"].at("ObjectMeta", default={})
    service = Service(
        metadata=ObjectMeta(
            finalizers=meta.get("Finalizers") or [],
            deletion_timestamp="2026-01-01T00:00:00Z" if "DeletionTimestamp" in meta else None,
        ),
        spec=ServiceSpec(type=row["svc"].at("Spec", "Type", default="")),
    )
    return row["expectNeedsCleanup"], service_rules.needs_cleanup(service)


def _entries(status: Row) -> list[IngressEntry]:
    return [
        IngressEntry(
            ip=entry["IP"],
            ip_mode=entry.get("IPMode"),
            ports=[
                IngressPortStatus(port=port["Port"], protocol=port["Protocol"]) for port in entry.get("Ports") or ()
            ],
        )
        for entry in status.get("Ingress") or ()
    ]


@SUITE.table("service/helpers/helper_test.go::TestLoadBalancerStatusEqual", rows=10)
def same_status(row: Row) -> tuple[Any, Any]:
    wire = [service_rules._entry_wire(entry) for entry in _entries(row["r"])]
    return row["want"], service_rules.same_ingress(_entries(row["l"]), wire)


@SUITE.table("node/helpers/address_test.go::TestGetNodeAddressesFromNodeIP", rows=14, variable="cases")
def provided_node_ip(row: Row) -> tuple[Any, Any]:
    node = Node(metadata=ObjectMeta(name="n", annotations={node_rules.PROVIDED_NODE_IP: row["nodeIP"]}))
    cloud = [Address(AddressType(entry["Type"]), entry["Address"]) for entry in row["nodeAddresses"]]
    ours = outcome(lambda: node_rules.node_addresses(node, cloud), node_rules.NodeRuleError)
    if row["shouldError"]:
        return ERROR, ours
    expected = [(entry["Type"], entry["Address"]) for entry in row["expectedAddresses"]]
    return expected, ours if ours == ERROR else [(entry.type, entry.address) for entry in ours]


def _taints(rows: Any) -> list[Taint]:
    return [Taint(key=row["Key"], value=row.get("Value", ""), effect=row["Effect"]) for row in rows or ()]


@SUITE.table("node/helpers/taints_test.go::TestDeleteTaint", rows=4, variable="cases")
def without_taint(row: Row) -> tuple[Any, Any]:
    taint = row["taintToDelete"]
    left = node_rules.taints_without(_taints(row["taints"]), taint["Key"], taint["Effect"]) or []
    return [node_rules.taint_wire(entry) for entry in _taints(row["expectedTaints"])], left


@SUITE.table("node/helpers/taints_test.go::TestTaintExists", rows=3, variable="cases")
def taint_exists(row: Row) -> tuple[Any, Any]:
    """The peer's test declares these two taints above its table."""
    present = [Taint(key="foo_1", effect="NoExecute"), Taint(key="foo_2", effect="NoSchedule")]
    taint = row["taintToFind"]
    return row["expectedResult"], node_rules.has_taint(present, taint["Key"], taint["Effect"])

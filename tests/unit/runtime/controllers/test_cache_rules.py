# SPDX-License-Identifier: Apache-2.0
"""What the caches keep of Nodes and Services: what controllers need, and so little of the largest objects that
thousands of them fit.
"""

import json

import msgspec
import pytest
from msgspec.structs import replace

from ccm.base import shared_texts
from ccm.controllers.nodes import node_rules
from ccm.controllers.services.service_rules import FINALIZER, ServiceRuleError, load_balancer_spec, needs_cleanup
from ccm.controllers.shared import limits
from ccm.controllers.shared.cache_rules import kept_node, kept_service
from ccm.engine.objects import Node, NodeSpec, Service, decoder
from ccm.engine.protobuf.as_read import AsRead

from ..hostile import LARGEST_NODES, LARGEST_SERVICES, load_balancer, node

REGION = "failure-domain.beta.kubernetes.io/region"

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")


def size(obj):
    """Return the number of Python objects in a decoded document, which determines its memory."""
    if isinstance(obj, dict):
        return 1 + sum(map(size, obj.values()))
    return 1 + sum(map(size, obj)) if isinstance(obj, list) else 1


def service(**fields):
    return msgspec.convert(load_balancer(**fields), Service)


def test_ordinary_objects_are_kept_as_they_are():
    ordinary = service(loadBalancerSourceRanges=["10.0.0.0/8"] * limits.SOURCE_RANGES)
    assert kept_service(ordinary) is ordinary
    plain = msgspec.convert(node(addresses=[{"type": "InternalIP", "address": "10.0.0.1"}]), Node)
    assert kept_node(plain) == plain


def test_of_a_nodes_conditions_only_those_that_controllers_read_are_kept():
    given = [{"type": kind, "status": "True"} for kind in ("Ready", "DiskPressure", "NetworkUnavailable", "MyOwn")]
    kept = kept_node(msgspec.convert(node(conditions=given), Node))
    assert {each.type for each in kept.status.conditions} == {"Ready", "NetworkUnavailable"}


def test_texts_that_nodes_have_in_common_are_one_object():
    def decoded(zone):
        labels = {"topology.kubernetes.io/zone": zone, REGION: "north"}
        made = node(conditions=[{"type": "Ready", "status": "True", "message": "kubelet is ready"}])
        return kept_node(decoder(Node).decode(json.dumps(made | {"metadata": {"labels": labels}})))

    one, other = decoded("north-a"), decoded("north-b")
    assert [id(key) for key in one.metadata.labels] == [id(key) for key in other.metadata.labels]
    assert [id(value) for value in one.metadata.labels.values()][1] == id(other.metadata.labels[REGION])
    assert one.status.conditions[0].message is other.status.conditions[0].message


def test_texts_of_nodes_that_are_gone_do_not_stay_for_ever():
    for number in range(2 * shared_texts.MOST):
        kept_node(msgspec.convert({"metadata": {"labels": {"unique": f"text {number}"}}}, Node))
    assert len(shared_texts._texts) <= shared_texts.MOST + 2


def test_a_long_text_goes_with_its_node():
    longest, longer = "a" * shared_texts.LONGEST, "b" * (shared_texts.LONGEST + 1)
    kept_node(msgspec.convert({"metadata": {"annotations": {"one": longest, "other": longer}}}, Node))
    assert longest in shared_texts._texts and longer not in shared_texts._texts


def test_a_system_uuid_that_is_none_is_dropped():
    def with_uuid(text):
        return msgspec.convert({"status": {"nodeInfo": {"systemUUID": text}}}, Node)

    longest = with_uuid("a" * limits.SYSTEM_UUID)
    assert kept_node(longest) == longest
    assert kept_node(with_uuid("a" * (limits.SYSTEM_UUID + 1))).status.node_info.system_uuid == ""


@pytest.mark.parametrize("as_read", [None, AsRead(b"x")])
def test_only_a_node_without_a_provider_id_keeps_its_system_uuid(as_read):
    waiting = replace(msgspec.convert({"status": {"nodeInfo": {"systemUUID": "a-uuid"}}}, Node), as_read=as_read)
    assert kept_node(waiting).status.node_info.system_uuid == "a-uuid"
    known = replace(waiting, spec=NodeSpec(provider_id="sim://a"))
    assert kept_node(known).status.node_info.system_uuid == ""


#: Field -> a function that builds a value with n entries, the maximum of entries, and how many entries of a longer
#: value are kept.
SERVICE_FIELDS = {
    "ports": (lambda n: [{"port": i + 1} for i in range(n)], limits.PORTS, limits.PORTS + 1),
    "loadBalancerSourceRanges": (lambda n: ["10.0.0.0/8"] * n, limits.SOURCE_RANGES, limits.SOURCE_RANGES + 1),
    "externalIPs": (lambda n: ["192.0.2.1"] * n, limits.EXTERNAL_IPS, limits.EXTERNAL_IPS),
}
NODE_FIELDS = {
    "taints": (lambda n: [{"key": f"t{i}", "effect": "NoSchedule"} for i in range(n)], limits.NODE_TAINTS, 501),
    "podCIDRs": (lambda n: [f"10.0.{i}.0/24" for i in range(n)], limits.NODE_POD_CIDRS, limits.NODE_POD_CIDRS),
    "addresses": (
        lambda n: [{"type": "InternalIP", "address": f"10.0.0.{i}"} for i in range(n)],
        limits.NODE_ADDRESSES,
        limits.NODE_ADDRESSES,
    ),
}


@pytest.mark.parametrize("field", SERVICE_FIELDS)
def test_a_service_at_the_limit_is_kept_whole_and_one_above_it_is_cut(field):
    make, most, kept = SERVICE_FIELDS[field]
    at_limit, above = service(**{field: make(most)}), service(**{field: make(most + 9)})
    assert kept_service(at_limit) is at_limit
    assert len(msgspec.to_builtins(kept_service(above))["spec"][field]) == kept
    one_more = service(**{field: make(most + 1)})
    assert kept_service(one_more) is not one_more


@pytest.mark.parametrize("field", NODE_FIELDS)
def test_a_node_at_the_limit_is_kept_whole_and_one_above_it_is_cut(field):
    make, most, kept = NODE_FIELDS[field]
    at_limit, above = (msgspec.convert(node(**{field: make(n)}), Node) for n in (most, most + 9))
    assert kept_node(at_limit) == at_limit
    cut = msgspec.to_builtins(kept_node(above))
    assert len({**cut["spec"], **cut["status"]}.get(field, ())) == kept


@pytest.mark.parametrize("field", [*NODE_FIELDS, "conditions", "nodeInfo"])
def test_of_a_node_in_protobuf_the_same_is_kept(field):
    make, most, _ = NODE_FIELDS.get(field, (lambda n: [{"type": "Ready", "status": str(i)} for i in range(n)], 2, 1))
    for count in (1, most, most + 9):
        value = {"systemUUID": "a" * (limits.SYSTEM_UUID + count - 2)} if field == "nodeInfo" else make(count)
        plain = msgspec.convert(node(**{field: value}), Node)
        assert kept_node(replace(plain, as_read=AsRead(b"x"))) == kept_node(plain)


@pytest.mark.parametrize("name", ["distinct-ranges", "same-range", "ports", "external-ips"])
def test_a_large_service_shrinks(name):
    kept = msgspec.to_builtins(kept_service(msgspec.convert(LARGEST_SERVICES[name], Service)))
    assert size(kept) < 3000


@pytest.mark.parametrize("name", ["internal-ips", "conditions", "ready-many-times", "pod-cidrs", "taints"])
def test_a_large_node_shrinks(name):
    kept = msgspec.to_builtins(kept_node(msgspec.convert(LARGEST_NODES[name], Node)))
    assert size(kept) < 3000


@pytest.mark.parametrize("name", ["distinct-ranges", "ports"])
def test_the_rules_see_the_excess(name):
    with pytest.raises(ServiceRuleError, match="more than"):
        load_balancer_spec(kept_service(msgspec.convert(LARGEST_SERVICES[name], Service)), "c")


def test_of_a_service_that_wants_no_load_balancer_only_its_identity_is_kept():
    kept = kept_service(service(type="ClusterIP", annotations={"a": "b"}, finalizers=["x/y"], labels={"l": "m"}))
    assert kept.spec.type == "ClusterIP"
    assert (kept.metadata.annotations, kept.metadata.finalizers, kept.spec.ports) == ({}, [], [])


def test_one_that_still_has_a_load_balancer_is_kept_whole():
    leaving = service(type="ClusterIP", annotations={"a": "b"}, finalizers=["x/y", FINALIZER])
    assert kept_service(leaving) is leaving and needs_cleanup(leaving)


def test_the_first_ready_condition_counts():
    conditions = [{"type": f"c{n}", "status": "True"} for n in range(50)]
    conditions += [{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}]
    kept = kept_node(msgspec.convert(node(conditions=conditions), Node))
    assert node_rules.is_ready(kept) and len(kept.status.conditions) == 1


def test_too_many_taints_are_never_written_in_part():
    """The cache keeps only some of the taints, so a patch that is made from them would remove the others."""
    tainted = kept_node(msgspec.convert(LARGEST_NODES["taints"], Node))
    assert "more than 500 taints" in node_rules.too_many_taints(tainted)
    assert not node_rules.too_many_taints(msgspec.convert(LARGEST_NODES["hostnames"], Node))

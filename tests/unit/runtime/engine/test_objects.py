# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from ccm.engine.objects import (
    Lease,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    Taint,
    decoder,
    list_decoder,
    object_key,
    parse_time,
    split_key,
)

NODE = {
    "kind": "Node",
    "metadata": {
        "name": "n1",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "labels": {"a": "b"},
        "managedFields": [{"manager": "x"}],
    },
    "spec": {
        "providerID": "sim://r/i",
        "podCIDR": "10.244.1.0/24",
        "podCIDRs": ["10.244.1.0/24"],
        "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-01T00:00:00Z"}],
        "unschedulable": True,
    },
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}],
        "images": [{"names": ["x"], "sizeBytes": 3}],
    },
}
SERVICE = {
    "metadata": {"name": "web", "namespace": "shop", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
    "spec": {
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.9",
        "loadBalancerIP": "192.0.2.1",
        "loadBalancerClass": "x/y",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalIPs": ["192.0.2.9"],
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30000,
        "ipFamilies": ["IPv4"],
        "allocateLoadBalancerNodePorts": False,
        "ports": [
            {"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080, "appProtocol": "http"},
            {"port": 53, "protocol": "UDP", "targetPort": 5353},
        ],
    },
    "status": {
        "loadBalancer": {
            "ingress": [
                {"ip": "192.0.2.1", "ipMode": "Proxy", "ports": [{"port": 80, "protocol": "TCP", "error": "Full"}]}
            ]
        }
    },
}


def test_a_node_keeps_what_controllers_read_and_drops_the_rest():
    node = decoder(Node).decode(json.dumps(NODE))
    assert node.metadata.resource_version == "7" and node.metadata.labels == {"a": "b"}
    assert node.spec.provider_id == "sim://r/i"
    assert (node.spec.pod_cidr, node.spec.pod_cidrs) == ("10.244.1.0/24", ["10.244.1.0/24"])
    assert node.spec.taints == [Taint("k", "", "NoSchedule", "2026-11-01T00:00:00Z")]
    assert node.spec.unschedulable
    assert node.status.addresses == [NodeAddress("InternalIP", "10.0.0.1")]
    assert node.status.conditions[0].reason == "KubeletReady"


def test_a_service_under_the_api_spelling():
    service = decoder(Service).decode(json.dumps(SERVICE))
    spec = service.spec
    assert (spec.cluster_ip, spec.load_balancer_ip, spec.external_ips) == ("10.96.0.9", "192.0.2.1", ["192.0.2.9"])
    assert (spec.load_balancer_class, spec.load_balancer_source_ranges) == ("x/y", ["10.0.0.0/8"])
    assert spec.session_affinity_config == {"clientIP": {"timeoutSeconds": 10}}
    assert (spec.external_traffic_policy, spec.health_check_node_port) == ("Local", 30000)
    assert spec.allocate_load_balancer_node_ports is False
    assert [port.target_port for port in spec.ports] == ["web", 5353]
    assert [port.protocol for port in spec.ports] == ["TCP", "UDP"]
    ingress = service.status.load_balancer.ingress[0]
    assert (ingress.ip, ingress.ip_mode, ingress.ports[0].error) == ("192.0.2.1", "Proxy", "Full")


@pytest.mark.parametrize("kind", [Node, Service, Lease])
def test_an_object_of_nothing_has_defaults(kind):
    assert decoder(kind).decode(b"{}") == kind()


def test_defaults_are_not_shared():
    one, other = ObjectMeta(), ObjectMeta()
    one.labels["a"] = "b"
    assert other.labels == {} and Node(metadata=ObjectMeta()).metadata.labels == {}


def test_a_list_that_is_null_is_empty():
    page = list_decoder(Node).decode(b'{"metadata": {"resourceVersion": "5", "continue": "t"}, "items": null}')
    assert (page.metadata.resource_version, page.metadata.continue_, page.items) == ("5", "t", None)


@pytest.mark.parametrize(("meta", "key"), [(ObjectMeta(name="n"), "n"), (ObjectMeta(name="n", namespace="s"), "s/n")])
def test_keys(meta, key):
    assert object_key(Node(metadata=meta)) == key
    assert split_key(key) == (meta.namespace, meta.name)


@pytest.mark.parametrize("text", ["2026-11-01T00:00:00Z", "2026-11-01T00:00:00.000000Z", "2026-11-01T02:00:00+02:00"])
def test_times_are_aware(text):
    assert parse_time(text).timestamp() == 1793491200.0

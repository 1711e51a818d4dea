# SPDX-License-Identifier: Apache-2.0
"""Any input from users who create Services, and from kubelets, goes through the provider's decisions.

Each decision quickly returns an answer or raises the contract's error, and no request refers to a resource that the
Service may not use. FUZZ_EXAMPLES makes the tests search longer (`fuzzing.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import string
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccm.cloud import Address, AddressType, Backend, CloudError, Ingress, LoadBalancerSpec, Port, Route
from ccm.cloud.toolkit import annotation_reader
from ccm.controllers.services import service_rules
from ccm.engine.objects import Service
from ccm.providers.openstack import annotations, instance_rules, routes
from ccm.providers.openstack.annotations import PREFIX, TABLE
from ccm.providers.openstack.load_balancers import (
    feature_rules,
    floating_ips,
    listener_rules,
    load_balancer_owners,
    permissions,
    security_groups,
    sharing_rules,
)
from ccm.providers.openstack.load_balancers import load_balancer_rules as rules
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.openstack.settings_sections import LoadBalancerClass, LoadBalancerSection

from ... import loop_watch
from ...fuzzing import bounded
from .octavia_in_memory import FakeOpenStack, the

NASTY = st.sampled_from(
    [
        *(
            "",
            " ",
            "null",
            "²",
            "٣",
            "-1",
            "+5",
            "1e999",
            "NaN",
            "0x10",
            "a\nb",
            "a\x00b",
            "\ud800",
            "\u202e",
            "..",
            "/",
        ),
        *("~", "*", "!", "!~", "~(", "~(a*)*" * 20, "*a" * 100, "[" * 200, "&", ",", "," * 5000, "=" * 300, "a=b=c"),
        *("0.0.0.0/0", "::/0", "fe80::1%eth0", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.0/33", "2001:DB8::1"),
        *("true", "false", "v2", "fast", "9" * 400, "9" * 5000, "é" * 300, "a" * 200_000, "x" * 2048),
        *("../../x", "x?y=z", "x#y", "https://k/v1/secrets/1", "https://u:p@k/1", "file:///etc/passwd", "a.b.c", "A.B"),
        *("ccm:v1:prod:u-1:n:f:f:shop", "kube_service_prod_shop_web", "u) from cluster prod (u-1)"),
        *(the("victim"), the("others"), the("victim").upper(), the("victim").replace("-", "")),
    ]
)
TEXT = NASTY | st.text(max_size=40)
KEYS = st.sampled_from([each.key for each in TABLE]) | TEXT.map(lambda text: PREFIX + text[:50]) | TEXT
SAID = st.dictionaries(KEYS, TEXT, max_size=8)
NAMES = st.sampled_from(["web", "shop", "a", "x" * 63]) | st.text(string.ascii_lowercase + "-", min_size=1, max_size=63)
ADDRESSES = st.sampled_from(
    ["10.0.0.1", "10.0.0.66", "203.0.113.200", "fd00::1", "0.0.0.0", "::"]
) | st.ip_addresses().map(str)
RANGES = (
    st.sampled_from(["0.0.0.0/0", "10.0.0.0/8", "::/0", "2001:db8::/32", "10.0.0.1/32", "junk", "", "1.2.3.4"]) | TEXT
)
PORTS = st.lists(
    st.builds(
        Port, name=NAMES, protocol=st.sampled_from(["TCP", "UDP", "SCTP"]), port=st.integers(1, 65535),
        node_port=st.integers(0, 65535),
    ),
    max_size=4, unique_by=lambda port: (port.port, port.protocol),
).map(tuple)  # fmt: skip
SPECS = st.builds(
    LoadBalancerSpec,
    cluster=st.sampled_from(["prod", "prod_shop", "c" * 200, "a:b"]),
    uid=st.sampled_from(["u-2", "u-3"]),
    namespace=NAMES,
    name=NAMES,
    ports=PORTS,
    annotations=SAID,
    ip_families=st.sampled_from([("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ()]),
    source_ranges=st.lists(st.sampled_from(["10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32"]), max_size=3).map(
        tuple
    ),
    load_balancer_ip=TEXT | ADDRESSES,
    session_affinity=st.sampled_from(["None", "ClientIP"]),
    external_traffic_policy=st.sampled_from(["Cluster", "Local"]),
    health_check_node_port=st.integers(0, 65535),
    ingress=st.lists(st.builds(Ingress, ip=ADDRESSES | st.just("")), max_size=2).map(tuple),
)
PROVIDER_IDS = TEXT | st.sampled_from(
    [f"openstack:///{the('server-1')}", f"openstack://x/{the('server-1')}", the("server-1")]
)
BACKENDS = st.lists(
    st.builds(
        Backend,
        node_name=NAMES,
        provider_id=PROVIDER_IDS,
        addresses=st.lists(st.builds(Address, type=st.sampled_from(AddressType), address=ADDRESSES), max_size=3).map(
            tuple
        ),
        labels=st.dictionaries(TEXT, TEXT, max_size=2),
    ),
    max_size=3,
).map(tuple)
SECTIONS = st.builds(
    LoadBalancerSection,
    subnet_id=st.just(the("sub-nodes")),
    floating_network_id=st.just(the("net-public")),
    allowed_annotations=st.sampled_from([("default",), ("*",), (), ("hostname", "load-balancer-id")]),
    sharing=st.sampled_from(["never", "namespace", "cluster", "project"]),
    internal_lb=st.booleans(),
    manage_security_groups=st.booleans(),
    lb_provider=st.sampled_from(["amphora", "ovn"]),
)
CLASSES = {"fast": LoadBalancerClass(subnet_id=the("sub-fast"))}


def attacking(keys: dict[str, str] | None = None, namespace: str = "evil", **more: Any) -> LoadBalancerSpec:
    own = {f"{PREFIX}{key}": value for key, value in (keys or {}).items()}
    return LoadBalancerSpec("prod", "u-2", namespace, "web", (Port("", "TCP", 80, 30080),), own, **more)


def quick(decide: Callable[[], Any]) -> Any:
    """Return what `decide` returns, None if `decide` raises the contract's error. Fails if `decide` takes too long."""
    found = loop_watch.quick(decide, CloudError)
    return None if isinstance(found, CloudError) else found


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@bounded(60)
@given(texts=SAID, section=SECTIONS)
@example(texts={f"{PREFIX}load-balancer-id": "a" * 200_000}, section=LoadBalancerSection())
def test_annotations(texts: dict[str, str], section: LoadBalancerSection) -> None:
    read = quick(lambda: annotations.Annotations(texts))
    assert all(len(problem) < 1000 for problem in read.problems)
    assert len(quick(lambda: annotations.unknown(texts))) <= annotation_reader.NAMED
    effective = quick(lambda: permissions.effective(texts, section))
    assert quick(lambda: permissions.denied(effective, section)) is not None
    assert len(quick(lambda: permissions.warning(texts, section, "x"))) < 2000
    named = quick(lambda: permissions.named(texts, section))
    assert named == "" or annotations.UUID.fullmatch(named)


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@bounded(60)
@given(spec=SPECS, section=SECTIONS, backends=BACKENDS)
def test_desired_state_and_requests(spec: LoadBalancerSpec, section: LoadBalancerSection, backends: Any) -> None:
    assert isinstance(quick(lambda: rules.fingerprint(spec, section, CLASSES)), str)
    want = quick(lambda: rules.desired_load_balancer(spec, section, CLASSES))
    if want is None:
        return
    for features in (feature_rules.Features(), feature_rules.Features.of((2, 5), "ovn")):
        quick(lambda features=features: feature_rules.refused(want, features))
        quick(lambda features=features: feature_rules.left_out(spec, want, features, section, CLASSES))
        made = quick(lambda features=features: listener_rules.listeners(want, backends, "", features))
        mark = load_balancer_owners.Mark.of(spec, "f")
        body = listener_rules.create_body(want, made, mark, "", want.vip_address, features)
        assert json.dumps(body)
        assert load_balancer_owners.Mark.parse(str(mark)) == mark and len(str(mark)) <= load_balancer_owners.LONGEST
        assert body["vip_address"] == str(ipaddress.ip_address(want.vip_address)) if "vip_address" in body else True
    quick(lambda: listener_rules.served_at(want, backends, ""))
    quick(lambda: feature_rules.kept(want, {"id": "x"}, feature_rules.Features()))
    quick(lambda: rules.ingress(want, "10.0.0.1"))


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@bounded(60)
@given(spec=SPECS, section=SECTIONS, texts=st.lists(TEXT, min_size=4, max_size=4))
def test_floating_ips_and_owners(spec: LoadBalancerSpec, section: LoadBalancerSection, texts: list[str]) -> None:
    row = {
        "id": the("victim"),
        "name": texts[0],
        "tags": texts,
        "description": texts[1],
        "floating_ip_address": "1.2.3.4",
    }
    subnets = [{"id": "s", "name": text, "tags": texts, "cidr": "203.0.113.0/24"} for text in texts]
    want = quick(lambda: rules.desired_load_balancer(spec, section, CLASSES))
    if want is not None and want.floating is not None:
        quick(lambda: floating_ips.candidates(want.floating, subnets))
        quick(lambda: floating_ips.unlike(want.floating, subnets[0]))
        quick(lambda: floating_ips.refusal(want.floating, row))
        quick(lambda: floating_ips.made_for(row, want.floating_description))
    quick(lambda: floating_ips.made_for_balancer(row, spec.uid, texts[2], owner=True, address=spec.load_balancer_ip))
    for delete in (False, True):
        named = permissions.named(spec.annotations, section)
        quick(
            lambda delete=delete, named=named: sharing_rules.choose(
                {row["id"]: row}, spec, section.sharing, named, to_delete=delete
            )
        )
    quick(lambda: sharing_rules.proves(spec, ["10.0.0.1"], section.sharing))


@bounded(60)
@given(ranges=st.lists(RANGES, max_size=5), text=TEXT)
def test_source_ranges(ranges: list[str], text: str) -> None:
    body = {
        "metadata": {"annotations": {service_rules.SOURCE_RANGES_ANNOTATION: text}},
        "spec": {"loadBalancerSourceRanges": ranges},
    }
    service = msgspec.convert(body, Service)
    with contextlib.suppress(service_rules.ServiceRuleError):
        assert all(str(ipaddress.ip_network(each)) == each for each in service_rules.source_ranges(service))


@pytest.mark.threat("kubelet-no-rules-on-others-ports")
@bounded(60)
@given(backends=BACKENDS, group=st.booleans())
def test_no_port_but_a_nodes_own_gets_a_group(backends: tuple[Backend, ...], group: bool) -> None:
    spec = LoadBalancerSpec("prod", "u", "shop", "web", (Port("", "TCP", 80, 30080),))
    want = rules.desired_load_balancer(spec, LoadBalancerSection(), {})
    members = listener_rules.served_at(want, backends, "")
    devices = (the("server-1"), the("database"), "", "None", "trunk")
    ports = [
        {
            "id": f"{device}-{address}",
            "device_id": device,
            "fixed_ips": [{"ip_address": address, "subnet_id": "s"}],
            "security_groups": ["g"] if group else [],
        }
        for device in devices
        for address in ("10.0.0.1", "10.0.0.66", "203.0.113.200")
    ]
    on, off = quick(lambda: security_groups.port_changes(ports, "g", members, "s", {}))
    nodes = {instance_rules.server_id(each.provider_id, "") for each in backends} - {None}
    kept = [port for port in ports if port in on or (group and port not in off)]
    assert all(port["device_id"] in nodes for port in kept)


@pytest.mark.threat("kubelet-routes-inside-cluster-cidr")
@bounded(60)
@given(destination=TEXT | st.ip_addresses(v=4).flatmap(lambda each: st.integers(0, 32).map(lambda n: f"{each}/{n}")))
def test_destinations_of_routes(destination: str) -> None:
    router = {"id": "r", "network_id": "n", "fixed_ips": [{"ip_address": "10.0.0.254", "subnet_id": "s"}]}
    port = {"id": "p", "network_id": "n", "fixed_ips": [{"ip_address": "10.0.0.1", "subnet_id": "s"}]}

    def decide() -> bool:
        routes.next_hop(Route(destination, "x"), [port], {"n"})
        routes.check_destination(destination, [router, port], ["10.0.0.0/24"])
        return True

    if quick(decide):
        network = ipaddress.ip_network(destination)
        assert network.prefixlen and not network.overlaps(ipaddress.ip_network("10.0.0.0/24"))


@pytest.mark.threat("tenant-own-load-balancers-only")
@bounded(60)
@given(spec=SPECS, backends=BACKENDS, sharing=st.sampled_from(["never", "namespace", "cluster"]))
@example(spec=attacking(load_balancer_ip="203.0.113.200"), backends=(), sharing="cluster")
@example(spec=attacking(keys={"load-balancer-id": the("victim")}), backends=(), sharing="cluster")
@example(spec=attacking(keys={"load-balancer-address": "10.0.1.9"}, namespace="shop"), backends=(), sharing="cluster")
@example(spec=attacking(keys={"subnet-id": the("others")}), backends=(), sharing="cluster")
@example(spec=attacking(keys={"floating-subnet-id": the("others")}), backends=(), sharing="cluster")
@example(spec=attacking(), backends=(), sharing="never")
def test_nothing_that_goes_out_names_what_is_not_allowed(spec: LoadBalancerSpec, backends: Any, sharing: str) -> None:
    """With the default `allowed-annotations`, a load balancer's whole life leaves others' resources unchanged."""

    async def run() -> None:
        fake = Recording(
            LoadBalancerSection(subnet_id=the("sub-nodes"), floating_network_id=the("net-public"), sharing=sharing)
        )
        fake.balancers[the("victim")] = {
            "id": the("victim"), "name": "kube_service_prod_shop_web", "provisioning_status": "ACTIVE",
            "vip_address": "10.0.1.9", "vip_port_id": the("vip"), "vip_subnet_id": "s", "listeners": [], "pools": [],
            "tags": ["kube_service_prod_shop_web", "ccm:v1:staging:u-1:0123456789abcdef:f:f:shop"],
        }  # fmt: skip
        description = "Floating IP for Kubernetes external service shop/web from cluster staging (u-1)"
        fake.floating["r"] = {
            "id": "r", "floating_ip_address": "203.0.113.200", "port_id": None, "description": "of the VPN",
        }  # fmt: skip
        fake.floating["v"] = {
            "id": "v", "floating_ip_address": "203.0.113.9", "port_id": the("vip"), "description": description,
        }  # fmt: skip
        before = json.dumps([fake.balancers[the("victim")], fake.floating], sort_keys=True)
        balancers = OctaviaLoadBalancers(fake)  # type: ignore[arg-type]
        for call in (balancers.ensure, balancers.update_backends, balancers.ensure):
            for _ in range(3):
                with contextlib.suppress(CloudError):
                    await call(spec, backends)
        for _ in range(6):
            with contextlib.suppress(CloudError):
                await balancers.delete(spec)
        assert json.dumps([fake.balancers[the("victim")], fake.floating], sort_keys=True) == before
        written = json.dumps(fake.written)
        for other in (the("others"), the("victim"), "203.0.113.200", "passwd"):
            assert other not in written, other

    asyncio.run(run())


class Recording(FakeOpenStack):
    """An OpenStack that records every changing request in `written`."""

    def __init__(self, section: LoadBalancerSection) -> None:
        super().__init__(section)
        self.written: list[Any] = []

    async def call(self, method: str, service: str, path: str, **more: Any) -> Any:
        assert all(part.isprintable() and part not in ("..", ".") for part in path.split("/")) and len(path) < 200
        if method != "GET":
            self.written.append([method, path, more.get("body")])
        return await super().call(method, service, path, **more)

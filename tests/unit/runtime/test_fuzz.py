# SPDX-License-Identifier: Apache-2.0
"""Parsers and rules, fed with junk: each returns an answer or raises the error that its callers expect.

FUZZ_EXAMPLES makes it search longer (`fuzzing.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import string
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ccm.base import durations
from ccm.cloud import Address as CloudAddress
from ccm.cloud import AddressType, ConfigError, Instance, ProviderConfig
from ccm.controllers.nodes import node_rules, vouching_rules
from ccm.controllers.routes import route_rules
from ccm.controllers.services import backend_rules, service_rules
from ccm.controllers.services.class_rules import UNDECLARED
from ccm.controllers.shared import pod_network_rules
from ccm.controllers.shared.rule_error import RuleError
from ccm.engine.api_credentials import Access, ExecPlugin
from ccm.engine.api_errors import ApiError, KubeConfigError, UnavailableError, from_response
from ccm.engine.encodings import split_lines
from ccm.engine.informer import Informer
from ccm.engine.kubeconfig import from_kubeconfig
from ccm.engine.objects import UNREADABLE, Lease, Node, Service, WatchEvent, decoder, identity
from ccm.options import leader_migration
from ccm.options.command_line import Options, OptionsError, parse
from ccm.providers.sim.settings import Settings
from ccm_simcloud import config as sim_config
from ccm_simcloud import model, strict
from ccm_simcloud.faults import Rule

from .fuzzing import bounded

#: Texts that have broken parsers before.
NASTY = st.sampled_from(
    [
        *(
            "",
            " ",
            "null",
            "²",
            "٣",
            "-1",
            "1e999",
            "NaN",
            "0x10",
            "a\nb",
            "a\x00b",
            "\ud800",
            "\u202e",
            "..",
            "/",
            "~",
            "*",
        ),
        *("[::1", "http://[::1", "http://a:99999", "sim://north/i-000000000001", "10.0.0.0/33", "::/0", "10.0.0.1/8"),
        *("True", "{}", "[[[[", "9" * 400, "é" * 300),
    ]
)
TEXT = NASTY | st.text(max_size=30)
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT
JUNK = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)

META = {"name": "n", "namespace": "d", "uid": "u", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}
NODE: dict[str, Any] = {
    "metadata": {**META, "labels": {"a": "b"}, "annotations": {"alpha.kubernetes.io/provided-node-ip": "10.0.0.1"}},
    "spec": {
        "providerID": "sim://north/i-000000000001",
        "podCIDR": "10.244.1.0/24",
        "podCIDRs": ["10.244.1.0/24"],
        "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}],
    },
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    },
}
SERVICE: dict[str, Any] = {
    "metadata": {**META, "annotations": {"service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/8"}},
    "spec": {
        "type": "LoadBalancer",
        "ports": [{"name": "a", "protocol": "TCP", "port": 80, "targetPort": "web", "nodePort": 30000}],
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "ipFamilies": ["IPv4"],
    },
    "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ports": [{"port": 80, "error": "x"}]}]}},
}
LEASE: dict[str, Any] = {
    "metadata": META,
    "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
}
KUBECONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:6443", "proxy-url": "http://proxy:1"}}],
    "users": [
        {
            "name": "u",
            "user": {
                "as": "me",
                "as-groups": ["g"],
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "true",
                    "args": ["-x"],
                    "env": [{"name": "A", "value": "b"}],
                },
            },
        }
    ],
}
CLOUD_CONF = {
    "endpoint": "http://127.0.0.1:1",
    "project": "demo",
    "token": "t",
    "page_size": 10,
    "request_timeout": 1.5,
}
SIMULATOR = {
    "projects": [
        {
            "name": "demo",
            "token": "t",
            "region": "north",
            "load_balancer_addresses": "10.0.0.1-10.0.0.9",
            "instances": [{"name": "a", "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}],
            "volumes": [{"name": "v", "size_gb": 1}],
        }
    ],
    "limits": {"page_size": 10, "calls_per_second": 5},
    "timing": {"latency": 0.1},
    "faults": {"rules": [{"action": "delay", "seconds": 1, "match": {"path": "x.*"}}]},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of a document and of every value in it."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def spoilt(good: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for `good` with up to three of its parts, or all of it, replaced by junk."""

    @st.composite
    def draw_one(draw: st.DrawFn) -> Any:
        value = good
        for _ in range(draw(st.integers(1, 3))):
            path = draw(st.sampled_from(list(places(value))))
            value = changed(value, path, draw(TEXT | JUNK))
        return value

    return draw_one()


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def as_read(text: str) -> str:
    """Return the text as read from a file: UTF-8 has no lone surrogates, so they become `?`."""
    return text.encode("utf-8", "replace").decode()


# Input from the API server


@bounded(40)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_lines_do_not_depend_on_how_the_stream_was_cut(data: bytes, cuts: list[int]) -> None:
    points = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]

    async def chunks():  # type: ignore[no-untyped-def]
        for start, end in itertools.pairwise(points):
            yield data[start:end]

    async def read() -> list[bytes]:
        return [line async for line in split_lines(chunks())]

    assert asyncio.run(read()) == [line for line in data.split(b"\n")[:-1] if line]


class Nothing:
    """A client that is never called."""


EVENT = {"type": "MODIFIED", "object": NODE}


@bounded(40)
@given(
    st.lists(
        st.binary(max_size=100)
        | spoilt(EVENT).map(as_json)
        | spoilt({"type": "ERROR", "object": {"kind": "Status", "code": 410, "details": {"retryAfterSeconds": 5}}}).map(
            as_json
        ),
        max_size=8,
    )
)
@example([b'{"type":"ADDED","object":' + b"[" * 5000 + b"]" * 5000 + b"}"])
@example([b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}'])
def test_watch_lines(lines: list[bytes]) -> None:
    """Each line is understood, skipped, or ends the watch with an error that the informer knows."""
    informer: Informer[Node] = Informer(Nothing(), "/api/v1/nodes", Node, name="fuzz")  # type: ignore[arg-type]
    informer.add_handler(lambda old, new: None)
    informer._apply(decoder(WatchEvent).decode(as_json(changed(EVENT, ("object", "metadata", "name"), "known"))))
    for line in lines:
        with contextlib.suppress(ApiError, *UNREADABLE):
            informer._apply(decoder(WatchEvent).decode(line))
    assert informer.get("d/known") is not None or b"DELETED" in b"".join(lines)


@bounded(40)
@given(spoilt(NODE), spoilt(SERVICE), spoilt(LEASE))
def test_objects(node: Any, service: Any, lease: Any) -> None:
    """Every object that can be decoded can be judged: each rule answers, or says what is wrong with the object."""
    for kind, value in ((Node, node), (Service, service), (Lease, lease)):
        with contextlib.suppress(*UNREADABLE):
            judge(decoder(kind).decode(as_json(value)))
        with contextlib.suppress(*UNREADABLE):
            identity(as_json(value))


def owns(provider_id: str) -> bool:
    return provider_id.startswith("sim://")


INSTANCE = Instance(
    "sim://north/i-000000000001", "n", "t", "z", "r", (CloudAddress(AddressType.INTERNAL_IP, "10.0.0.1"),)
)


PODS = pod_network_rules.PodNetwork(pod_network_rules.parse_cluster_cidrs("10.244.0.0/16"))


def vouched(node: Node) -> vouching_rules.Verdict | None:
    return vouching_rules.judge(node, INSTANCE, [], []) if owns(node.spec.provider_id) else None


def judge(obj: Node | Service | Lease) -> None:
    rules: list[Any] = []
    if isinstance(obj, Node):
        rules = [
            lambda: node_rules.is_uninitialized(obj),
            lambda: node_rules.is_ready(obj),
            lambda: node_rules.plan_initialisation(obj, INSTANCE),
            lambda: node_rules.status_patch(obj, INSTANCE),
            lambda: node_rules.reconciled_labels(obj.metadata.labels),
            lambda: vouching_rules.judge(obj, INSTANCE, [obj], []),
            lambda: backend_rules.backends([obj], vouched),
            lambda: route_rules.plan([obj, obj], [], PODS, vouched),
            lambda: route_rules.condition_patch(obj, True, "2026-01-01T00:00:00Z"),
        ]
    elif isinstance(obj, Service):
        rules = [
            lambda: UNDECLARED.include(obj),
            lambda: service_rules.needs_cleanup(obj),
            lambda: service_rules.load_balancer_spec(obj, "kubernetes"),
            lambda: service_rules.same_ingress(obj.status.load_balancer.ingress, []),
        ]
    for rule in rules:
        with contextlib.suppress(RuleError):
            rule()


@bounded(40)
@given(
    st.integers(100, 599),
    st.sampled_from(["application/json", "text/html", "", "\x00"]),
    st.binary(max_size=50)
    | spoilt({"kind": "Status", "code": 404, "reason": "x", "details": {"retryAfterSeconds": 1}}).map(as_json),
    st.none() | TEXT,
)
@example(429, "text/plain", b"", "²")
@example(503, "application/json", b"[" * 5000, "9" * 400)
def test_answers_and_retry_after(code: int, content_type: str, body: bytes, retry_after: str | None) -> None:
    error = from_response(code, content_type, body, retry_after, "GET /x")
    assert isinstance(error, ApiError) and error.status == code
    assert error.retry_after is None or 0 <= error.retry_after < float("inf")


# Input from people


@bounded(40)
@given(spoilt(KUBECONFIG).map(lambda value: yaml.safe_dump(value)) | st.text(max_size=60) | NASTY)
@example("[" * 5000)
@example("a: &a [*a]")
def test_kubeconfig(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config")
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            access = from_kubeconfig(path)
        except KubeConfigError as error:
            assert str(path) in str(error)
            return
        assert access.server.startswith(("http://", "https://"))
        if access.exec is None:
            for name, value in asyncio.run(access.headers()):
                assert "\n" not in value and "\0" not in value, name


@bounded(40)
@given(
    spoilt(
        {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"},
        }
    ).map(as_json)
    | st.binary(max_size=50)
)
@example(
    b'{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t","expirationTimestamp":"2030-01-01T00:00:00"}}'
)
@example(b'{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":7}}')
@example(b'{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"a\\nb"}}')
@example(b"[" * 100000)
def test_exec_credentials(out: bytes) -> None:
    plugin = ExecPlugin("plugin", [], {}, "client.authentication.k8s.io/v1")

    async def answer() -> None:
        access = Access("https://127.0.0.1:1", exec=plugin)
        for _ in range(2):
            for _, value in await access.headers():
                assert isinstance(value, str) and "\n" not in value

    async def printed() -> dict[str, Any]:
        return plugin.parse(out)

    plugin._run = printed  # type: ignore[method-assign]
    with contextlib.suppress(UnavailableError):
        asyncio.run(answer())


@bounded(40)
@given(spoilt(CLOUD_CONF).map(yaml.safe_dump) | st.text(max_size=60) | NASTY)
@example("[" * 5000)
@example("endpoint: http://[::1\nproject: a\ntoken: b")
def test_cloud_conf(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert Settings.parse(ProviderConfig(as_read(text), "cloud.conf")).endpoint


@bounded(40)
@given(TEXT | st.text("0123456789.hmsunµ+-", max_size=12))
@example("9" * 400 + "h")
def test_durations(text: str) -> None:
    try:
        seconds = durations.parse(text)
    except ValueError:
        return
    assert abs(seconds) < float("inf")


FLAGS = [f"--{name.replace('_', '-')}" for name in Options.__dataclass_fields__]


@bounded(40)
@given(st.lists(st.tuples(st.sampled_from(FLAGS), TEXT).map("=".join) | TEXT, max_size=4))
@example(["--leader-elect-lease-duration=" + "9" * 400 + "h"])
@example(["--kube-api-qps=1e999"])
@example(["--node-deletion-cap=" + "9" * 5000])
def test_flags(arguments: list[str]) -> None:
    if any(argument.startswith(("-h", "--h", "--vers")) for argument in arguments):
        return
    try:
        parse(["--cloud-provider=sim", *arguments])
    except OptionsError as error:
        assert error.problems


MIGRATION = {
    "apiVersion": "controllermanager.config.k8s.io/v1",
    "kind": "LeaderMigrationConfiguration",
    "leaderName": "moving",
    "controllerLeaders": [{"name": "service-lb-controller", "component": "*"}],
}
CONFIGURATION = {
    "apiVersion": "cloudcontrollermanager.config.k8s.io/v1alpha1",
    "kind": "CloudControllerManagerConfiguration",
    "Generic": {"Controllers": ["*"], "LeaderElection": {"leaderElect": True, "leaseDuration": "15s"}},
    "KubeCloudShared": {"CloudProvider": {"Name": "sim"}, "ClusterName": "a", "NodeMonitorPeriod": "5s"},
    "NodeController": {"ConcurrentNodeSyncs": 5},
    "LeaderMigration": {"leaderName": "x"},
}


@bounded(40)
@given(spoilt(MIGRATION).map(yaml.safe_dump) | st.text(max_size=60) | NASTY)
@example("[" * 5000)
@example("a: &a [*a]")
def test_leader_migration_config(text: str) -> None:
    moved, problems = leader_migration.parse(as_read(text), "moving.yaml")
    assert problems or (moved.leader_name and leader_migration.split(["service-lb-controller"], moved))


@bounded(40)
@given(spoilt(CONFIGURATION).map(yaml.safe_dump) | st.text(max_size=60) | NASTY)
@example("[" * 5000)
@example("a: &a [*a]")
def test_configuration_file(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(as_read(text))
        try:
            parse(["--cloud-provider=sim", f"--config={path}"])
        except OptionsError as error:
            assert error.problems


# Input from clients of the simulator

BODIES: list[tuple[Any, Any]] = [
    (
        model.InstanceBody,
        {"name": "a", "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "labels": {"a": "b"}},
    ),
    (model.InstancePatch, {"name": "a", "state": "stopped"}),
    (
        model.LoadBalancerBody,
        {"name": "a", "ports": [{"port": 1, "node_port": 2}], "source_ranges": ["10.0.0.0/8"], "tags": {}},
    ),
    (model.LoadBalancerPatch, {"ports": [{"port": 1, "node_port": 2}], "health_check": {"node_port": 3}}),
    (model.TargetsBody, {"targets": [{"address": "10.0.0.1", "instance_id": "i"}]}),
    (model.RouteBody, {"destination": "10.0.0.0/24", "instance_id": "i"}),
    (model.VolumeBody, {"name": "v", "size_gb": 1}),
    (Rule, {"action": "delay", "seconds": 1, "match": {"path": "x"}}),
]


@bounded(40)
@given(st.data())
def test_bodies_of_the_simulator(data: st.DataObject) -> None:
    kind, good = data.draw(st.sampled_from(BODIES))
    value = data.draw(spoilt(good) | JUNK)
    with contextlib.suppress(strict.Invalid):
        assert isinstance(strict.convert(value, kind, ""), kind)


@bounded(40)
@given(spoilt(SIMULATOR).map(yaml.safe_dump) | st.text(max_size=60) | NASTY)
@example("[" * 5000)
def test_configuration_of_the_simulator(text: str) -> None:
    with contextlib.suppress(strict.Invalid):
        sim_config.parse(as_read(text))


@pytest.mark.parametrize("letters", [string.printable, "é\x00\n"])
def test_the_fuzz_itself_finds_what_it_looks_for(letters: str) -> None:
    """The strategy reaches nested fields of an object, so a parser that breaks on one is noticed."""
    assert ("spec", "taints", 0, "key") in set(places(NODE))
    assert changed(NODE, ("spec", "taints", 0, "key"), letters)["spec"]["taints"][0]["key"] == letters
    assert NODE["spec"]["taints"][0]["key"] != letters

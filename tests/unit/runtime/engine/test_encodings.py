# SPDX-License-Identifier: Apache-2.0
"""Objects in protobuf: the tests encode them from JSON, message by message, and the runtime reads them."""

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bed.go_modules import download
from bed.progress import Progress
from ccm.controllers.serving_certificates.signing_requests import SigningRequest
from ccm.controllers.shared.cache_rules import kept_node
from ccm.engine import encodings
from ccm.engine.api_errors import GoneError, NotFoundError, UnavailableError, from_response
from ccm.engine.encodings import JSON, PROTOBUF, identity, read, read_event, split_frames
from ccm.engine.list_pages import read_page
from ccm.engine.objects import UNREADABLE, Lease, Node, PartialObject, PersistentVolume, Service, Status, decoder
from ccm.engine.protobuf import MAGIC, descriptors, messages

from ..hostile import LARGEST_NODES
from ..loop_watch import quick

REPOSITORY = Path(__file__).parents[4]
NODE = "k8s.io.api.core.v1.Node"


def encoded(document, message):
    """Return the protobuf message of a JSON document, with each of its fields that the descriptors know."""
    built = messages.message_class(message)()
    for name, value in document.items():
        field = built.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            continue
        entry = descriptors.ENTRIES.get(field.full_name)
        if entry and isinstance(value, dict):
            pairs = [messages.message_class(entry)(key=key, value=text) for key, text in value.items()]
            getattr(built, name).extend(pair.SerializeToString() for pair in pairs)
        elif entry:
            getattr(built, name).extend(encoded(each, entry) for each in value)
        elif field.is_repeated:
            getattr(built, name).extend(value)
        elif field.message_type is None:
            setattr(built, name, value)
        elif field.message_type.name in ("Time", "MicroTime"):
            moment = msgspec.convert(value, type=__import__("datetime").datetime)
            getattr(built, name).seconds = int(moment.timestamp())
            getattr(built, name).nanos = moment.microsecond * 1000
        elif field.message_type.name == "IntOrString":
            part = getattr(built, name)
            part.type = int(isinstance(value, str))
            setattr(part, "strVal" if isinstance(value, str) else "intVal", value)
        else:
            getattr(built, name).MergeFromString(encoded(value, field.message_type.full_name))
            getattr(built, name).SetInParent()
    return built.SerializeToString()


def wrapped(document, kind):
    return messages.wrapped("v1", messages.simple_name(kind), encoded(document, kind.MESSAGE))


META = {
    "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-01T12:34:56Z",
    "deletionTimestamp": "2026-11-02T00:00:00Z", "labels": {"a": "", "b": "ü"}, "annotations": {"c": "d" * 999},
    "finalizers": ["f", "g"],
}  # fmt: skip
DOCUMENTS = [
    (Node, {}),
    (Node, {
        "metadata": META,
        "spec": {"providerID": "x://y", "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"],
                 "unschedulable": True,
                 "taints": [{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-11-01T00:00:00Z"},
                            {"key": "k"}]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                   "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                                   "lastTransitionTime": "2026-11-01T00:00:00Z"},
                                  {"type": "NetworkUnavailable", "status": "False"}],
                   "nodeInfo": {"systemUUID": "s"}},
    }),
    (Service, {
        "metadata": META,
        "spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "sessionAffinity": "ClientIP",
                 "ports": [{"name": "p", "protocol": "UDP", "port": 1, "targetPort": "t", "nodePort": 2,
                            "appProtocol": "http"}, {"port": 3, "targetPort": 4}, {"port": 5, "protocol": ""}],
                 "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 9}}, "loadBalancerClass": "",
                 "allocateLoadBalancerNodePorts": False, "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP",
                                                 "ports": [{"port": 80, "protocol": "TCP", "error": "E"}]}]}},
    }),
    (PersistentVolume, {"metadata": META, "spec": {
        "persistentVolumeSource": {"csi": {"driver": "d", "volumeHandle": "h"}},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}}}}),
    (Lease, {"metadata": META, "spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                                        "renewTime": "2026-11-01T00:00:00.000007Z"}}),
    (Lease, {}),
    (SigningRequest, {"metadata": META, "spec": {"signerName": "s", "usages": ["a"], "groups": ["g"]},
                      "status": {"conditions": [{"type": "Approved"}]}}),
]  # fmt: skip


def as_json(kind, document):
    """Decode a document as JSON: a volume's source fields belong to its spec, and ports have no empty fields."""
    spec = dict(document.get("spec", {}))
    spec |= spec.pop("persistentVolumeSource", {})
    if kind is Service and spec:
        spec["ports"] = [{key: value for key, value in port.items() if value != ""} for port in spec["ports"]]
        spec["ports"] = [{"targetPort": 0, **port} for port in spec["ports"]]
    return decoder(kind).decode(json.dumps({**document, "spec": spec}))


@pytest.mark.parametrize(("kind", "document"), DOCUMENTS)
def test_protobuf_is_read_as_json(kind, document):
    if kind is Service:
        for port in document["spec"]["ports"]:
            port.setdefault("targetPort", 0)
    found = read(kind, wrapped(document, kind))
    assert (replace(found, as_read=None) if kind is Node else found) == as_json(kind, document)


@pytest.mark.parametrize("text", ["2026-11-01T12:34:56Z", "0001-01-02T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_times_are_those_of_json(text):
    assert read(Node, wrapped({"metadata": {"creationTimestamp": text}}, Node)).metadata.creation_timestamp == text


def test_gos_zero_time_is_none():
    node = messages.message_class(NODE)()
    node.metadata.creationTimestamp.SetInParent()
    assert read(PartialObject, messages.wrapped("v1", "Node", node.SerializeToString())) == PartialObject()


def a_list(*items, version="7", more=""):
    page = messages.message_class(messages.LIST)(items=items)
    page.metadata.resourceVersion = version
    setattr(page.metadata, "continue", more)
    return messages.wrapped("v1", "NodeList", page.SerializeToString())


async def test_an_object_that_is_broken_breaks_no_other():
    good, broken = encoded({"metadata": META}, NODE), encoded({"metadata": {"name": "b"}}, NODE)[:-1]
    body, skipped = a_list(good, broken, good, more="token"), []
    items, metadata = await read_page(body, Node, "/nodes", skipped.append, lambda item: item)
    assert (metadata.resource_version, metadata.continue_) == ("7", "token")
    assert items == [read(Node, wrapped({"metadata": META}, Node))] * 2
    (item,) = skipped
    with pytest.raises(UNREADABLE):
        identity(item)
    with pytest.raises(UNREADABLE, match="not a message of the type Node"):  # the reason that is logged
        read(Node, item)
    with pytest.raises(UnavailableError, match="not a message of the type Node"):
        await read_page(body, Node, "/nodes", None, lambda item: item)


def spoiled(**fields):
    """Return an encoded Node with these unchecked bytes in fields of its metadata."""
    meta = messages.message_class(f"{messages.META}.ObjectMeta")(name="a", namespace="", uid="u", resourceVersion="7")
    for name, value in fields.items():
        getattr(meta, name).append(value)
    node = messages.message_class(NODE)()
    node.metadata.CopyFrom(meta)
    return messages.wrapped("v1", "Node", node.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        spoiled(labels=b"\x0a\x01a\x12\x02\xff\xfe"),  # a value that is not UTF-8
        spoiled(annotations=b"\x0a\x7fa"),  # a length beyond the end
        spoiled(labels=b"\x0b" * 5000),  # nested groups
        wrapped({"metadata": {**META, "creationTimestamp": "2026-11-01T00:00:00Z"}}, Node).replace(
            b"\x08\xf0", b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 0
        )[:-3],  # cut off
        MAGIC,
        MAGIC + b"\xff" * 20,
        messages.wrapped("v1", "Service", b""),  # an object of another kind
        b"k8s\x00\x0a\x06\x12\x04Node\x12\x00\x1a\x04gzip",  # a content encoding that nobody uses
    ],
)
def test_what_is_no_node_is_unreadable(data):
    with pytest.raises(UNREADABLE):
        read(Node, data)


def test_an_object_with_a_text_that_is_no_text_still_has_its_identity():
    found = identity(spoiled(labels=b"\x0a\x01a\x12\x02\xff\xfe")).metadata
    assert (found.name, found.uid, found.resource_version) == ("a", "u", "7")


def test_a_time_that_no_calendar_has_is_unreadable():
    node = messages.message_class(NODE)()
    node.metadata.creationTimestamp.seconds = 1 << 62
    with pytest.raises(UNREADABLE):
        read(Node, messages.wrapped("v1", "Node", node.SerializeToString()))


def test_managed_fields_cost_nothing_however_deep_they_are():
    deep = b'{"a":' * 100_000 + b"}" * 100_000
    entry = b"\x3a" + varint(len(deep) + 4) + b"\x0a" + varint(len(deep)) + deep
    assert read(Node, spoiled(managedFields=entry)).metadata.name == "a"


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_many_different_entries_take_no_more_memory_than_some():
    from ccm.base.shared_texts import LONGEST, MOST
    from ccm.engine.protobuf.typed_messages import _Shared

    shared = _Shared(lambda entry: entry)
    for number in range(3 * MOST):
        assert shared[b"%d" % number] == b"%d" % number
    assert len(shared) <= MOST
    assert shared[b"x" * (LONGEST + 1)] and b"x" * (LONGEST + 1) not in shared


@pytest.mark.parametrize("name", LARGEST_NODES)
def test_the_largest_nodes_are_read_in_one_turn(name):
    data = wrapped(LARGEST_NODES[name], Node)
    quick(lambda: kept_node(read(Node, data)), UNREADABLE)


SAMPLES = [wrapped(document, kind) for kind, document in DOCUMENTS]


@given(st.sampled_from(SAMPLES), st.data())
def test_any_bytes_are_read_or_refused(sample, data):
    """Bytes that were changed, removed or added are read, or raise only UNREADABLE."""
    at = data.draw(st.integers(0, len(sample)))
    rest = data.draw(st.one_of(st.just(sample[at + 1 :]), st.just(sample[at:]), st.just(b"")))
    broken = sample[:at] + data.draw(st.binary(max_size=6)) + rest
    for kind, _ in DOCUMENTS:
        try:
            read(kind, broken)
        except UNREADABLE:
            continue


async def _split(*chunks):
    async def stream():
        for chunk in chunks:
            yield chunk

    return [frame async for frame in split_frames(stream())]


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(0, 400)))
def test_frames_are_found_wherever_the_stream_is_cut(contents, cuts):
    import asyncio

    stream = b"".join(len(each).to_bytes(4, "big") + each for each in contents)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert asyncio.run(_split(*chunks)) == contents
    assert asyncio.run(_split(*chunks, b"\x00\x00\x00\x09cut")) == contents


async def test_a_length_that_is_none_ends_the_watch():
    with pytest.raises(UNREADABLE):
        await _split(b"\x00\x00\x00\x01a\xff\xff\xff\xffabc")


async def test_an_event_has_its_type_and_its_object():
    event = messages.message_class(messages.WATCH_EVENT)(type="MODIFIED")
    event.object.raw = wrapped({"metadata": META}, Node)
    found = await read_event(event.SerializeToString())
    assert found.type == "MODIFIED" and read(Node, found.object).metadata.labels == META["labels"]
    found = await read_event(json.dumps({"type": "ADDED", "object": {"metadata": META}}).encode())
    assert found.type == "ADDED" and read(Node, found.object).metadata.labels == META["labels"]


@pytest.mark.parametrize(("code", "kind"), [(404, NotFoundError), (410, GoneError)])
def test_a_status_in_protobuf_is_the_servers_word(code, kind):
    status = wrapped({"message": "no such thing", "reason": "NotFound", "code": 0}, Status)
    error = from_response(code, PROTOBUF, status, None, "GET /x")
    assert type(error) is kind and error.message == f"GET /x: {code} NotFound: no such thing"
    other = from_response(code, PROTOBUF, wrapped({}, Node), None, "GET /x")
    assert type(other) is UnavailableError


@pytest.mark.parametrize(
    ("kind", "verb", "header"),
    [
        (Node, "GET", f"{PROTOBUF},{JSON}"),
        (Node, "WATCH", f"{PROTOBUF};stream=watch,{JSON}"),
        (PartialObject, "LIST", f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"),
        (dict, "GET", JSON),
    ],
)
def test_json_stays_possible(kind, verb, header):
    assert encodings.accepted(kind, True, verb=verb) == header
    assert encodings.accepted(kind, False, verb=verb) == JSON


# The source of the descriptors


def test_the_descriptors_are_of_the_version_that_is_measured_against():
    text = (REPOSITORY / "tools/bench/peer/go.mod").read_text()
    for module, version in descriptors.MODULES.items():
        assert f"\t{module} {version}\n" in text


def _sources(modules):
    """Return the messages in the `.proto` files of the modules, as {message: {field: (number, label, type)}}."""
    found = {}
    for folder in download(modules.items(), Progress()).values():
        for path in folder.rglob("generated.proto"):
            text = re.sub(r"//.*", "", path.read_text())
            package = re.search(r"^package (\S+);", text, re.MULTILINE)[1]
            for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
                fields = re.findall(r"(optional|repeated|)\s*(map<[^>]*>|[\w.]+) (\w+) = (\d+);", body)
                found[f"{package}.{name}"] = {
                    field: (int(number), label, kind) for label, kind, field, number in fields
                }
    return found


#: The modules of the oldest Kubernetes that is compared. Its descriptors would be the same byte for byte: the runtime
#: does not know later fields and leaves them unchanged.
OLD = dict.fromkeys(descriptors.MODULES, "v0.30.4")


@pytest.mark.parametrize("modules", [descriptors.MODULES, OLD], ids=["current", "1.30"])
def test_each_field_is_the_one_of_kubernetes(modules):
    """The `.proto` files are read by another parser than the compiler that made the descriptors."""
    sources, compared = _sources(modules), 0
    for data in descriptors.FILES:
        file = FileDescriptorProto.FromString(data)
        for message in file.message_type if file.package != "ccm" else ():
            full = f"{file.package}.{message.name}"
            for field in message.field:
                number, label, kind = sources[full][field.name]
                is_list = label == "repeated" or kind.startswith("map<")
                assert field.number == number, f"{full}.{field.name}"
                assert (field.label == FieldDescriptorProto.LABEL_REPEATED) == is_list, f"{full}.{field.name}"
                assert _kind(field, full) == kind.lstrip("."), f"{full}.{field.name}"
                compared += 1
    assert compared > 100


def _kind(field, message):
    """Return the type of a field as in the `.proto` file. The descriptors' lists of messages are bytes (`ENTRIES`)."""
    entry = descriptors.ENTRIES.get(f"{message}.{field.name}")
    if entry and entry.endswith("Entry") and entry.startswith(message):
        return "map<string, string>"
    name = entry or field.type_name.lstrip(".")
    package = message.rpartition(".")[0]
    if name:
        return name.removeprefix(f"{package}.")
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


IN_PYTHON = """
import sys
from google.protobuf.internal import api_implementation
from ccm.engine.encodings import read
from ccm.engine.objects import Node
from ccm.engine.protobuf.changes import changed
data = bytes.fromhex(sys.argv[1])
node = read(Node, data)
changed(Node, node.as_read.data, {"spec": {"providerID": "x", "taints": None}})
print(api_implementation.Type(), node.metadata.name, [taint.key for taint in node.spec.taints])
"""


def test_an_installation_without_the_compiled_decoder_reads_and_writes():
    """Some platforms have no wheel of the compiled decoder: there protobuf decodes in Python, slowly."""
    command = [sys.executable, "-c", IN_PYTHON, wrapped(DOCUMENTS[1][1], Node).hex()]
    environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "python a ['k', 'k']\n"

# SPDX-License-Identifier: Apache-2.0
"""The ways to write one initialisation of a Node: its addresses into the status, and labels, providerID and taint.

Every form turns the same Node into the same object; `Form.requests` returns the two requests for it. Pure: the
generator sends the requests, and `limits` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from ccm.controllers.nodes import node_rules
from ccm.engine.client import JSON, MERGE_PATCH, STRATEGIC_PATCH
from ccm.engine.encodings import PROTOBUF, accepted_metadata

from . import objects

METADATA_ONLY = accepted_metadata(False)
PROTOBUF_METADATA = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
#: Precedes each encoded object and marks it as protobuf, as Kubernetes does.
MAGIC = b"k8s\x00"

_json = msgspec.json.Encoder().encode


class Request(msgspec.Struct, array_like=True):
    """One write, as the generator sends it."""

    method: str
    path: str
    content: str
    accept: str
    body: bytes


@dataclass(frozen=True)
class Target:
    """A Node to initialise, as the API server has it in both encodings, and the two merge patches that initialise
    it."""

    name: str
    json: dict[str, Any]
    protobuf: bytes
    status: dict[str, Any]
    node: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"


@dataclass(frozen=True)
class Form:
    """A form in which to initialise a Node. `build` returns the request for its status and the request for the rest.
    With `node_first`, the second one is sent first. Both get the `query`."""

    name: str
    build: Callable[[Target], tuple[Request, Request]]
    query: str = ""
    node_first: bool = False

    def requests(self, target: Target) -> list[Request]:
        status, node = self.build(target)
        for request in (status, node):
            separator = "&" if "?" in request.path else "?"
            request.path += f"{separator}{self.query}" if self.query else ""
        return [node, status] if self.node_first else [status, node]


def _pair(
    target: Target, method: str, content: str, accept: str, status: bytes, node: bytes, query: str = ""
) -> tuple[Request, Request]:
    return (
        Request(method, f"{target.path}/status{query}", content, accept, status),
        Request(method, f"{target.path}{query}", content, accept, node),
    )


def merge(target: Target, accept: str = METADATA_ONLY) -> tuple[Request, Request]:
    return _pair(target, "PATCH", MERGE_PATCH, accept, _json(target.status), _json(target.node))


def merge_answered_by_protobuf(target: Target) -> tuple[Request, Request]:
    return merge(target, PROTOBUF_METADATA)


def merge_answered_in_full(target: Target) -> tuple[Request, Request]:
    return merge(target, JSON)


def strategic(target: Target) -> tuple[Request, Request]:
    status = node_rules.as_strategic(target.status)
    return _pair(target, "PATCH", STRATEGIC_PATCH, METADATA_ONLY, _json(status), _json(target.node))


def json_patch(target: Target) -> tuple[Request, Request]:
    status = [{"op": "add", "path": "/status/addresses", "value": target.status["status"]["addresses"]}]
    node: list[dict[str, Any]] = [
        {"op": "add", "path": "/metadata/labels/" + key.replace("/", "~1"), "value": value}
        for key, value in target.node["metadata"]["labels"].items()
    ]
    node += [{"op": "add", "path": f"/spec/{key}", "value": value} for key, value in target.node["spec"].items()]
    return _pair(target, "PATCH", JSON_PATCH, METADATA_ONLY, _json(status), _json(node))


def apply(target: Target) -> tuple[Request, Request]:
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": target.name}}
    status = {**head, "status": {"addresses": target.status["status"]["addresses"]}}
    metadata = {"name": target.name, "labels": target.node["metadata"]["labels"]}
    node = {**head, "metadata": metadata, "spec": target.node["spec"]}
    query = "?fieldManager=bench&force=true"
    return _pair(target, "PATCH", APPLY, METADATA_ONLY, _json(status), _json(node), query)


def put(target: Target) -> tuple[Request, Request]:
    metadata = {key: value for key, value in target.json["metadata"].items() if key != "resourceVersion"}
    head = {"apiVersion": "v1", "kind": "Node"}
    labels = {**metadata["labels"], **target.node["metadata"]["labels"]}
    spec = {**target.json["spec"], **target.node["spec"]}
    status = {**target.json["status"], "addresses": target.status["status"]["addresses"]}
    return _pair(
        target, "PUT", JSON, METADATA_ONLY,
        _json({**target.json, **head, "metadata": metadata, "status": status}),
        _json({**target.json, **head, "metadata": {**metadata, "labels": labels}, "spec": spec}),
    )  # fmt: skip


def put_protobuf(target: Target, accept: str = METADATA_ONLY) -> tuple[Request, Request]:
    addresses = b"".join(
        field(5, text(1, address["type"]) + text(2, address["address"]))
        for address in target.status["status"]["addresses"]
    )
    labels = b"".join(
        field(11, text(1, key) + text(2, value)) for key, value in target.node["metadata"]["labels"].items()
    )
    spec = text(3, target.node["spec"]["providerID"])
    return _pair(
        target, "PUT", PROTOBUF, accept,
        changed(target.protobuf, {1: (_is_version, b""), 3: (_is_address, addresses)}),
        changed(target.protobuf, {1: (_is_version, labels), 2: (_is_our_taint, spec)}),
    )  # fmt: skip


def put_protobuf_answered_by_protobuf(target: Target) -> tuple[Request, Request]:
    return put_protobuf(target, PROTOBUF_METADATA)


def put_protobuf_answered_in_full(target: Target) -> tuple[Request, Request]:
    return put_protobuf(target, PROTOBUF)


FORMS = (
    Form("strategic merge patch", strategic),
    Form("JSON merge patch", merge),
    Form("JSON merge patch, the Node before its status", merge, node_first=True),
    Form("JSON merge patch, fieldValidation=Ignore", merge, "fieldValidation=Ignore"),
    Form("JSON merge patch, answered by the whole Node", merge_answered_in_full),
    Form("JSON merge patch, answered in protobuf", merge_answered_by_protobuf),
    Form("JSON patch", json_patch),
    Form("server-side apply", apply),
    Form("PUT in JSON", put),
    Form("PUT in protobuf", put_protobuf),
    Form("PUT in protobuf, answered by the whole Node", put_protobuf_answered_in_full),
    Form("PUT in protobuf, answered in protobuf", put_protobuf_answered_by_protobuf),
)


#: The runtime sends the form BEST for Nodes whose encoded bytes it has, and OURS, which costs the API server more, for
#: all others.
OURS, BEST = FORMS[0], FORMS[-1]


# --- protobuf, as far as replacing fields needs it --------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, body: bytes) -> bytes:
    """Return an encoded field with its length."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def text(number: int, value: str) -> bytes:
    return field(number, value.encode())


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (number, the whole encoded field, its body without the length) for each field; a number has no body."""
    at = 0
    while at < len(message):
        start = at
        tag, at = _read_varint(message, at)
        body = b""
        match tag & 7:
            case 0:
                _, at = _read_varint(message, at)
            case 1:
                at += 8
            case 2:
                length, at = _read_varint(message, at)
                body = message[at : at + length]
                at += length
            case 5:
                at += 4
            case other:
                raise ValueError(f"wire type {other} at byte {start}")
        yield tag >> 3, message[start:at], body


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def items_of_list(encoded: bytes) -> Iterator[bytes]:
    """Return the Nodes of an encoded NodeList."""
    raw = next(body for number, _, body in fields(encoded.removeprefix(MAGIC)) if number == 2)
    return (body for number, _, body in fields(raw) if number == 2)


def changed(node: bytes, parts: dict[int, tuple[Callable[[int, bytes], bool], bytes]]) -> bytes:
    """Return an encoded Node with changes, wrapped for a request. `parts`, by the number of a part (1 metadata, 2 spec,
    3 status): a function that picks the fields to remove, and the fields to add. All other fields stay, known or
    not."""
    kept = bytearray()
    for number, whole, body in fields(node):
        if number in parts:
            goes, come = parts[number]
            stay = (part for inner, part, value in fields(body) if not goes(inner, value))
            whole = field(number, b"".join(stay) + come)
        kept += whole
    return MAGIC + field(1, text(1, "v1") + text(2, "Node")) + field(2, bytes(kept))


def _is_version(number: int, _: bytes) -> bool:
    return number == 6


def _is_address(number: int, _: bytes) -> bool:
    return number == 5


def _is_our_taint(number: int, body: bytes) -> bool:
    return number == 5 and text(1, objects.TAINT["key"]) in body


__all__ = ["FORMS", "PROTOBUF", "Form", "Request", "Target", "items_of_list"]

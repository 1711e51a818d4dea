# SPDX-License-Identifier: Apache-2.0
"""`make descriptors`: writes runtime/ccm/engine/protobuf/descriptors.py, what the runtime knows of Kubernetes'
protobuf:

    python -m tools.packaging.descriptors

The `.proto` files are Kubernetes' own: those of the Go modules that tools/bench/peer/go.mod names. `protoc` compiles
them. Only the messages and fields that the runtime's types have (`MESSAGE` in their classes) stay in the result. All
others are unknown bytes, which cost nothing to read and are written back unchanged. For the same reason, entries of
maps and of lists of messages are declared as bytes. The wire format is the same; the runtime decodes the entries it
needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    Edition,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from bed.go_modules import download
from bed.progress import Progress
from ccm.controllers.serving_certificates.signing_requests import SigningRequest
from ccm.engine import objects
from ccm.engine.protobuf.shapes import INLINED, element_type

from .environments import REPOSITORY, UV

PEER = REPOSITORY / "tools" / "bench" / "peer"
TARGET = REPOSITORY / "runtime" / "ccm" / "engine" / "protobuf" / "descriptors.py"
#: The compiler. Neither the tests nor the runtime need it.
PROTOC = "grpcio-tools==1.85.1"
MODULES = ("k8s.io/api", "k8s.io/apimachinery")
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
#: Objects that are read, each with its MESSAGE.
TYPES: tuple[type[msgspec.Struct], ...] = (
    objects.Node,
    objects.Service,
    objects.PersistentVolume,
    objects.Lease,
    objects.PartialObject,
    objects.Status,
    SigningRequest,
)
#: Fields that no type has, but that are needed: those that wrap objects, and those that a write leaves out.
ALSO: Mapping[str, frozenset[str]] = {
    "k8s.io.apimachinery.pkg.runtime.Unknown": frozenset({"typeMeta", "raw", "contentType", "contentEncoding"}),
    "k8s.io.apimachinery.pkg.runtime.TypeMeta": frozenset({"apiVersion", "kind"}),
    "k8s.io.apimachinery.pkg.runtime.RawExtension": frozenset({"raw"}),
    f"{META}.WatchEvent": frozenset({"type", "object"}),
    f"{META}.ListMeta": frozenset({"resourceVersion", "continue"}),
    f"{META}.ObjectMeta": frozenset({"managedFields"}),
    f"{META}.Time": frozenset({"seconds", "nanos"}),
    f"{META}.MicroTime": frozenset({"seconds", "nanos"}),
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": frozenset({"type", "intVal", "strVal"}),
}
#: This edition is like proto2, but refuses text that is not UTF-8, as JSON does. In proto2, Python would get bytes.
EDITION = Edition.EDITION_2023
#: The fields of an entry of a map.
ENTRY = {"key", "value"}
#: Describes every list of Kubernetes, with items as bytes that are decoded later.
OWN = "list.proto"
LIST = """\
syntax = "proto2";
package ccm;
import "k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto";
message List {
  optional k8s.io.apimachinery.pkg.apis.meta.v1.ListMeta metadata = 1;
  repeated bytes items = 2;
}
"""


def versions() -> dict[str, str]:
    """Return the version of each of `MODULES` in tools/bench/peer/go.mod."""
    text = (PEER / "go.mod").read_text()
    return {module: re.search(rf"^\t{re.escape(module)} (v\S+)", text, re.MULTILINE)[1] for module in MODULES}  # type: ignore[index]


def folders() -> dict[str, Path]:
    """Return the folders of the modules in Go's cache; Go downloads them if need be."""
    return {module: folder for (module, _), folder in download(versions().items(), Progress()).items()}


def compiled() -> list[FileDescriptorProto]:
    """Compile the files and return their descriptors, imported files first."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "sources")
        for module, path in folders().items():
            sources.joinpath(module).parent.mkdir(parents=True, exist_ok=True)
            sources.joinpath(module).symlink_to(path)
        (sources / OWN).write_text(LIST)
        files = sorted({_file(kind.MESSAGE) for kind in TYPES} | {_file(name) for name in ALSO})  # type: ignore[attr-defined]
        out = Path(folder, "out")
        run = [UV, "run", "--quiet", "--no-project", "--with", PROTOC, "python", "-m", "grpc_tools.protoc"]
        options = [f"-I{sources}", "--include_imports", f"--descriptor_set_out={out}"]
        subprocess.run([*run, *options, *files, OWN], check=True, cwd=folder, stderr=subprocess.DEVNULL)
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _file(message: str) -> str:
    package = message.rpartition(".")[0].removeprefix("k8s.io.").replace(".", "/")
    return f"k8s.io/{package}/generated.proto"


class Known:
    """Collects, in `fields`, which fields of each message stay."""

    def __init__(self, files: Sequence[FileDescriptorProto]) -> None:
        self._messages = {f"{file.package}.{message.name}": message for file in files for message in file.message_type}
        self.fields: dict[str, set[str]] = {name: set(names) for name, names in ALSO.items()}
        for name in ALSO:
            for field in self._messages[name].field:
                if field.name in ALSO[name] and field.type == FieldDescriptorProto.TYPE_MESSAGE:
                    self.fields.setdefault(field.type_name.lstrip("."), set())
        for kind in TYPES:
            self._add(kind, kind.MESSAGE)  # type: ignore[attr-defined]

    def _add(self, kind: type[msgspec.Struct], message: str) -> None:
        """Add the fields of the message that the type reads."""
        own = {field.name: field for field in self._messages[message].field}
        inlined = own.get(INLINED.get(message.rpartition(".")[2], ""))
        for field in msgspec.structs.fields(kind):
            if field.encode_name in own:
                self._add_field(message, own[field.encode_name], field.type)
            elif inlined is not None:
                inner = inlined.type_name.lstrip(".")
                self.fields.setdefault(message, set()).add(inlined.name)
                described = {each.name: each for each in self._messages[inner].field}
                self._add_field(inner, described[field.encode_name], field.type)

    def _add_field(self, message: str, field: FieldDescriptorProto, kind: Any) -> None:
        self.fields.setdefault(message, set()).add(field.name)
        inner = field.type_name.lstrip(".")
        if struct := element_type(kind):
            self._add(struct, inner)
        if inner not in self._messages or inner in ALSO or struct:  # no message, or its fields are known
            return
        for each in self._messages[inner].field:  # it is read as a dictionary
            self._add_field(inner, each, dict)


def pruned(files: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return the files without messages and fields that the runtime does not know, and without what only compilers
    read."""
    known = Known(files).fields
    kept = {}
    for file in files:
        short = FileDescriptorProto(name=file.name, package=file.package, syntax="editions", edition=EDITION)
        for message in file.message_type:
            names = known.get(f"{file.package}.{message.name}")
            if file.name == OWN:
                short.message_type.append(_short(message, {field.name for field in message.field}))
            elif names is not None:
                short.message_type.append(_short(message, names))
        if short.message_type:
            short.dependency.extend(each for each in file.dependency if each in kept)
            kept[file.name] = short
    return list(kept.values())


def _short(message: DescriptorProto, names: set[str]) -> DescriptorProto:
    short = DescriptorProto(name=message.name)
    used = {field.type_name.rpartition(".")[2] for field in message.field if field.name in names}
    short.nested_type.extend(_short(each, ENTRY) for each in message.nested_type if each.name in used)
    for field in message.field:
        if field.name in names:
            plain = FieldDescriptorProto(name=field.name, number=field.number, label=field.label, type=field.type)
            if is_opaque(field):
                plain.type = FieldDescriptorProto.TYPE_BYTES
            elif field.type_name:
                plain.type_name = field.type_name
            short.field.append(plain)
    return short


def is_opaque(field: FieldDescriptorProto) -> bool:
    """Return whether the field is a map or a list of messages, whose entries stay bytes until they are read."""
    return field.label == FieldDescriptorProto.LABEL_REPEATED and field.type == FieldDescriptorProto.TYPE_MESSAGE


def entries(files: Sequence[FileDescriptorProto]) -> dict[str, str]:
    """Return the message type of the entries of each field that `is_opaque`."""
    known = Known(files).fields
    return {
        f"{file.package}.{message.name}.{field.name}": field.type_name.lstrip(".")
        for file in files
        for message in file.message_type
        for field in message.field
        if is_opaque(field) and field.name in known.get(f"{file.package}.{message.name}", ())
    }


def module_text(files: Sequence[FileDescriptorProto]) -> str:
    """Return the source of the runtime's module: bytes literals, which Python compiles once."""
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        "# ruff: noqa: E501",
        '"""Kubernetes\' messages, as far as the runtime reads them. Made by `make descriptors`; do not edit."""',
        "",
        "#: The Go modules whose `.proto` files these are.",
        f"MODULES = {json.dumps(versions())}",
        "#: Lists and maps whose entries are read one by one, and the message of an entry.",
        "ENTRIES = {",
        *(f"    {json.dumps(field)}: {json.dumps(entry)}," for field, entry in entries(files).items()),
        "}",
        "#: A FileDescriptorProto each, imported ones first.",
        "FILES = (",
    ]
    for file in pruned(files):
        lines += ["    bytes.fromhex(", f"        # {file.name}"]
        lines += [f'        "{part}"' for part in textwrap.wrap(file.SerializeToString(deterministic=True).hex(), 100)]
        lines += ["    ),"]
    return "\n".join([*lines, ")", ""])


def main() -> int:
    TARGET.write_text(module_text(compiled()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

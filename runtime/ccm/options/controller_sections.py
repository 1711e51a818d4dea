# SPDX-License-Identifier: Apache-2.0
"""`OutOfTree.controllers` of `--config`: the options of controllers from other packages, by controller name.

Each section is validated against the type that the controller declares: unknown keys, missing keys and values of the
wrong type are reported together, each with its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ccm.base.yaml_reader import Document, Path
from ccm.controllers.controller_registry import Unusable, installed, look_up


def load(document: Document, path: Path, value: Any) -> dict[str, Any]:
    """Return the name of a controller -> its options, and add problems to the document. The section of a controller
    that cannot be used is skipped, because the start of that controller reports the reason."""
    sections: dict[str, Any] = {}
    names = installed()
    for name, section in document.mapping(path, value).items():
        inner = (*path, name)
        if name not in names:
            document.unknown(inner, names or ["none: no package with controllers is installed"])
            continue
        spec = look_up(name)
        if isinstance(spec, Unusable):
            continue
        if spec.section is None:
            document.problem(inner, "this controller has no options")
            continue
        options = _read(document, inner, document.mapping(inner, section), spec.section)
        if options is not None:
            sections[name] = options
    return sections


def _read(document: Document, path: Path, mapping: Mapping[str, Any], section: type[Any]) -> Any:
    before = len(document.problems)
    fields = {field.encode_name: field for field in msgspec.structs.fields(section)}
    values: dict[str, Any] = {}
    for key, value in mapping.items():
        if key not in fields:
            document.unknown((*path, key), fields)
            continue
        try:
            values[fields[key].name] = msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            document.problem((*path, key), str(error))
    for key, field in fields.items():
        if field.required and key not in mapping:
            document.problem((*path, key), "is missing")
    if len(document.problems) > before:
        return None
    try:
        return section(**values)
    except (TypeError, ValueError) as error:
        document.problem(path, str(error))
        return None


def dump(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections in the format that `load` reads."""
    return {name: msgspec.to_builtins(options) for name, options in sections.items()}

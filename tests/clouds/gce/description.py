# SPDX-License-Identifier: Apache-2.0
"""Compares calls and answers with Google's published description of the API, compute v1, as the package
google-api-python-client has it (a discovery document: https://developers.google.com/discovery)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from tests.clouds.stand_in import Exchange

#: The form of errors in all of Google's APIs; the description leaves errors out.
ERROR = {"code": int, "message": str, "errors": list, "status": str}
TYPES: Mapping[str, Any] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "any": lambda value: True,
}


@cache
def document() -> dict[str, Any]:
    path = files("googleapiclient") / "discovery_cache/documents/compute.v1.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@cache
def _methods() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    found = [method for resource in document()["resources"].values() for method in resource["methods"].values()]
    return [(re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(each["path"]))), each) for each in found]


def method_of(exchange: Exchange) -> tuple[dict[str, Any], dict[str, str]] | None:
    """Return the method in the description, and the values of the parameters in the path; None if there is no such
    method."""
    for pattern, method in _methods():
        if method["httpMethod"] == exchange.method and (match := pattern.fullmatch(exchange.path.strip("/"))):
            return method, match.groupdict()
    return None


def problems(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence about each part of a call that does not fit the description."""
    if (found := method_of(exchange)) is None:
        yield f"{exchange}: not in the description"
        return
    method, in_path = found
    for name, value in {**in_path, **exchange.query}.items():
        declared = method["parameters"].get(name)
        if declared is None and f"`{name}`" in method["description"]:
            continue  # the text about lists of all zones recommends returnPartialSuccess, which is not declared
        if declared is None or declared["location"] != ("path" if name in in_path else "query"):
            yield f"{method['id']}: no parameter {name}"
        elif not _is_allowed(value, declared):
            yield f"{method['id']}: {name} is {value!r}"
    if exchange.status == 200:
        yield from _unfit(exchange.answer, method["response"], method["id"])
        return
    error = exchange.answer.get("error") if isinstance(exchange.answer, dict) else None
    if not isinstance(error, dict):
        yield f"{method['id']}: {exchange.status} without an error"
        return
    for name, value in error.items():
        if name not in ERROR or not isinstance(value, ERROR[name]):
            yield f"{method['id']}: error.{name} is {value!r}"


def _unfit(value: Any, shape: Mapping[str, Any], where: str) -> Iterator[str]:
    if "$ref" in shape:
        shape = document()["schemas"][shape["$ref"]]
    kind = shape["type"]
    if kind == "object":
        if not isinstance(value, dict):
            yield f"{where}: is {value!r}"
            return
        known, others = shape.get("properties", {}), shape.get("additionalProperties")
        for name, part in value.items():
            if name in known or others is not None:
                yield from _unfit(part, known.get(name, others), f"{where}.{name}")
            else:
                yield f"{where}: {name} is unknown"
    elif kind == "array":
        if not isinstance(value, list):
            yield f"{where}: is {value!r}"
            return
        for part in value:
            yield from _unfit(part, shape["items"], f"{where}[]")
    elif not TYPES[kind](value) or not _is_allowed(value, shape):
        yield f"{where}: is {value!r}"


def _is_allowed(value: Any, shape: Mapping[str, Any]) -> bool:
    """Return whether the description allows a single value."""
    if "enum" in shape and value not in shape["enum"]:
        return False
    if "pattern" in shape and not re.fullmatch(shape["pattern"], value):
        return False
    text = str(value)
    if shape.get("format") in ("uint32", "uint64") and not text.isdigit():
        return False
    return "minimum" not in shape or int(text) >= int(shape["minimum"])

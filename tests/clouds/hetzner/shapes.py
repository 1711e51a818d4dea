# SPDX-License-Identifier: Apache-2.0
"""Compares calls and answers with `api_shapes.yml`: names, types and values of the API's published description."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.clouds.stand_in import Exchange

#: Fields that are in use and that the vendor's client has, but that are newer than the description.
YOUNGER = {"timeout_idle"}
#: Name of a type in the description -> whether a value has that type.
TYPES = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: True,
}
TOKEN = re.compile(r"[{}\[\],?]|[A-Za-z_0-9|]+\*?:?")


@cache
def shapes() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "api_shapes.yml").read_text())
    return found


def problems(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence about each part of a call that does not fit the description. Answers of refusals are not
    checked. A deletion must only have an empty answer."""
    template = re.sub(r"/\d+", "/{id}", exchange.path)
    name = f"{exchange.method} {template}"
    if exchange.method == "DELETE":
        if exchange.status == 204 and exchange.answer is not None:
            yield f"{name}: an answer to a deletion has no content"
        return
    if name not in shapes():
        yield f"{name}: not in the description"
        return
    shape = shapes()[name]
    for each in exchange.query.keys() - set(shape.get("query", ())):
        yield f"{name}: the query has {each}"
    if exchange.body is not None and "request" not in shape:
        yield f"{name}: takes no content"
    if "request" in shape:
        yield from _unfit(exchange.body, parsed(shape["request"]), f"{name} request")
    if exchange.status < 300:
        answer = shape.get(str(exchange.status))
        if answer is None:
            yield f"{name}: does not answer {exchange.status}"
        else:
            yield from _unfit(exchange.answer, parsed(answer), f"{name} answer")


def _unfit(value: Any, shape: Any, where: str) -> Iterator[str]:
    kind, null = shape[0], shape[-1]
    if value is None:
        if not null:
            yield f"{where}: is null"
        return
    match kind:
        case "fields" if isinstance(value, dict):
            fields, required = shape[1], shape[2]
            for each in required - value.keys():
                yield f"{where}: {each} is missing"
            for key, part in value.items():
                if key in fields:
                    yield from _unfit(part, fields[key], f"{where}.{key}")
                elif key not in YOUNGER:
                    yield f"{where}: {key} is unknown"
        case "items" if isinstance(value, list):
            for part in value:
                yield from _unfit(part, shape[1], f"{where}[]")
        case "type" if TYPES[shape[1]](value):
            return
        case "enum" if value in shape[1]:
            return
        case _:
            yield f"{where}: is {value!r}"


@cache
def parsed(text: str) -> Any:
    """Return a shape: ("fields", {name: shape}, required, null), ("items", shape, null), ("type", name, null) or
    ("enum", values, null)."""
    tokens = TOKEN.findall(text)
    found, rest = _parse(tokens)
    assert rest == [], text
    return found


def _parse(tokens: list[str]) -> tuple[Any, list[str]]:
    first, rest = tokens[0], tokens[1:]
    shape: tuple[Any, ...]
    if first == "{":
        fields, required = {}, set()
        while rest[0] != "}":
            name, rest = rest[0].rstrip(":"), rest[1:]
            if name.endswith("*"):
                name = name.rstrip("*")
                required.add(name)
            fields[name], rest = _parse(rest)
            rest = rest[1:] if rest[0] == "," else rest
        shape, rest = ("fields", fields, required), rest[1:]
    elif first == "[":
        item, rest = _parse(rest)
        shape, rest = ("items", item), rest[1:]
    elif first in TYPES:
        shape = ("type", first)
    else:
        shape = ("enum", first.split("|"))
    null = rest[:1] == ["?"]
    return (*shape, null), rest[1:] if null else rest

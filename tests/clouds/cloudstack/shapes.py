# SPDX-License-Identifier: Apache-2.0
"""Compares calls and answers with `api_shapes.yml`, the names and types in CloudStack's description of its own API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .face import Exchange

#: Fields of every request.
COMMON = {"command", "apikey", "signature", "signatureversion", "expires", "response"}
PARAMETER = re.compile(r"(?P<name>[a-z]+)(\[\d+\]\.(key|value))?")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: Type of a parameter -> a pattern that the parameter's text must match.
TEXTS = {
    "uuid": UUID,
    "integer": re.compile(r"\d+"),
    "boolean": re.compile("true|false"),
    "string": re.compile(".+", re.DOTALL),
    "list": re.compile("[^,]+(,[^,]+)*"),
    "map": re.compile(".+"),
}
VALUES = {
    "string": lambda value: isinstance(value, str),
    "date": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "long": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "list": lambda value: isinstance(value, list),
    "set": lambda value: isinstance(value, list),
    "map": lambda value: isinstance(value, dict),
    "responseobject": lambda value: isinstance(value, dict),
}
#: The fields of an answer that starts a job; the description leaves them out.
ALWAYS = {"id": "string", "jobid": "string"}
TOKEN = re.compile(r"[{}]|[A-Za-z0-9_*]+:?|,")


@cache
def shapes() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "api_shapes.yml").read_text())
    every = {
        name: {"job": shape["job"], "takes": parsed(shape["takes"]), "answers": parsed(shape["answers"])}
        for name, shape in found.items()
    }
    # The description has only the answer for `lbvmips=true`. Otherwise the answer has machines, as the vendor's client
    # expects.
    every["listLoadBalancerRuleInstances"]["answers"] = every["listVirtualMachines"]["answers"]
    return every


def problems(exchange: Exchange) -> Iterator[str]:
    """Yield a sentence about each part of a call that does not fit the description. Answers of refusals are not
    checked."""
    name = exchange.command
    if name not in shapes():
        yield f"{name}: not in the description"
        return
    shape = shapes()[name]
    if exchange.method != "POST":
        yield f"{name}: the signature is in the URL"
    yield from _parameters(exchange, shape["takes"])
    if exchange.status >= 300:
        return
    (key, answer), *others = exchange.answer.items()
    if key != f"{name.lower()}response" or others:
        yield f"{name}: the answer is called {key}"
    if shape["job"]:
        yield from _fields(answer, ALWAYS, name)
        return
    if name.startswith("list"):
        rows = [row for part in answer.values() for row in (part if isinstance(part, list) else [part])]
        for row in rows:
            if isinstance(row, dict):
                yield from _fields(row, shape["answers"], name)
    else:
        yield from _fields(answer, shape["answers"], name)


def _parameters(exchange: Exchange, takes: dict[str, Any]) -> Iterator[str]:
    given = set()
    for field, text in exchange.fields.items():
        match = PARAMETER.fullmatch(field)
        name = match["name"] if match else field
        given.add(name)
        if name in COMMON:
            continue
        kind = takes.get(name) or takes.get(f"{name}*")
        if kind is None:
            yield f"{exchange.command}: takes no {name}"
        elif not TEXTS[kind].fullmatch(text):
            yield f"{exchange.command}: {name} is {text!r}"
    for name in takes:
        if name.endswith("*") and name.rstrip("*") not in given:
            yield f"{exchange.command}: {name.rstrip('*')} is missing"
    if COMMON - given:
        yield f"{exchange.command}: {', '.join(COMMON - given)} is missing"


def _fields(row: dict[str, Any], fields: dict[str, Any], where: str) -> Iterator[str]:
    for name, value in row.items():
        kind = fields.get(name)
        if isinstance(kind, dict):
            for each in value:
                yield from _fields(each, kind, f"{where} {name}")
        elif kind is None:
            yield f"{where}: {name} is unknown"
        elif not VALUES[kind](value):
            yield f"{where}: {name} is {value!r}"


def parsed(text: str) -> dict[str, Any]:
    """Return `{name: type, name: type {name: type}}` as a dictionary. A type with fields becomes a dictionary, too."""
    found, rest = _parse(TOKEN.findall(text))
    assert rest == [], text
    return found


def _parse(tokens: list[str]) -> tuple[dict[str, Any], list[str]]:
    found: dict[str, Any] = {}
    tokens = tokens[1:]
    while tokens[0] != "}":
        name, kind, tokens = tokens[0].rstrip(":"), tokens[1], tokens[2:]
        found[name] = kind
        if tokens[0] == "{":
            found[name], tokens = _parse(tokens)
        if tokens[0] == ",":
            tokens = tokens[1:]
    return found, tokens[1:]

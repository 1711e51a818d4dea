# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values: their notation on the command line, in a configuration file, and in `/configz`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from ccm.base import durations
from ccm.controllers.nodes.node_label_rules import Refresh
from ccm.controllers.services.drain_rules import Mode

from . import controller_names, feature_gates

T = TypeVar("T")


class Kind(msgspec.Struct, Generic[T], frozen=True):
    """A kind of values. `parse` reads the text of a flag, `load` a YAML value; both raise ValueError with a sentence.
    `dump` returns what `load` reads. `lists`: repeated flags are merged."""

    name: str
    parse: Callable[[str], T]
    load: Callable[[Any], T]
    dump: Callable[[T], Any] = lambda value: value
    lists: bool = False
    #: What a flag of this kind without a value means; None if it needs one.
    bare: Any = None


class SniPair(msgspec.Struct, frozen=True):
    """A certificate for the given server names; without names, for those in the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...] = ()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "t", "1"):
        return True
    if lowered in ("false", "f", "0"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _load_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _refresh(text: str) -> str:
    """Return the value of --refresh-node-labels. `true` (always) and `false` (missing), which older releases took, are
    accepted, too. Raises ValueError."""
    try:
        return Refresh(text.lower()).value
    except ValueError:
        pass
    try:
        return (Refresh.ALWAYS if _boolean(text) else Refresh.MISSING).value
    except ValueError:
        raise ValueError(f"{text!r} is neither never, missing nor always") from None


def _drain(text: str) -> str:
    try:
        return Mode(text.lower()).value
    except ValueError:
        raise ValueError(f"{text!r} is neither never, leaving nor cordoned") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _load_whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a number")
    return number


def _load_number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _load_names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{value!r} is not a list of strings")
    return tuple(value)


def _controllers(text: str) -> tuple[str, ...]:
    return controller_names.select_controllers(part.strip() for part in text.split(","))


def _sni(text: str) -> tuple[SniPair, ...]:
    pair, _, hosts = text.partition(":")
    files = pair.split(",")
    if len(files) != 2 or not all(files):
        raise ValueError(f"{text!r} is not CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME")
    return (SniPair(files[0], files[1], _names(hosts)),)


def _load_sni(value: Any) -> tuple[SniPair, ...]:
    return tuple(pair for text in _load_names(value) for pair in _sni(text))


def _dump_sni(value: tuple[SniPair, ...]) -> list[str]:
    return [f"{pair.certificate},{pair.key}" + (":" + ",".join(pair.names) if pair.names else "") for pair in value]


def _dump_gates(value: Mapping[str, bool]) -> dict[str, bool]:
    return dict(value)


REFRESH: Kind[str] = Kind(
    "never, missing or always", _refresh, lambda value: _refresh(str(value)), bare=Refresh.ALWAYS.value
)
DRAIN: Kind[str] = Kind("never, leaving or cordoned", _drain, lambda value: _drain(str(value)))
TEXT: Kind[str] = Kind("text", str, _text)
BOOLEAN: Kind[bool] = Kind("true or false", _boolean, _load_boolean, bare=True)
WHOLE: Kind[int] = Kind("whole number", _whole, _load_whole)
NUMBER: Kind[float] = Kind("number", _number, _load_number)
DURATION: Kind[float] = Kind("duration", durations.parse, lambda value: durations.parse(_text(value)), durations.spell)
NAMES: Kind[tuple[str, ...]] = Kind("list", _names, _load_names, list, lists=True)
CONTROLLERS: Kind[tuple[str, ...]] = Kind(
    "list",
    _controllers,
    lambda value: controller_names.select_controllers(_load_names(value)),
    controller_names.spell_controllers,
)
SNI: Kind[tuple[SniPair, ...]] = Kind("certificate,key[:names]", _sni, _load_sni, _dump_sni, lists=True)
GATES: Kind[Mapping[str, bool]] = Kind("gate=true or false, ...", feature_gates.parse, feature_gates.check, _dump_gates)

# SPDX-License-Identifier: Apache-2.0
"""Digests of desired states, for `LoadBalancers.fingerprint`. Pure.

The cloud stores the fingerprints. A release that computes another fingerprint for the same Service writes every load
balancer once after the upgrade. So a digest depends on keys and values alone. A field at its default is left out: a
release can add a field, and Services that do not use it keep their fingerprint. A renamed field keeps its former key:
`new_name: str = field(default="", metadata=counted("former_name"))`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, NamedTuple

#: Hexadecimal digits of a digest, unless a caller needs fewer: two digests and a dash fit into the value of a label.
DIGITS = 24

#: Metadata of a field that does not count.
NOT_COUNTED: Mapping[str, Any] = {"fingerprint": None}


class Counted(NamedTuple):
    """How a field counts in a digest: under `key`, with its value, or with what `convert` makes of the value."""

    key: str
    convert: Callable[[Any], Any] | None = None


def counted(key: str, convert: Callable[[Any], Any] | None = None) -> Mapping[str, Any]:
    """Return the metadata of a field that counts under another key than its name, or with a converted value."""
    return {"fingerprint": Counted(key, convert)}


def subjects(warnings: Iterable[str]) -> list[str]:
    """Return what warnings are about: the part before the colon. A later release may rewrite the rest."""
    return [warning.partition(":")[0] for warning in warnings]


def desired_digest(desired: Any, length: int = DIGITS) -> str:
    """Return a digest of dataclasses, mappings, sequences, sets of strings, and plain values. Raises TypeError for any
    other value."""
    return digest(json.dumps(desired, sort_keys=True, default=_counting), length)


def digest(text: str, length: int) -> str:
    """Return the first `length` hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


@cache
def keys(kind: type) -> Mapping[str, tuple[Counted, Any]]:
    """Return, by field name, how each field of a dataclass enters the digest, and its default.

    The default is `dataclasses.MISSING` for a field without one, which always enters. Fields that never enter are left
    out. Raises TypeError if two fields have the same key.
    """
    every = {}
    for field in dataclasses.fields(kind):
        how = field.metadata.get("fingerprint", Counted(field.name))
        if how is not None:
            factory = field.default_factory
            every[field.name] = (how, field.default if factory is dataclasses.MISSING else factory())
    if len({how.key for how, _ in every.values()}) < len(every):
        raise TypeError(f"{kind.__name__}: two fields have one key in fingerprints")
    return every


def _counting(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        present = ((how, default, getattr(value, name)) for name, (how, default) in keys(type(value)).items())
        return {
            how.key: own if how.convert is None else how.convert(own) for how, default, own in present if own != default
        }
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a desired state contains a {type(value).__name__}, whose text may differ between processes")

# SPDX-License-Identifier: Apache-2.0
"""Records the owner of a load balancer and its last write, in a mark that the controller stores in the cloud. Pure.

Only members of the project can write tags and labels, so a Service cannot forge a mark. The format depends on what the
cloud supports: one tag, many labels, or tags of key and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import quote

from ccm.cloud import LoadBalancerSpec

from .digests import digest

Row = TypeVar("Row")

#: Hexadecimal digits of the digest of a name in a mark. Users choose the names of Services, and if the digest were
#: short, they could find another name with the same digest.
DIGITS = 16
#: The values that labels of most clouds accept, like those of Kubernetes.
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True)
class Mark:
    """The mark of a Service on its load balancer.

    `cluster`: the result of `cluster_tag`. `name`: a digest of the load balancer's name, so that the load balancer can
    be found by UID alone. `fingerprint`: that of the last write. `flags`: letters whose meaning the provider defines.
    `namespace`: "" in marks of older versions.
    """

    cluster: str
    uid: str
    name: str
    fingerprint: str = ""
    flags: str = ""
    namespace: str = ""

    #: The prefix of a mark in the form of one tag.
    PREFIX: ClassVar[str] = "ccm:v1"

    @classmethod
    def made_for(cls, spec: LoadBalancerSpec, name: str, fingerprint: str, flags: str = "") -> Self:
        """Return the mark of a Service. `name`: the provider's name for its load balancer."""
        named = digest(name, DIGITS)
        return cls(cluster_tag(spec.cluster), spec.uid, named, fingerprint, flags, namespace_tag(spec.namespace))

    def is_of(self, cluster: str, uid: str) -> bool:
        """Return whether the mark belongs to this Service of this cluster."""
        return self.uid == uid and self.cluster in (cluster_tag(cluster), label_text(cluster_tag(cluster)))

    def names(self, text: str) -> bool:
        """Return whether this is the name whose digest the mark has."""
        return len(self.name) in (8, DIGITS) and self.name == digest(text, len(self.name))

    # One tag: `ccm:v1:CLUSTER:UID:NAME:FINGERPRINT:FLAGS:NAMESPACE`.

    @classmethod
    def parse(cls, tag: str) -> Self | None:
        """Return the mark in a tag, None for any other tag."""
        prefix, _, rest = tag.partition(f"{cls.PREFIX}:")
        parts = rest.split(":")
        return cls(*parts) if not prefix and len(parts) in (5, 6) else None

    def __str__(self) -> str:
        parts = (self.PREFIX, self.cluster, self.uid, self.name, self.fingerprint, self.flags)
        return ":".join((*parts, self.namespace) if self.namespace else parts)

    # Many labels: `prefix` + "cluster", `prefix` + "uid", ..., with values of at most 63 characters.

    def labels(self, prefix: str) -> dict[str, str]:
        """Return labels whose keys begin with `prefix`, without empty fields. A value that does not fit is hashed."""
        labels = {f"{prefix}{field.name}": label_text(getattr(self, field.name)) for field in fields(self)}
        return {key: value for key, value in labels.items() if value}

    @classmethod
    def from_labels(cls, labels: Mapping[str, Any], prefix: str) -> Self | None:
        """Return the mark in these labels, None if there is none."""
        if not (labels.get(f"{prefix}cluster") and labels.get(f"{prefix}uid")):
            return None
        return cls(**{field.name: str(labels.get(f"{prefix}{field.name}", "")) for field in fields(cls)})

    # Tags of key and value, as a list: [{"Key": `prefix` + "cluster", "Value": "..."}, ...].

    def pairs(self, prefix: str, *, key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
        """Return tags of key and value; `key` and `value` are the cloud's names for them."""
        return [{key: name, value: text} for name, text in self.labels(prefix).items()]

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[Mapping[str, Any]], prefix: str, *, key: str = "Key", value: str = "Value"
    ) -> Self | None:
        """Return the mark in these tags, None if there is none."""
        return cls.from_labels({str(each.get(key)): each.get(value, "") for each in pairs}, prefix)


def choose(
    rows: Iterable[Row], is_own: Callable[[Row], bool], age: Callable[[Row], Any]
) -> tuple[Row | None, tuple[Row, ...]]:
    """Return two values: the load balancer of a Service (None if there is none), and its redundant load balancers.

    If several have the Service's mark, the oldest counts. The others come from requests that the cloud carried out
    although their answers were lost. `age` sorts the oldest first, and is unique.
    """
    marked = sorted((row for row in rows if is_own(row)), key=age)
    return (marked[0], tuple(marked[1:])) if marked else (None, ())


def is_known(spec: LoadBalancerSpec, addresses: Iterable[str], more: Sequence[str] = ()) -> bool:
    """Return whether a load balancer without a mark belongs to this Service: the Service's status, which only
    controllers write, contains one of the load balancer's addresses. Names prove nothing, because many clusters use the
    same ones. `more`: further addresses that prove it."""
    known = {ingress.ip for ingress in spec.ingress} | set(more)
    return bool((known - {""}) & set(addresses))


def cluster_tag(cluster: str) -> str:
    """Return the name of a cluster for a mark: percent-encoded, or a digest if that is too long."""
    return _tag_text(cluster, 80)


def namespace_tag(namespace: str) -> str:
    """Return a namespace for a mark, unchanged: Kubernetes allows only 63 letters, digits and dashes."""
    return _tag_text(namespace, 63)


def label_text(text: str) -> str:
    """Return a text as the value of a label: unchanged, or its digest if it does not fit."""
    return text if LABEL_VALUE.fullmatch(text) else f"sha256-{digest(text, 24)}"


@lru_cache(maxsize=1_000)
def _tag_text(text: str, longest: int) -> str:
    quoted = quote(text, safe="", errors="replace")
    return quoted if len(quoted) <= longest else f"sha256-{digest(text, 24)}"

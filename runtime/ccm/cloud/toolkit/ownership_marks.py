# SPDX-License-Identifier: Apache-2.0
"""Whose a load balancer is, and what was written to it last: a mark that the controller leaves in the cloud. Pure.

Only members of the project write tags and labels, so a mark cannot be forged by a Service. It is kept in the form that
the cloud has room for: one tag, many labels, or tags of key and value.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar
from urllib.parse import quote

from ccm.cloud import LoadBalancerSpec

Row = TypeVar("Row")

#: Hexadecimal digits of the digest of a name in a mark. Who creates Services chooses names: of a short digest they find
#: another name that has it.
DIGITS = 16
#: What labels of most clouds hold, as those of Kubernetes.
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@dataclass(frozen=True)
class Mark:
    """The mark of a Service on its load balancer.

    `cluster`: as `cluster_tag` makes it. `name`: a digest of the name that belongs with it, so that the load balancer
    is found when only the UID is known. `fingerprint`: of what was written last. `flags`: letters with a meaning of the
    provider's own. `namespace`: "" in marks of before there was one.
    """

    cluster: str
    uid: str
    name: str
    fingerprint: str = ""
    flags: str = ""
    namespace: str = ""

    #: The beginning of a mark that is one tag.
    PREFIX: ClassVar[str] = "ccm:v1"

    @classmethod
    def made_for(cls, spec: LoadBalancerSpec, name: str, fingerprint: str, flags: str = "") -> Self:
        """`name`: of the Service's load balancer, as the provider calls it."""
        named = digest(name, DIGITS)
        return cls(cluster_tag(spec.cluster), spec.uid, named, fingerprint, flags, namespace_tag(spec.namespace))

    def is_of(self, cluster: str, uid: str) -> bool:
        """Whether it is this Service's of this cluster."""
        return self.uid == uid and self.cluster in (cluster_tag(cluster), label_text(cluster_tag(cluster)))

    def names(self, text: str) -> bool:
        """Whether a name is the one that belongs with it."""
        return len(self.name) in (8, DIGITS) and self.name == digest(text, len(self.name))

    # One tag: `ccm:v1:CLUSTER:UID:NAME:FINGERPRINT:FLAGS:NAMESPACE`.

    @classmethod
    def parse(cls, tag: str) -> Self | None:
        """The mark that a tag is, None for any other tag."""
        prefix, _, rest = tag.partition(f"{cls.PREFIX}:")
        parts = rest.split(":")
        return cls(*parts) if not prefix and len(parts) in (5, 6) else None

    def __str__(self) -> str:
        parts = (self.PREFIX, self.cluster, self.uid, self.name, self.fingerprint, self.flags)
        return ":".join((*parts, self.namespace) if self.namespace else parts)

    # Many labels: PREFIX-cluster, PREFIX-uid, ..., with values of at most 63 characters.

    def labels(self, prefix: str) -> dict[str, str]:
        """As labels whose keys begin with `prefix`. What is empty is left out; what does not fit is its digest."""
        found = {f"{prefix}{field.name}": label_text(getattr(self, field.name)) for field in fields(self)}
        return {key: value for key, value in found.items() if value}

    @classmethod
    def from_labels(cls, labels: Mapping[str, Any], prefix: str) -> Self | None:
        """The mark in these labels, None where there is none."""
        found = {field.name: str(labels.get(f"{prefix}{field.name}", "")) for field in fields(cls)}
        return cls(**found) if found["cluster"] and found["uid"] else None

    # Tags of key and value, as a list: [{"Key": "PREFIX-cluster", "Value": "..."}, ...].

    def pairs(self, prefix: str, *, key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
        """As tags of key and value; `key` and `value` are what the cloud calls them."""
        return [{key: name, value: text} for name, text in self.labels(prefix).items()]

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[Mapping[str, Any]], prefix: str, *, key: str = "Key", value: str = "Value"
    ) -> Self | None:
        """The mark in these tags, None where there is none."""
        return cls.from_labels({str(each.get(key)): each.get(value, "") for each in pairs}, prefix)


def choose(
    rows: Iterable[Row], is_own: Callable[[Row], bool], age: Callable[[Row], Any]
) -> tuple[Row | None, tuple[Row, ...]]:
    """The load balancer of a Service among all, and those that are superfluous.

    Of several with the Service's mark the oldest counts: the others were made by requests whose answers were lost, and
    that were carried out after all. `age` sorts the oldest first, and never two the same.
    """
    marked = sorted((row for row in rows if is_own(row)), key=age)
    return (marked[0], tuple(marked[1:])) if marked else (None, ())


def is_known(spec: LoadBalancerSpec, addresses: Iterable[str], more: Sequence[str] = ()) -> bool:
    """Whether a load balancer without a mark is this very Service's: the status of the Service, which only controllers
    write, has one of its addresses. Names prove nothing, since many clusters have the same ones. `more`: further
    addresses that are believed."""
    known = {each.ip for each in spec.ingress} | set(more)
    return bool((known - {""}) & set(addresses))


def cluster_tag(cluster: str) -> str:
    """A cluster's name as it stands in a mark: without separators, and short enough."""
    return _tag_text(cluster, 80)


def namespace_tag(namespace: str) -> str:
    """A namespace as it stands in a mark: as it is, because Kubernetes allows 63 letters, digits and dashes."""
    return _tag_text(namespace, 63)


def label_text(text: str) -> str:
    """A text as the value of a label: as it is, or its digest where it does not fit."""
    return text if LABEL_VALUE.fullmatch(text) else f"sha256-{digest(text, 24)}"


def digest(text: str, length: int) -> str:
    """Hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:length]


def _tag_text(text: str, longest: int) -> str:
    quoted = quote(text, safe="", errors="replace")
    return quoted if len(quoted) <= longest else f"sha256-{digest(text, 24)}"

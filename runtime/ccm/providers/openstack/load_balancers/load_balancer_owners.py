# SPDX-License-Identifier: Apache-2.0
"""Names and tags that record which Service a load balancer belongs to. No I/O.

Names and tags are exactly those of cloud-provider-openstack, so that either controller finds what the other one
created. In addition, every Service that uses a load balancer has one tag of ours on it (`Mark`), which records the
Service's UID and what was last written. Only members of the project write tags, so a Service cannot forge a Mark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ccm.cloud import Conflict, KeptLoadBalancer, LoadBalancerSpec
from ccm.cloud.toolkit import kept_load_balancers, ownership_marks
from ccm.cloud.toolkit.digests import digest

Row = Mapping[str, Any]

#: The prefix of the tags by which cloud-provider-openstack counts the Services that share a load balancer.
SERVICE_PREFIX = "kube_service_"
#: Tag of a load balancer whose floating IP must not be deleted with it. Either the floating IP existed before, or the
#: Service that the load balancer was created for is gone, left the load balancer to others, and keeps the floating IP.
KEEP_FLOATING = "ccm:keep-floatingip"
#: Prefixes of two tags: of a load balancer that is kept for a cluster and namespace, and of one that was taken back.
KEPT, TAKEN_BACK = "ccm:kept:v1:", "ccm:taken-back:"
#: The maximum length of a name, description or tag.
LONGEST = 255
#: How many tags are remembered with their marks.
REMEMBERED = 10_000


def load_balancer_name(cluster: str, namespace: str, name: str) -> str:
    return f"{SERVICE_PREFIX}{cluster}_{namespace}_{name}"[:LONGEST]


def default_name(uid: str) -> str:
    """Return the name of load balancers in former releases, which did not use the Service's name."""
    return LoadBalancerSpec("", uid, "", "", ()).default_name


def names_of(spec: LoadBalancerSpec) -> set[str]:
    """Return the names that the Service's own load balancer may have; empty if only its UID is known."""
    return {load_balancer_name(spec.cluster, spec.namespace, spec.name), spec.default_name} if spec.name else set()


@dataclass(frozen=True)
class Mark(ownership_marks.Mark):
    """The tag of a Service on its load balancer.

    `name`: a digest of the Service's cloud-provider-openstack tag, so that both can be removed if only the UID is
    known. `flags`: f, the load balancer has a floating IP; k, the floating IP outlives the Service; p, the Service uses
    the PROXY protocol; h, the Service's status shows a host name; g, the Service has a security group; n, the Service
    protects the load balancer; l, the load balancer outlives the Service; d, the Service's status shows an address of
    each family.
    """

    @classmethod
    def of(cls, spec: LoadBalancerSpec, fingerprint: str, flags: str = "") -> Mark:
        return cls.made_for(spec, load_balancer_name(spec.cluster, spec.namespace, spec.name), fingerprint, flags)


@lru_cache(maxsize=REMEMBERED)
def _parsed(tag: str) -> Mark | None:
    """Return the Mark in a tag, None if the tag is not one. Results are cached, because listings repeat their tags."""
    return Mark.parse(tag)


def marks(row: Row) -> list[Mark]:
    return [mark for tag in row.get("tags") or () if (mark := _parsed(tag)) is not None]


def own_mark(row: Row, cluster: str, uid: str) -> Mark | None:
    return next((mark for mark in marks(row) if mark.is_of(cluster, uid)), None)


class Listing(dict[str, Row]):
    """Load balancers by ID, from one read. Nothing may change a listing: all Services that read at that time share it,
    so each tag is parsed once for all of them."""

    @classmethod
    def of(cls, rows: Mapping[str, Row]) -> Listing:
        return rows if isinstance(rows, cls) else cls(rows)

    def with_uid(self, uid: str) -> Sequence[Row]:
        """Return the load balancers with a mark of a Service with this UID, of any cluster."""
        return self._by_uid.get(uid, ())

    @cached_property
    def _by_uid(self) -> Mapping[str, Sequence[Row]]:
        rows_by_uid: dict[str, list[Row]] = defaultdict(list)
        for row in self.values():
            for mark in marks(row):
                of_uid = rows_by_uid[mark.uid]
                if not (of_uid and of_uid[-1] is row):  # the row may have several marks with this UID
                    of_uid.append(row)
        return dict(rows_by_uid)


def foreign_marks(row: Row, uid: str) -> list[Mark]:
    """Return the marks of other Services, of any cluster."""
    return [mark for mark in marks(row) if mark.uid != uid]


def service_tags(row: Row) -> list[str]:
    """Return the cloud-provider-openstack tags of all Services that use the load balancer."""
    return [tag for tag in row.get("tags") or () if tag.startswith(SERVICE_PREFIX)]


def tags_with(row: Row, name: str, owner: Mark) -> list[str]:
    """Return all tags, with those of one Service updated."""
    others = [
        tag
        for tag in row.get("tags") or ()
        if tag != name and ((mark := Mark.parse(tag)) is None or (mark.cluster, mark.uid) != (owner.cluster, owner.uid))
    ]
    return [*others, name, str(owner)]


def tags_without(row: Row, owner: Mark | None, name: str) -> list[str]:
    """Return all tags except those of one Service. `name`: its load balancer's name, if known.

    The tag with that name stays if the Mark of another Service with this name needs it.
    """
    others = [mark for mark in marks(row) if owner is None or mark.uid != owner.uid]
    return [
        tag
        for tag in row.get("tags") or ()
        if any(other.names(tag) for other in others)
        or not (tag == name or (owner is not None and (tag == str(owner) or owner.names(tag))))
    ]


def kept_tag(spec: LoadBalancerSpec, owner: Mark | None) -> str:
    """Return the tag of a load balancer that is kept. If only the UID is known, the owner's mark has the namespace."""
    namespace = ownership_marks.namespace_tag(spec.namespace) or (owner.namespace if owner is not None else "")
    return f"{KEPT}{ownership_marks.cluster_tag(spec.cluster)}:{namespace}"


def kept_for(row: Row) -> tuple[str, str] | None:
    """Return cluster and namespace that a load balancer is kept for, None if it is not kept."""
    tag = next((tag for tag in row.get("tags") or () if tag.startswith(KEPT)), "")
    cluster, _, namespace = tag.removeprefix(KEPT).partition(":")
    return (cluster, namespace) if tag else None


def kept(rows: Iterable[Row], cluster: str, floating: Mapping[str, str]) -> list[KeptLoadBalancer]:
    """Return the load balancers that a cluster keeps. `floating`: port -> the address of its floating IP."""
    return [
        KeptLoadBalancer(str(row["name"]), whose[1], floating.get(str(row["vip_port_id"]), str(row["vip_address"])))
        for row in rows
        if (whose := kept_for(row)) is not None and whose[0] == ownership_marks.cluster_tag(cluster)
    ]


def to_take_back(rows: Iterable[Row], spec: LoadBalancerSpec, family: str) -> Row:
    """Return the kept load balancer that the Service requests, by name or ID. Raises Conflict if there is none, if
    several have the name, or if its address is not of this family."""
    whose = ownership_marks.cluster_tag(spec.cluster), ownership_marks.namespace_tag(spec.namespace)
    matches = [row for row in rows if spec.take_back in (row["name"], row["id"]) and kept_for(row) == whose]
    if not matches:
        raise kept_load_balancers.nothing_kept(spec)
    if len(matches) > 1:
        ids = ", ".join(sorted(str(row["id"]) for row in matches))
        raise Conflict(f"{len(matches)} load balancers {spec.take_back} are kept: take one back by ID, one of {ids}")
    if (":" in str(matches[0]["vip_address"])) != (family == "IPv6"):
        raise Conflict(
            f"load balancer {matches[0]['id']} has the address {matches[0]['vip_address']}, which is not {family}"
        )
    return matches[0]


def taken_back_tag(spec: LoadBalancerSpec) -> str:
    return f"{TAKEN_BACK}{digest(spec.take_back, ownership_marks.DIGITS)}"


def taken_back(row: Row, owner: Mark, name: str, spec: LoadBalancerSpec) -> list[str]:
    """Return the tags of a kept load balancer that a Service takes back. The load balancer also gets a new name, made
    from the Service's, so only the last tag shows which one was taken back."""
    others = [tag for tag in row.get("tags") or () if not tag.startswith((KEPT, TAKEN_BACK))]
    return [*others, name, str(owner), taken_back_tag(spec)]


def check_same(row: Row, spec: LoadBalancerSpec) -> None:
    """Raises Conflict if a Service that has this load balancer requests to take back another one."""
    if taken_back_tag(spec) not in (row.get("tags") or ()) and spec.take_back != row["id"]:
        kept_load_balancers.check_same(spec, str(row["name"]))


def is_owner(row: Row, owner: Mark) -> bool:
    """Return whether the load balancer was created for the Service with this Mark. The name of that Service may be
    unknown."""
    name = str(row.get("name") or "")
    return owner.names(name) or name == default_name(owner.uid)


def is_outdated(owner: Mark | None, digest: str) -> bool:
    """Return whether the load balancer has the Service's tag, which records a different digest of the members."""
    return owner is not None and not owner.fingerprint.endswith(f"-{digest}")

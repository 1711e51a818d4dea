# SPDX-License-Identifier: Apache-2.0
"""Names and tags that say whose a load balancer is. Pure.

Names and tags are those of cloud-provider-openstack, byte for byte, so that either controller finds what the other one
made. Beside them every Service that uses a load balancer has one tag of ours on it (`Mark`), which says for certain
whose it is and what was written last. Only members of the project write tags, so a Mark cannot be forged by a Service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ccm.cloud import LoadBalancerSpec
from ccm.cloud.toolkit import ownership_marks

Row = Mapping[str, Any]

#: cloud-provider-openstack counts the Services that share a load balancer by this prefix of its tags.
SERVICE_PREFIX = "kube_service_"
#: Tag of a load balancer whose floating IP is not to be deleted with it: it was there before the load balancer, or the
#: Service that the load balancer was made for left it to others and keeps the floating IP.
KEEP_FLOATING = "ccm:keep-floatingip"
#: The longest name, description or tag.
LONGEST = 255


def load_balancer_name(cluster: str, namespace: str, name: str) -> str:
    return f"{SERVICE_PREFIX}{cluster}_{namespace}_{name}"[:LONGEST]


def default_name(uid: str) -> str:
    """The name that load balancers had before they were called by their Service."""
    return LoadBalancerSpec("", uid, "", "", ()).default_name


def names_of(spec: LoadBalancerSpec) -> set[str]:
    """The names that the Service's own load balancer may have; empty where no more than its UID is known."""
    return {load_balancer_name(spec.cluster, spec.namespace, spec.name), spec.default_name} if spec.name else set()


@dataclass(frozen=True)
class Mark(ownership_marks.Mark):
    """The tag that a Service has on its load balancer.

    `name`: a digest of the tag of cloud-provider-openstack's that belongs with it, so that both go when only the UID is
    known. `flags`: f, it has a floating IP; k, which is kept in the end; p, its address is a proxy's; h, the Service's
    status shows a host name.
    """

    @classmethod
    def of(cls, spec: LoadBalancerSpec, fingerprint: str, flags: str = "") -> Mark:
        return cls.made_for(spec, load_balancer_name(spec.cluster, spec.namespace, spec.name), fingerprint, flags)


def marks(row: Row) -> list[Mark]:
    return [mark for tag in row.get("tags") or () if (mark := Mark.parse(tag)) is not None]


def own_mark(row: Row, cluster: str, uid: str) -> Mark | None:
    return next((mark for mark in marks(row) if mark.is_of(cluster, uid)), None)


def foreign_marks(row: Row, uid: str) -> list[Mark]:
    """Those of other Services, of whatever cluster."""
    return [mark for mark in marks(row) if mark.uid != uid]


def service_tags(row: Row) -> list[str]:
    """Of all Services that use it, as cloud-provider-openstack tags them."""
    return [tag for tag in row.get("tags") or () if tag.startswith(SERVICE_PREFIX)]


def tags_with(row: Row, name: str, mark: Mark) -> list[str]:
    """All tags, with those of one Service as they should be."""
    others = [
        tag
        for tag in row.get("tags") or ()
        if tag != name
        and ((found := Mark.parse(tag)) is None or (found.cluster, found.uid) != (mark.cluster, mark.uid))
    ]
    return [*others, name, str(mark)]


def tags_without(row: Row, mark: Mark | None, name: str) -> list[str]:
    """All tags but those of one Service. `name`: its load balancer's name, where it is known.

    The tag of that name stays where the Mark of another Service of this name needs it.
    """
    others = [each for each in marks(row) if mark is None or each.uid != mark.uid]
    return [
        tag
        for tag in row.get("tags") or ()
        if any(each.names(tag) for each in others)
        or not (tag == name or (mark is not None and (tag == str(mark) or mark.names(tag))))
    ]


def is_owner(row: Row, mark: Mark) -> bool:
    """Whether it was made for the Service with this Mark, of which we may know no more than the UID."""
    name = str(row.get("name") or "")
    return mark.names(name) or name == default_name(mark.uid)

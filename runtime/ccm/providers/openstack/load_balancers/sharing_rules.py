# SPDX-License-Identifier: Apache-2.0
"""Decides which load balancer is a Service's, and which it may share with others (`[LoadBalancer] sharing`). No I/O.

The author of a Service is not trusted with the project, so an annotation proves nothing, unless `sharing = project`. A
Mark, which only controllers write, is proof. So is an address in the Service's status, which Kubernetes lets only
controllers write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ccm.cloud import Conflict, Invalid, LoadBalancerSpec
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.ownership_marks import choose as choose_marked
from ccm.cloud.toolkit.ownership_marks import cluster_tag, is_known, namespace_tag

from ..annotations import PREFIX
from .load_balancer_owners import (
    SERVICE_PREFIX,
    Listing,
    Mark,
    Row,
    foreign_marks,
    is_owner,
    kept_for,
    load_balancer_name,
    marks,
    names_of,
    own_mark,
    service_tags,
    tags_without,
)

#: Octavia's states of load balancers that are gone or about to be.
GOING = ("DELETED", "PENDING_DELETE")
#: The setting to change, for messages.
OPTION = "sharing in [LoadBalancer] of cloud.conf"


@dataclass(frozen=True)
class Choice:
    """The result of `choose`: the Service's load balancer, or candidates that need proof.

    `owner`: whether the load balancer was created for this Service; otherwise the Service shares it. `superfluous`:
    others that were created for this Service, by requests whose answers were lost. `candidates`: load balancers for
    which `proves` must decide whether they are the Service's.
    """

    row: Row | None = None
    owner: bool = True
    superfluous: tuple[Row, ...] = ()
    candidates: tuple[Row, ...] = ()


def choose(
    rows: Mapping[str, Row], spec: LoadBalancerSpec, sharing: str, named: str = "", *, to_delete: bool = False
) -> Choice:
    """Choose among all load balancers.

    `named`: the ID in the Service's annotation `load-balancer-id`, "" if it has none or may not have one.

    A Mark decides first; with `to_delete`, nothing else counts if there is a Mark. Next comes the ID. If
    cloud-provider-openstack wrote the ID, with the address, and that load balancer is gone, a new one is created. Last
    comes the name, unless the load balancer has a namesake's Mark. Marks of other Services that share the load balancer
    do not count.

    Raises Invalid if a user chose an ID that no load balancer has. Raises Conflict if the Service has another load
    balancer, or if the one with the ID is kept, belongs to a namesake, or may not be used according to `sharing`.
    """
    names = names_of(spec)
    first, superfluous = choose_marked(
        Listing.of(rows).with_uid(spec.uid),
        lambda row: own_mark(row, spec.cluster, spec.uid) is not None,
        age=lambda row: (str(row.get("created_at") or ""), row["id"]),
    )
    if named and not (first is not None and to_delete):
        row = rows.get(named)
        if row is not None and (whose := kept_for(row)) is not None and not to_delete:
            raise kept_load_balancers.kept_for_another(f"load balancer {named}", whose[1])
        if row is not None and first is not None and first is not row:
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: the Service already has load balancer {first['id']} and cannot "
                f"move to {named}: delete the Service and create it again"
            )
        if row is not None and first is None:
            return _of_another(row, spec, sharing, names, to_delete)
        if first is None and not to_delete and not spec.annotations.get(f"{PREFIX}load-balancer-address"):
            raise Invalid(f"annotation {PREFIX}load-balancer-id: this project has no load balancer {named}")
    if first is not None:
        mark = own_mark(first, spec.cluster, spec.uid)
        owner = first.get("name") in names if names else mark is not None and is_owner(first, mark)
        return Choice(first, owner, superfluous)
    return Choice(
        candidates=tuple(
            row
            for row in rows.values()
            if row.get("name") in names
            and not _of_a_namesake(row, spec)
            and row.get("provisioning_status") not in GOING
            and kept_for(row) is None
        )
    )


def _of_a_namesake(row: Row, spec: LoadBalancerSpec) -> bool:
    """Return whether a load balancer has the Mark of a namesake: of a Service with the same cluster name, namespace and
    name, but another UID."""
    name = load_balancer_name(spec.cluster, spec.namespace, spec.name)
    return any(mark.names(name) for mark in foreign_marks(row, spec.uid))


def may_be_ours(rows: Iterable[Row], spec: LoadBalancerSpec) -> list[Row]:
    """Return load balancers that no rule assigns to the Service but that may be its own.

    They have its name and a namesake's Mark, or its namespace and name with another cluster's name. If the Service's
    status has the address of one of them, no second one is created.
    """
    if not spec.name:
        return []
    suffix = f"_{spec.namespace}_{spec.name}"
    return [
        row
        for row in rows
        if row.get("provisioning_status") not in GOING
        and kept_for(row) is None
        and (
            (name := str(row.get("name") or "")) in names_of(spec)
            or (name.startswith(SERVICE_PREFIX) and name.endswith(suffix))
        )
    ]


def of_former_name(rows: Mapping[str, Row], spec: LoadBalancerSpec) -> Row | None:
    """Return a load balancer with this Service's Mark but another cluster name, None without one.

    Either this cluster had the other name before, or it is a copy of the other cluster. Nothing shows which of the two
    is true, so the load balancer is not used, and no second one is created.
    """
    marked = Listing.of(rows).with_uid(spec.uid)
    return next((row for row in marked if row.get("provisioning_status") not in GOING), None)


def refusal_of_a_second(row: Row, spec: LoadBalancerSpec) -> Conflict:
    """Return the error for a load balancer found by `of_former_name` or `may_be_ours`, with what to do.

    The caller raises it so that the Service neither gets a second load balancer nor is deleted without its first one.
    """
    clusters = ", ".join(repr(mark.cluster) for mark in marks(row) if mark.uid == spec.uid)
    others = ", ".join(mark.uid for mark in foreign_marks(row, spec.uid))
    if clusters:
        why = f"has the tag of this Service, but of cluster {clusters}"
    elif others:
        why = f"has the address in this Service's status, but the tag of the Service with UID {others}"
    else:
        why = "has the address in this Service's status, but neither its name nor its tag"
    return Conflict(
        f"load balancer {row['id']} ({row.get('name')}) {why}. This cluster is named {spec.cluster!r}: if it had "
        "another name before, set --cluster-name back to that. If the load balancer belongs to another cluster or "
        "Service, delete this Service and create it again; to delete it without the load balancer, remove its finalizer"
    )


# Releasing a load balancer


@dataclass(frozen=True)
class Claim:
    """How a load balancer, or a part of it, is recognised as a Service's.

    `name`: of its load balancer, "" if only the Service's UID is known. `owner`: it was created for the Service.
    """

    uid: str
    name: str
    mark: Mark | None
    owner: bool

    @classmethod
    def of(cls, spec: LoadBalancerSpec, row: Row, *, owner: bool) -> Claim:
        name = load_balancer_name(spec.cluster, spec.namespace, spec.name) if spec.name else ""
        return cls(spec.uid, name, own_mark(row, spec.cluster, spec.uid), owner)

    def has(self, tag: str) -> bool:
        """Return whether a tag, of the load balancer or of a listener, is the Service's."""
        return bool(tag) and (tag == self.name or (self.mark is not None and self.mark.names(tag)))

    def is_used_by(self, row: Row) -> bool:
        """Return whether the Service uses the load balancer."""
        return self.owner or self.mark is not None or self.name in (row.get("tags") or ())

    def service_tag(self, row: Row, left: Iterable[str]) -> str:
        """Return the tag of the Service's listeners. `left`: the tags that stay when the Service leaves."""
        stay = set(left)
        gone = (tag for tag in row.get("tags") or () if tag not in stay and Mark.parse(tag) is None)
        return self.name or next(gone, "")


def used_beside(row: Row, listeners: Iterable[Row], claim: Claim) -> tuple[str, ...]:
    """Return what others have on a load balancer, in words; () if only this Service uses it.

    A tag may be lost, because Octavia replaces the whole list at each write. A listener with another Service's tag
    therefore counts as well. A listener without tags is from an older release and goes with the load balancer.
    """
    left = tags_without(row, claim.mark, claim.name)
    users = [f"the tag {tag}" for tag in left if tag.startswith(SERVICE_PREFIX)]
    users += [f"the tag {mark}" for mark in foreign_marks(row, claim.uid)]
    for listener in listeners:
        tags = listener.get("tags") or ()
        if tags and not any(claim.has(tag) for tag in tags):
            users.append(f"listener {listener['id']} with the tag {tags[0]}")
    return tuple(users)


def made_by_a_controller(row: Row, spec: LoadBalancerSpec) -> bool:
    """Return whether the load balancer's name shows that a controller, and not a person, created it, as in
    cloud-provider-openstack."""
    name = str(row.get("name") or "")
    return name.startswith(SERVICE_PREFIX) or name == spec.default_name


def _of_another(row: Row, spec: LoadBalancerSpec, sharing: str, names: set[str], to_delete: bool) -> Choice:
    """Return the choice for a Service that names a load balancer without the Service's Mark. Raises Conflict if the
    Service may not use it."""
    refuse_a_namesakes(row, spec)
    if may_share(row, spec, sharing):
        return Choice(row, row.get("name") in names)
    if row.get("name") in names or names & set(service_tags(row)):
        return Choice(candidates=(row,))
    if to_delete:
        return Choice()
    raise Conflict(
        f"annotation {PREFIX}load-balancer-id: this Service may not use load balancer {row['id']}: {OPTION} is "
        f"{sharing}, {WHOSE[sharing]}; remove the annotation, or ask the cluster's administrator"
    )


#: `sharing` -> its meaning, for messages.
WHOSE = {
    "never": "so each Service has its own load balancer",
    "namespace": "so this Service may use only a load balancer whose tags show a Service of its namespace and cluster",
    "cluster": "so this Service may use only a load balancer whose tags show a Service of its cluster",
    "project": "so any load balancer is allowed",
}


def may_share(row: Row, spec: LoadBalancerSpec, sharing: str) -> bool:
    """Return whether a Service may join a load balancer that does not have its Mark yet.

    Tags of cloud-provider-openstack do not count: all clusters named `kubernetes` write the same ones.
    """
    if sharing == "project":
        return True
    users = [mark for mark in marks(row) if mark.cluster == cluster_tag(spec.cluster)]
    if sharing == "namespace":
        users = [mark for mark in users if mark.namespace and mark.namespace == namespace_tag(spec.namespace)]
    return sharing != "never" and bool(users)


def proves(spec: LoadBalancerSpec, addresses: Iterable[str], sharing: str) -> bool:
    """Return whether a load balancer with the Service's name or tag, and without a Mark, is the Service's own.

    Clusters that are all named "kubernetes" create load balancers of the same name, so the name alone proves nothing:
    the Service must have the address in its status. `addresses`: of the load balancer. With `sharing = project`,
    Services are trusted, and cloud-provider-openstack's annotation counts as well.
    """
    address = spec.annotations.get(f"{PREFIX}load-balancer-address", "").strip()
    return is_known(spec, addresses, [address] if sharing == "project" else [])


def refuse_a_namesakes(row: Row, spec: LoadBalancerSpec) -> None:
    """Raises Conflict if a Service with the same cluster, namespace and name but another UID uses the load balancer.

    Listener tags identify Services by these names, so two namesakes would remove each other's listeners. Services with
    other names can share. cloud-provider-openstack writes no Mark, so the first Service that proves ownership gets its
    load balancer.
    """
    name = load_balancer_name(spec.cluster, spec.namespace, spec.name)
    for mark in foreign_marks(row, spec.uid):
        if mark.names(name):
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: load balancer {row['id']} is used by another Service named "
                f"{spec.namespace}/{spec.name} of a cluster named {spec.cluster!r}, with UID {mark.uid}: remove the "
                "annotation, or choose another --cluster-name; if that Service no longer exists, remove its tag from "
                f"the load balancer: {mark}"
            )


def check_may_join(row: Row, name: str, internal: bool, most: int) -> None:
    """Raises Invalid or Conflict if the Service with load balancer name `name` cannot share this load balancer.

    `internal`: the Service must not be public; `most`: how many Services may share a load balancer.
    """
    others = [tag for tag in service_tags(row) if tag != name]
    if internal:
        raise Invalid(f"an internal Service cannot share load balancer {row['id']}, because it may be public")
    if name not in service_tags(row) and len(others) >= most:
        raise Conflict(
            f"load balancer {row['id']} is already shared by {len(others)} Services; max-shared-lb in "
            f"[LoadBalancer] of cloud.conf is {most}"
        )

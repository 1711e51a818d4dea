# SPDX-License-Identifier: Apache-2.0
"""Which load balancer is a Service's, and which ones of others it may share (`[LoadBalancer] sharing`). Pure.

Who creates Services is not trusted with the project: an annotation proves nothing. What proves something is a Mark,
which only controllers write, and an address in the Service's status, which Kubernetes lets only controllers write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ccm.cloud import Conflict, Invalid, LoadBalancerSpec
from ccm.cloud.toolkit.ownership_marks import choose as choose_marked
from ccm.cloud.toolkit.ownership_marks import cluster_tag, is_known, namespace_tag

from .annotations import PREFIX
from .marks import (
    SERVICE_PREFIX,
    Mark,
    Row,
    foreign_marks,
    is_owner,
    load_balancer_name,
    marks,
    names_of,
    own_mark,
    service_tags,
    tags_without,
)

#: Octavia's states of what is as good as gone.
GOING = ("DELETED", "PENDING_DELETE")
#: Who has to change what, in messages.
OPTION = "sharing in [LoadBalancer] of cloud.conf"


@dataclass(frozen=True)
class Choice:
    """Among all load balancers: the one of a Service, or those that claim to be and must be proved.

    `owner`: it was made for this Service, and not for another one that shares it. `superfluous`: made for it, too, by a
    request whose answer was lost, and that was carried out after all. `candidates`: `proves` says which one is its own.
    """

    row: Row | None = None
    owner: bool = True
    superfluous: tuple[Row, ...] = ()
    candidates: tuple[Row, ...] = ()


def choose(
    rows: Iterable[Row], spec: LoadBalancerSpec, sharing: str, named: str = "", *, to_delete: bool = False
) -> Choice:
    """`named`: the ID in the Service's annotation `load-balancer-id`, "" where it has none, or may have none.

    Raises Invalid when there is no load balancer of that ID. Raises Conflict when the Service has another one, when
    that one is a namesake's, and when `sharing` does not let the Service use it.

    A Mark says it for sure; `to_delete`, nothing else counts then. Then the ID counts, which cloud-provider-openstack
    writes onto the Service; if it did, and that load balancer is gone, a new one is made. Then the name, unless the
    Mark of a namesake is there: those of Services that share it do not say whose it is.
    """
    names = names_of(spec)
    every = list(rows)
    first, superfluous = choose_marked(
        every,
        lambda row: own_mark(row, spec.cluster, spec.uid) is not None,
        age=lambda row: (str(row.get("created_at") or ""), row["id"]),
    )
    if named and not (first is not None and to_delete):
        row = next((row for row in every if row["id"] == named), None)
        if row is not None and first is not None and first is not row:
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: the Service is served by load balancer {first['id']} and "
                f"cannot move to {named}: delete it and create it again"
            )
        if row is not None and first is None:
            return _of_another(row, spec, sharing, names, to_delete)
        if first is None and not to_delete and not spec.annotations.get(f"{PREFIX}load-balancer-address"):
            raise Invalid(f"annotation {PREFIX}load-balancer-id: there is no load balancer {named} in this project")
    if first is not None:
        mark = own_mark(first, spec.cluster, spec.uid)
        owner = first.get("name") in names if names else mark is not None and is_owner(first, mark)
        return Choice(first, owner, superfluous)
    return Choice(
        candidates=tuple(
            row
            for row in every
            if row.get("name") in names
            and not _of_a_namesake(row, spec)
            and row.get("provisioning_status") not in GOING
        )
    )


def _of_a_namesake(row: Row, spec: LoadBalancerSpec) -> bool:
    """Whether it carries the Mark of a Service of the same cluster's name, namespace and name, and of another UID."""
    name = load_balancer_name(spec.cluster, spec.namespace, spec.name)
    return any(mark.names(name) for mark in foreign_marks(row, spec.uid))


def may_be_ours(rows: Iterable[Row], spec: LoadBalancerSpec) -> list[Row]:
    """Load balancers that no rule gives to the Service, and that may be its own all the same, if the Service's status
    has their address: one of its name that carries a namesake's Mark, and one of its namespace and name that was made
    under another cluster's name. Then no second one is made beside it."""
    if not spec.name:
        return []
    suffix = f"_{spec.namespace}_{spec.name}"
    return [
        row
        for row in rows
        if row.get("provisioning_status") not in GOING
        and (
            (name := str(row.get("name") or "")) in names_of(spec)
            or (name.startswith(SERVICE_PREFIX) and name.endswith(suffix))
        )
    ]


def of_former_name(rows: Iterable[Row], spec: LoadBalancerSpec) -> Row | None:
    """A load balancer with a Mark of this very Service, and of another cluster's name: this cluster was called so
    before, or it is a copy of that cluster. Which one it is, nobody can tell, so it is neither taken nor doubled."""
    there = (row for row in rows if row.get("provisioning_status") not in GOING)
    return next((row for row in there if any(mark.uid == spec.uid for mark in marks(row))), None)


def refusal_of_a_second(row: Row, spec: LoadBalancerSpec) -> Conflict:
    """Why a Service gets no load balancer beside one of `of_former_name` or `may_be_ours`, nor is let go without it,
    and what to do."""
    clusters = ", ".join(repr(mark.cluster) for mark in marks(row) if mark.uid == spec.uid)
    others = ", ".join(mark.uid for mark in foreign_marks(row, spec.uid))
    if clusters:
        why = f"carries the tag of this very Service, of cluster {clusters}"
    elif others:
        why = f"has the address of this Service's status, and carries the tag of the Service of UID {others}"
    else:
        why = "has the address of this Service's status, and neither its name nor its tag"
    return Conflict(
        f"load balancer {row['id']} ({row.get('name')}) {why}. This cluster is called {spec.cluster!r}: if it had "
        "another name before, set --cluster-name back to that. If the load balancer belongs to another cluster or "
        "Service, delete this Service and create it again; to delete it without the load balancer, remove its finalizer"
    )


# Giving one up


@dataclass(frozen=True)
class Claim:
    """What says that a load balancer, or a part of it, is a Service's.

    `name`: of its load balancer, "" where no more than the Service's UID is known. `owner`: it was made for it.
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
        """Whether a tag, of the load balancer or of a listener, is the Service's."""
        return bool(tag) and (tag == self.name or (self.mark is not None and self.mark.names(tag)))

    def is_used_by(self, row: Row) -> bool:
        """Whether the Service uses the load balancer."""
        return self.owner or self.mark is not None or self.name in (row.get("tags") or ())

    def service_tag(self, row: Row, left: Iterable[str]) -> str:
        """The tag that the Service's listeners have. `left`: the tags that stay when it goes."""
        stay = set(left)
        gone = (tag for tag in row.get("tags") or () if tag not in stay and Mark.parse(tag) is None)
        return self.name or next(gone, "")


def used_beside(row: Row, listeners: Iterable[Row], claim: Claim) -> tuple[str, ...]:
    """What others than the Service have on a load balancer, in words; () when it is the Service's alone.

    A tag may be lost, as Octavia replaces the whole list at each write. So a listener with another Service's tag counts
    as well. One without tags is of a time before tags, and goes with the load balancer.
    """
    left = tags_without(row, claim.mark, claim.name)
    found = [f"the tag {tag}" for tag in left if tag.startswith(SERVICE_PREFIX)]
    found += [f"the tag {mark}" for mark in foreign_marks(row, claim.uid)]
    for listener in listeners:
        tags = listener.get("tags") or ()
        if tags and not any(claim.has(tag) for tag in tags):
            found.append(f"listener {listener['id']} with the tag {tags[0]}")
    return tuple(found)


def made_by_a_controller(row: Row, spec: LoadBalancerSpec) -> bool:
    """And not by a person: its name says it, as in cloud-provider-openstack."""
    name = str(row.get("name") or "")
    return name.startswith(SERVICE_PREFIX) or name == spec.default_name


def _of_another(row: Row, spec: LoadBalancerSpec, sharing: str, names: set[str], to_delete: bool) -> Choice:
    """The Service names a load balancer that has no Mark of it."""
    refuse_a_namesakes(row, spec)
    if may_share(row, spec, sharing):
        return Choice(row, row.get("name") in names)
    if row.get("name") in names or names & set(service_tags(row)):
        return Choice(candidates=(row,))
    if to_delete:
        return Choice()
    raise Conflict(
        f"annotation {PREFIX}load-balancer-id: this Service may not use load balancer {row['id']}: {OPTION} is "
        f"{sharing}, {WHOSE[sharing]}; take the annotation off, or ask who runs the cluster"
    )


#: `sharing` -> what it means, for messages.
WHOSE = {
    "never": "so each Service has one of its own",
    "namespace": "so it must be one that a Service of the same namespace and cluster uses, and whose tag says so",
    "cluster": "so it must be one that a Service of the same cluster uses, and whose tag says so",
    "project": "so it may be any",
}


def may_share(row: Row, spec: LoadBalancerSpec, sharing: str) -> bool:
    """Whether a Service may add itself to a load balancer that has no Mark of it yet.

    Tags of cloud-provider-openstack do not count: every cluster that is called `kubernetes` writes the same ones.
    """
    if sharing == "project":
        return True
    users = [mark for mark in marks(row) if mark.cluster == cluster_tag(spec.cluster)]
    if sharing == "namespace":
        users = [mark for mark in users if mark.namespace and mark.namespace == namespace_tag(spec.namespace)]
    return sharing != "never" and bool(users)


def proves(spec: LoadBalancerSpec, addresses: Iterable[str], sharing: str) -> bool:
    """Whether a load balancer that has the Service's name or tag, and no Mark, is this very Service's.

    Clusters that are all called "kubernetes" make load balancers of the same name, so the name alone proves nothing:
    the Service must have the address in its status. `addresses`: those at which the load balancer is reached. With
    `sharing = project` Services are believed, and cloud-provider-openstack's annotation counts, too.
    """
    said = spec.annotations.get(f"{PREFIX}load-balancer-address", "").strip()
    return is_known(spec, addresses, [said] if sharing == "project" else [])


def refuse_a_namesakes(row: Row, spec: LoadBalancerSpec) -> None:
    """Raises Conflict when a Service of the same cluster's name, namespace and name, and of another UID, uses it.

    Tags of listeners tell Services apart by these names, so that two namesakes would take each other's away. Of other
    names they share. cloud-provider-openstack leaves no Mark: what it made is the first one's who proves it.
    """
    name = load_balancer_name(spec.cluster, spec.namespace, spec.name)
    for mark in foreign_marks(row, spec.uid):
        if mark.names(name):
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: load balancer {row['id']} is used by another Service called "
                f"{spec.namespace}/{spec.name} of a cluster called {spec.cluster!r}, of UID {mark.uid}: take the "
                "annotation off, or choose another --cluster-name; if that Service is no more, take its tag off the "
                f"load balancer: {mark}"
            )


def check_may_join(row: Row, name: str, internal: bool, most: int) -> None:
    """Raises Invalid or Conflict when the Service whose load balancer would be called `name` cannot share this one with
    others: `internal`, it must not be public; `most`, so many Services may share one."""
    others = [tag for tag in service_tags(row) if tag != name]
    if internal:
        raise Invalid(f"an internal Service cannot share load balancer {row['id']}: its owner may be public")
    if name not in service_tags(row) and len(others) >= most:
        raise Conflict(
            f"load balancer {row['id']} is shared by {len(others)} Services already; max-shared-lb in "
            f"[LoadBalancer] of cloud.conf is {most}"
        )

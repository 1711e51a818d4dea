# SPDX-License-Identifier: Apache-2.0
"""Which load balancer is a Service's, and which ones of others it may share (`[LoadBalancer] sharing`). Pure.

Who creates Services is not trusted with the project: an annotation proves nothing. What proves something is a Mark,
which only controllers write, and an address in the Service's status, which Kubernetes lets only controllers write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ccm.cloud import Conflict, Invalid, LoadBalancerSpec

from .annotations import PREFIX
from .marks import (
    Row,
    cluster_tag,
    foreign_marks,
    is_owner,
    load_balancer_name,
    marks,
    names_of,
    namespace_tag,
    own_mark,
    service_tags,
)

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
    writes onto the Service; if it did, and that load balancer is gone, a new one is made. Then the name, unless it is
    another Service's Mark that is there.
    """
    names = names_of(spec)
    every = list(rows)
    marked = sorted(
        (row for row in every if own_mark(row, spec.cluster, spec.uid)),
        key=lambda row: (str(row.get("created_at") or ""), row["id"]),
    )
    if named and not (marked and to_delete):
        row = next((row for row in every if row["id"] == named), None)
        if row is not None and any(each is not row for each in marked):
            raise Conflict(
                f"annotation {PREFIX}load-balancer-id: the Service is served by load balancer {marked[0]['id']} and "
                f"cannot move to {named}: delete it and create it again"
            )
        if row is not None and marked:
            return Choice(row, row.get("name") in names)
        if row is not None:
            return _of_another(row, spec, sharing, names, to_delete)
        if not marked and not to_delete and not spec.annotations.get(f"{PREFIX}load-balancer-address"):
            raise Invalid(f"annotation {PREFIX}load-balancer-id: there is no load balancer {named} in this project")
    if marked:
        mark = own_mark(marked[0], spec.cluster, spec.uid)
        owner = marked[0].get("name") in names if names else mark is not None and is_owner(marked[0], mark)
        return Choice(marked[0], owner, tuple(marked[1:]))
    return Choice(
        candidates=tuple(
            row
            for row in every
            if row.get("name") in names and not marks(row) and row.get("provisioning_status") != "PENDING_DELETE"
        )
    )


def _of_another(row: Row, spec: LoadBalancerSpec, sharing: str, names: set[str], to_delete: bool) -> Choice:
    """The Service names a load balancer that has no Mark of it."""
    _refuse_a_namesakes(row, spec)
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
    known = {each.ip for each in spec.ingress}
    if sharing == "project":
        known.add(spec.annotations.get(f"{PREFIX}load-balancer-address", "").strip())
    return bool((known - {""}) & set(addresses))


def _refuse_a_namesakes(row: Row, spec: LoadBalancerSpec) -> None:
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

# SPDX-License-Identifier: Apache-2.0
"""Decides who owns a load balancer, from the label of hcloud-cloud-controller-manager or from our own mark. Pure.

hcloud-cloud-controller-manager finds load balancers by the Service's UID alone, so it also finds those that this
provider created. The mark adds the cluster and a fingerprint. Labels can be trusted, because only members of the
project can write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ccm.cloud import Conflict, KeptLoadBalancer, LoadBalancerSpec
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.ownership_marks import Mark, choose, cluster_tag, is_known, label_text

from . import load_balancer_rules as rules
from .load_balancer_rules import DesiredState, Row

#: hcloud-cloud-controller-manager finds a load balancer by this label.
UID = "hcloud-ccm/service-uid"
PREFIX = "ccm-outoftree/"
#: The label with the digest of the desired targets, if the load balancer has no room for all.
TARGETS = f"{PREFIX}targets"
#: Labels of a load balancer that is kept without a Service. `KEPT_FOR`: the namespace whose Services may take it back.
#: `CLUSTER`: its cluster.
KEPT_FOR, CLUSTER = f"{PREFIX}kept-for", f"{PREFIX}cluster"


def mark_of(row: Row) -> Mark | None:
    return Mark.from_labels(row["labels"], PREFIX)


def is_own(row: Row, spec: LoadBalancerSpec) -> bool:
    """Return whether the load balancer is the Service's, according to our mark, or to the original's label if there is
    no mark."""
    if (mark := mark_of(row)) is not None:
        return mark.is_of(spec.cluster, spec.uid)
    return bool(row["labels"].get(UID) == spec.uid)


class Rows(list[Row]):
    """All load balancers of one listing, which several Services share. Raises ValueError if one has no labels."""

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self._labelled: dict[str, list[Row]] = {}
        for number, row in enumerate(self):
            if not isinstance(row, Mapping) or not isinstance(row.get("labels"), Mapping):
                raise ValueError(f"load balancer {number} has no labels")
            for text in row["labels"].values():
                self._labelled.setdefault(str(text), []).append(row)

    def labelled(self, uid: str) -> Sequence[Row]:
        """Return the load balancers with this UID as the value of any label. No other load balancer can be the
        Service's."""
        texts = {uid, label_text(uid)}
        rows = {id(row): row for text in texts for row in self._labelled.get(text, ())}  # two labels may have it
        return tuple(rows.values())


def own(rows: Iterable[Row], spec: LoadBalancerSpec) -> list[Row]:
    """Return the Service's load balancers, the oldest first."""
    first, others = choose(rows, lambda row: is_own(row, spec), lambda row: int(row["id"]))
    return [] if first is None else [first, *others]


def adoptable(rows: Iterable[Row], spec: LoadBalancerSpec, desired: DesiredState, by_name: bool) -> Row | None:
    """Return the unmarked load balancer with the desired name, which a person created; None if nothing has the name.
    Raises Conflict if the load balancer is somebody else's, or if the Service may not take it over: `by_name` is off,
    and the Service's status has no address of the load balancer."""
    named = next((row for row in rows if row["name"] == desired.name), None)
    if named is None:
        return None
    what = f"load balancer {named['name']!r} ({named['id']})"
    mark = mark_of(named)
    if namespace := named["labels"].get(KEPT_FOR):
        raise kept_load_balancers.kept_for_another(what, namespace)
    if mark is not None or named["labels"].get(UID):
        whose = f"cluster {mark.cluster}" if mark is not None else "another Service"
        raise Conflict(f"{what} belongs to {whose}, and names are unique in a project: choose another name")
    if not by_name and not is_known(spec, addresses(named)):
        raise Conflict(
            f"{what} exists and has no mark. To take it over, set HCLOUD_LOAD_BALANCERS_ADOPT_BY_NAME=true, or its "
            f"label {UID} to {spec.uid}"
        )
    return named


def addresses(row: Row) -> list[str]:
    public = row["public_net"]
    ips = [public["ipv4"]["ip"], public["ipv6"]["ip"], *(each["ip"] for each in row["private_net"])]
    return [str(each) for each in ips if each]


def labels(
    row: Row | None, spec: LoadBalancerSpec, desired: DesiredState, too_many: str, *, whole: bool = True
) -> dict[str, str]:
    """Return all labels that the load balancer must have: those that others set, and those of the Service. `too_many`:
    the digest of desired targets if not all fit, otherwise "". `whole`: whether everything has been written; otherwise
    the mark has no fingerprint."""
    mark = Mark.made_for(spec, desired.name, desired.digest if whole else "", desired.flags)
    all_labels = without_marks(row) | {UID: spec.uid} | mark.labels(PREFIX)
    return all_labels | ({TARGETS: too_many} if too_many else {})


def flags(row: Row) -> str:
    """Return the letters of the mark, "" without one."""
    mark = mark_of(row)
    return mark.flags if mark is not None else ""


def kept_labels(row: Row, spec: LoadBalancerSpec) -> dict[str, str]:
    """Return the labels of a load balancer that loses its Service and is kept for the namespace. They have no UID, so
    they are not a mark. If only the UID of the Service is known, its namespace comes from the mark."""
    mark = mark_of(row)
    namespace = spec.namespace or (mark.namespace if mark is not None else "")
    return without_marks(row) | {CLUSTER: label_text(cluster_tag(spec.cluster)), KEPT_FOR: namespace}


def kept(rows: Iterable[Row], cluster: str) -> list[KeptLoadBalancer]:
    balancers = []
    for row in rows:
        labels = row["labels"]
        if labels.get(KEPT_FOR) and labels.get(CLUSTER) == label_text(cluster_tag(cluster)):
            shown = rules.ingress(row, "", "")
            balancers.append(KeptLoadBalancer(str(row["name"]), labels[KEPT_FOR], shown[0].ip if shown else ""))
    return balancers


def to_take_back(rows: Iterable[Row], spec: LoadBalancerSpec) -> Row:
    """Return the kept load balancer that the Service names. Raises Conflict if none of that name is kept for the
    Service's namespace."""
    marks = {CLUSTER: label_text(cluster_tag(spec.cluster)), KEPT_FOR: spec.namespace}
    for row in rows:
        if row["name"] == spec.take_back and marks.items() <= row["labels"].items():
            return row
    raise kept_load_balancers.nothing_kept(spec)


def without_marks(row: Row | None) -> dict[str, str]:
    """Return the labels that others set."""
    present: Mapping[str, Any] = row["labels"] if row is not None else {}
    return {key: str(value) for key, value in present.items() if key != UID and not key.startswith(PREFIX)}


def fingerprint(row: Row) -> str:
    """Return the fingerprint of the last write, from the labels, joined with a digest of the present targets; ""
    without a mark, or if the mark has no fingerprint."""
    mark = mark_of(row)
    if mark is None or not mark.fingerprint:
        return ""
    return f"{mark.fingerprint}-{row['labels'].get(TARGETS) or rules.digest_of_row(row)}"

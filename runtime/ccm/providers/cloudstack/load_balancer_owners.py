# SPDX-License-Identifier: Apache-2.0
"""Decides who owns a rule, from its description, and which address a Service is about to get, from a tag. Pure.

The call that creates a rule also writes its mark. A tag would need a later call, which may fail. Rules of
cloudstack-kubernetes-provider have no mark; their names contain the Service's UID. An address has no description, and
is associated before the first rule is created. So a tag of the network names the address until that rule exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ccm.cloud import LoadBalancerSpec
from ccm.cloud.toolkit.digests import digest
from ccm.cloud.toolkit.ownership_marks import Mark, cluster_tag

from .load_balancer_rules import DesiredState, Row

#: Flags of a mark. `ASSOCIATED`: the address was associated for the Service. `NAMED`: the Service's status has a host
#: name. `PROXY`: the PROXY protocol is used.
ASSOCIATED, NAMED, PROXY = "i", "h", "p"


def mark_of(row: Row) -> Mark | None:
    return Mark.parse(str(row.get("description") or ""))


def base(row: Row) -> str:
    """Return the load balancer's name, with which the names of its rules begin."""
    return str(row["name"]).partition("-")[0]


def is_own(row: Row, spec: LoadBalancerSpec) -> bool:
    """Return whether the rule is the Service's, according to its mark, or to its name if it has no mark."""
    if (mark := mark_of(row)) is not None:
        return mark.is_of(spec.cluster, spec.uid)
    return base(row) == spec.default_name and base(row) != row["name"]


class Rules(list[Row]):
    """All load balancer rules that one API read returned. Many Services share the result."""

    def __init__(self, rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self._named: dict[str, list[Row]] = {}
        for row in self:
            self._named.setdefault(base(row), []).append(row)

    def of(self, spec: LoadBalancerSpec) -> list[Row]:
        """Return the Service's rules, sorted by port."""
        own = [row for row in self._named.get(spec.default_name, ()) if is_own(row, spec)]
        return sorted(own, key=lambda row: (int(row["publicport"]), str(row["protocol"])))

    def balancers(self, cluster: str) -> Mapping[str, list[Row]]:
        """Return UID -> rules for all Services of a cluster whose rules have a mark."""
        rows_by_uid: dict[str, list[Row]] = {}
        for row in self:
            mark = mark_of(row)
            if mark is not None and mark.is_of(cluster, mark.uid):
                rows_by_uid.setdefault(mark.uid, []).append(row)
        return rows_by_uid

    def others_on(self, address_id: str, own: Sequence[Row]) -> list[Row]:
        """Return the rules on an address that are not in `own`."""
        ids = {row["id"] for row in own}
        return [row for row in self if row["publicipid"] == address_id and row["id"] not in ids]


def is_associated(rows: Sequence[Row], desired: DesiredState | None) -> bool:
    """Return whether the address was associated for the Service, and is released with it. `desired`: the desired state,
    which decides about rules without a mark. If it is None, the address of such rules is kept."""
    marks = [mark for mark in map(mark_of, rows) if mark is not None]
    if marks:
        return any(ASSOCIATED in mark.flags for mark in marks)
    if desired is None:
        return False
    return desired.released or any(row["publicip"] != desired.address for row in rows)


def flags(desired: DesiredState, associated: bool) -> str:
    on = ((ASSOCIATED, associated), (NAMED, bool(desired.hostname)), (PROXY, desired.proxy))
    return "".join(letter for letter, set_ in on if set_)


def description(spec: LoadBalancerSpec, desired: DesiredState, associated: bool, fingerprint: str = "") -> str:
    """Return the description of a rule, which is its mark. Only the description of the first rule has the
    fingerprint."""
    return str(Mark.made_for(spec, desired.name, fingerprint, flags(desired, associated)))


def fingerprint(rows: Iterable[Row]) -> str:
    """Return the fingerprint of the last write; "" if no rule has one, or if several have. Also "" if the Service's
    status has a host name: the cloud does not store it, so a listing cannot show what the status should be."""
    marks = [mark for mark in map(mark_of, rows) if mark is not None and mark.fingerprint]
    return marks[0].fingerprint if len(marks) == 1 and NAMED not in marks[0].flags else ""


def intent_key(spec: LoadBalancerSpec) -> str:
    """Return the key of the tag that names the address which the Service is about to get."""
    return f"ccm-outoftree/{digest(cluster_tag(spec.cluster), 16)}/{spec.uid}"

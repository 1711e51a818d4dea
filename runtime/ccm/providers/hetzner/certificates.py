# SPDX-License-Identifier: Apache-2.0
"""Certificates of load balancers: finds certificates by name, and creates and deletes managed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccm.cloud import Invalid, LoadBalancerSpec, Transient
from ccm.cloud.toolkit.ownership_marks import Mark

from .api import Api
from .load_balancer_owners import PREFIX, UID
from .load_balancer_rules import Certificate, DesiredState


class Certificates:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def ids(self, spec: LoadBalancerSpec, desired: DesiredState) -> list[int] | None:
        """Return the IDs of the certificates for the Service's ports, None if the Service names no certificate. Create
        the managed certificate if it does not exist yet. Raises Invalid if the project has no certificate of that name;
        an ID is not checked."""
        if desired.managed is not None:
            return [await self._managed(spec, desired.managed)]
        if desired.certificates is None:
            return None
        if all(certificate.isdigit() for certificate in desired.certificates):
            return [int(certificate) for certificate in desired.certificates]
        rows = await self._api.rows("/certificates", "certificates")
        by_name = {str(row.get("name")): int(row["id"]) for row in rows}
        if missing := [
            certificate
            for certificate in desired.certificates
            if not certificate.isdigit() and certificate not in by_name
        ]:
            raise Invalid(f"the project has no certificate named {', '.join(missing)}")
        return [
            by_name[certificate] if certificate in by_name else int(certificate) for certificate in desired.certificates
        ]

    async def delete(self, spec: LoadBalancerSpec) -> bool:
        """Delete the Service's managed certificate, if this provider created it. Return whether there was one."""
        own = [row for row in await self._of(spec.uid) if _is_own(row, spec)]
        for row in own:
            await self._api.call("DELETE", f"/certificates/{int(row['id'])}")
        return bool(own)

    async def _managed(self, spec: LoadBalancerSpec, certificate: Certificate) -> int:
        if rows := await self._of(spec.uid):
            return int(rows[0]["id"])
        labels = {UID: spec.uid} | Mark.made_for(spec, certificate.name, "").labels(PREFIX)
        if certificate.staging:
            labels["HC-Use-Staging-CA"] = "true"
        body = {
            "name": certificate.name,
            "type": "managed",
            "domain_names": list(certificate.domains),
            "labels": labels,
        }
        answer = await self._api.call("POST", "/certificates", body=body)
        try:
            return int(answer["certificate"]["id"])
        except (LookupError, TypeError, ValueError):
            raise Transient("POST /certificates: the answer has no certificate") from None

    async def _of(self, uid: str) -> Sequence[Any]:
        return await self._api.rows("/certificates", "certificates", query=[("label_selector", f"{UID}={uid}")])


def _is_own(row: Any, spec: LoadBalancerSpec) -> bool:
    mark = Mark.from_labels(row.get("labels") or {}, PREFIX)
    return mark is not None and mark.is_of(spec.cluster, spec.uid)

# SPDX-License-Identifier: Apache-2.0
"""Quotas of the resources that load balancers need. Neutron reports limits and use; Octavia reports only limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm.cloud import Quota, Transient

from .api import LOAD_BALANCER, NETWORK, Api, of_project

#: Neutron's resources that a load balancer can need -> their name for people.
NEUTRON = {
    "floatingip": "floating IPs",
    "port": "ports",
    "security_group": "security groups",
    "security_group_rule": "security group rules",
}
BALANCERS = "load balancers"
#: Neutron's extension that says how many of each resource are in use.
DETAILS = "quota_details"


class OpenStackQuotas:
    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> list[Quota]:
        quotas = []
        if DETAILS in await self._api.extensions():
            quotas += of_neutron(await self._quota(NETWORK, f"/quotas/{self._api.project_id}/details.json"))
        if self._api.settings.load_balancer.enabled:
            limit = balancer_limit(await self._quota(LOAD_BALANCER, f"/lbaas/quotas/{self._api.project_id}"))
            if limit is not None:
                path = "/lbaas/loadbalancers"
                used = await self._api.pages(LOAD_BALANCER, path, "loadbalancers", of_project(self._api))
                quotas.append(Quota(BALANCERS, len(used), limit))
        return quotas

    async def _quota(self, service: str, path: str) -> Mapping[str, Any]:
        answer = await self._api.call("GET", service, path)
        quota = answer.get("quota") if isinstance(answer, dict) else None
        if not isinstance(quota, dict):
            raise Transient(f"GET {service} {path}: the response has no quota")
        return quota


def of_neutron(quota: Mapping[str, Any]) -> list[Quota]:
    """Return Neutron's quotas, without those whose limit is -1, which means unlimited. Reserved resources count as
    used. Pure."""
    quotas = []
    for key, kind in NEUTRON.items():
        row = quota.get(key)
        if isinstance(row, dict) and _is_count(row.get("limit")) and _is_count(row.get("used")):
            reserved = row.get("reserved")
            quotas.append(Quota(kind, row["used"] + (reserved if _is_count(reserved) else 0), row["limit"]))
    return quotas


def balancer_limit(quota: Mapping[str, Any]) -> int | None:
    """Return the limit of load balancers, None without a limit (-1, or no value). Octavia up to 2.0 has another key.
    Pure."""
    limit = quota.get("load_balancer", quota.get("loadbalancer"))
    return limit if _is_count(limit) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0

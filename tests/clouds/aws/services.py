# SPDX-License-Identifier: Apache-2.0
"""Services for tests without an API server, and functions that repeat calls of the contract while the cloud is busy."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from ccm.cloud import Backend, LoadBalancerSpec, NotFound, Port, RetryAfter, Transient
from ccm.providers.aws import AwsCloud
from ccm.providers.aws.annotations import PREFIX

UID = "0b2a3c4d-1111-2222-3333-444455556666"
PORT = Port("http", "TCP", 80, 30080)
MORE = Port("more", "TCP", 81, 30081)
TRIES = 5


def spec(*ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service. Annotations are given without their prefix."""
    annotations = {PREFIX + name: text for name, text in {"type": "nlb", **more.pop("annotations", {})}.items()}
    made = LoadBalancerSpec("kube", UID, "default", "web", ports or (PORT,), annotations)
    return dataclasses.replace(made, **more)


def classic(*ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service with a Classic Load Balancer."""
    return spec(*ports, **{**more, "annotations": {"type": "classic", **more.get("annotations", {})}})


async def backends(cloud: AwsCloud) -> list[Backend]:
    """Return all instances as backends."""
    found, token = [], None
    while True:
        page = await cloud.instances.list_page(token)
        found += [Backend(each.name, each.provider_id, each.addresses) for each in page.instances]
        if (token := page.next) is None:
            return sorted(found, key=lambda each: each.node_name)


async def patiently(call: Any, *arguments: Any) -> Any:
    """Call, and call again after RetryAfter or Transient, at most TRIES times and without a pause. Return the
    answer."""
    for _ in range(TRIES):
        try:
            return await call(*arguments)
        except (RetryAfter, Transient):
            await asyncio.sleep(0)
    return await call(*arguments)


async def delete(cloud: AwsCloud, spec: LoadBalancerSpec) -> None:
    try:
        await patiently(cloud.load_balancers.delete, spec)
    except NotFound:
        return


def ids(backends: Sequence[Backend]) -> list[str]:
    return sorted(each.provider_id.rpartition("/")[2] for each in backends)

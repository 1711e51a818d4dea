# SPDX-License-Identifier: Apache-2.0
"""Which of several clouds releases a Service that no longer has the type LoadBalancer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm.controllers.services.service_holders import Held, ServiceHolders
from ccm.controllers.services.service_rules import FINALIZER
from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

WAITS = "waits"


def service(of_type: str = "ClusterIP") -> Service:
    meta: dict[str, Any] = {"name": "web", "uid": "u", "finalizers": [FINALIZER]}
    return msgspec.convert({"metadata": meta, "spec": {"type": of_type}}, Service)


def answers(first: bool | None, second: bool | None, of_type: str = "ClusterIP") -> list[bool | str]:
    """Return for each cloud whether it leaves the Service to the other, or WAITS. `first`, `second`: whether that cloud
    has the load balancer, None if the cloud has not been listed.
    """
    holders = ServiceHolders(["first", "second"])
    found: list[bool | str] = []
    parts = [Held(holders, name, lambda _, has=has: bool(has)) for name, has in (("first", first), ("second", second))]  # type: ignore[misc]
    for part, has in zip(parts, (first, second), strict=True):
        if has is not None:
            part.join()
    for part in parts:
        try:
            found.append(part.leaves_to_others(service(of_type)))
        except Requeue:
            found.append(WAITS)
    return found


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (True, False, [False, True]),
        (False, True, [WAITS, False]),
        (False, False, [False, True]),
        (False, None, [WAITS, True]),
        (None, False, [False, True]),
    ],
    ids=["first", "second", "nobody", "second-is-silent", "first-is-silent"],
)
def test_the_cloud_with_the_load_balancer_releases_the_service(
    first: bool | None, second: bool | None, expected: list[bool | str]
) -> None:
    assert answers(first, second) == expected


def test_a_class_still_says_whose_a_service_is() -> None:
    assert answers(False, True, "LoadBalancer") == [False, False]


def test_the_only_cloud_releases_everything() -> None:
    assert not Held(None, "", lambda uid: False).leaves_to_others(service())

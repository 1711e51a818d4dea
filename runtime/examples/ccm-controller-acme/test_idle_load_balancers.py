# SPDX-License-Identifier: Apache-2.0
"""Tests the decisions of the controller, with caches that the test fills."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from acme_idle_load_balancers import EndpointSlice, IdleLoadBalancerController, Options

from ccm.engine.objects import Service
from ccm.engine.queue import Requeue

WEB = {"metadata": {"name": "web", "namespace": "shop"}}
BALANCED = WEB | {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}


def slice_of_web(*ready: bool | None) -> EndpointSlice:
    labels = {"kubernetes.io/service-name": "web"}
    endpoints = [{"conditions": {"ready": each}} for each in ready]
    body = {"metadata": {"name": "web-x", "namespace": "shop", "labels": labels}, "endpoints": endpoints}
    return msgspec.convert(body, EndpointSlice)


class Bench:
    """A controller whose caches hold one Service and one slice, at `now` seconds."""

    def __init__(self, service: dict | None, endpoints: EndpointSlice, patience: float = 60.0) -> None:
        self.now, self.events = 0.0, []
        self.service = msgspec.convert(service, Service) if service else None
        self.slices = [endpoints]
        context = SimpleNamespace(
            services=SimpleNamespace(get=lambda key: self.service),
            cache=lambda kind: SimpleNamespace(items=lambda: self.slices),
            recorder=lambda name: SimpleNamespace(event=lambda *event: self.events.append(event[1:3])),
            monotonic=lambda: self.now,
        )
        self.controller = IdleLoadBalancerController(context, Options(patience))

    def sync(self) -> float | None:
        """Return seconds until the next check, None if there is none."""
        try:
            asyncio.run(self.controller._sync("shop/web"))
        except Requeue as later:
            return later.after
        return None


def test_a_load_balancer_without_a_ready_endpoint_is_reported_once() -> None:
    bench = Bench(BALANCED, slice_of_web(False))
    assert (bench.sync(), bench.events) == (60.0, [])
    bench.now = 45.0
    assert (bench.sync(), bench.events) == (15.0, [])
    bench.now = 60.0
    assert (bench.sync(), bench.sync(), bench.events) == (None, None, [("Warning", "IdleLoadBalancer")])


@pytest.mark.parametrize("ready", [(True,), (None,), (False, True)])
def test_one_ready_endpoint_is_enough(ready: tuple[bool | None, ...]) -> None:
    bench = Bench(BALANCED, slice_of_web(*ready), patience=0)
    assert (bench.sync(), bench.events) == (None, [])


def test_a_pause_begins_anew_when_an_endpoint_was_ready() -> None:
    bench = Bench(BALANCED, slice_of_web(False))
    bench.sync()
    bench.now, bench.slices = 59.0, [slice_of_web(True)]
    bench.sync()
    bench.now, bench.slices = 61.0, [slice_of_web()]
    assert (bench.sync(), bench.events) == (60.0, [])


@pytest.mark.parametrize("service", [None, WEB])
def test_a_service_without_a_load_balancer_is_left_alone(service: dict | None) -> None:
    bench = Bench(service, slice_of_web(), patience=0)
    assert (bench.sync(), bench.events) == (None, [])


def test_patience_is_not_negative() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Options(-1)

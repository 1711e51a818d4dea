# SPDX-License-Identifier: Apache-2.0
"""Which Service has which address, according to the status of all Services and to later answers of the cloud."""

from __future__ import annotations

from ccm.controllers.services.allocations import ServiceAllocations
from ccm.engine.objects import IngressEntry, LoadBalancerStatus, ObjectMeta, Service, ServiceSpec, ServiceStatus

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"


def service(uid: str, *addresses: str, created: str | None = EARLY, **spec: str) -> Service:
    meta = ObjectMeta(name="web", namespace="shop", uid=uid, creation_timestamp=created)
    ingress = [IngressEntry(ip=address) for address in addresses]
    return Service(meta, ServiceSpec(type="LoadBalancer", **spec), ServiceStatus(LoadBalancerStatus(ingress)))


def test_the_status_says_who_has_an_address() -> None:
    found = ServiceAllocations()
    assert found.holder("192.0.2.1") is None
    before, after = service("a", "192.0.2.1", "2001:db8::1"), service("a", "192.0.2.2")
    found.on_service(None, before)
    assert [found.holder(each) for each in ("192.0.2.1", "2001:db8::1", "192.0.2.2")] == ["a", "a", None]
    found.on_service(before, after)
    assert [found.holder(each) for each in ("192.0.2.1", "2001:db8::1", "192.0.2.2")] == [None, None, "a"]
    found.on_service(service("a"), None)  # the last state of a deleted object may differ from the cached one
    assert found.holder("192.0.2.2") is None


def test_a_service_of_another_controller_has_its_address_too() -> None:
    found = ServiceAllocations()
    found.on_service(None, service("a", "192.0.2.1", load_balancer_class="example.com/other"))
    assert found.holder("192.0.2.1") == "a"


def test_an_address_is_the_same_in_every_spelling() -> None:
    found = ServiceAllocations()
    found.on_service(None, service("a", "2001:DB8:0::1"))
    assert found.holder("2001:db8::1") == "a"
    found.on_service(None, service("b", "", "no-address"))
    assert found.holder("2001:db8:0:0::1") == "a" and found.holder("") is None


def test_the_oldest_of_several_has_it() -> None:
    found = ServiceAllocations()
    for each in (
        service("z", "192.0.2.1", created=None),
        service("y", "192.0.2.1", created=LATE),
        service("x", "192.0.2.1"),
        service("w", "192.0.2.1"),
    ):
        found.on_service(None, each)
    for uid in "wxyz":  # w and x are of the same second: the UID decides, as after a restart
        assert found.holder("192.0.2.1") == uid
        found.on_service(service(uid), None)
    assert found.holder("192.0.2.1") is None


def test_what_was_answered_is_held_until_it_is_released() -> None:
    found = ServiceAllocations()
    found.answered(service("a"), ["192.0.2.1"])
    found.on_service(None, service("a"))  # its status does not show the address yet
    assert found.holder("192.0.2.1") == "a"
    found.on_service(service("a"), service("a", "192.0.2.1"))
    found.answered(service("a"), ["192.0.2.2"])  # a new address, while the status still shows the former one
    assert [found.holder(each) for each in ("192.0.2.1", "192.0.2.2")] == ["a", "a"]
    found.released(service("a"))
    assert [found.holder(each) for each in ("192.0.2.1", "192.0.2.2")] == ["a", None]
    found.on_service(service("a"), None)
    assert found.holder("192.0.2.1") is None

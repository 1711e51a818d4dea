# SPDX-License-Identifier: Apache-2.0
"""`Backends` computes a value over all nodes once for all Services, not once for each Service."""

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ccm.cloud import Address, AddressType, Backend, Backends, LoadBalancerSpec, Port
from ccm.cloud.backends import RECENT
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.sim import SimLoadBalancers
from ccm.providers.static import StaticLoadBalancers

from ..providers.openstack.octavia_in_memory import FakeOpenStack

EXAMPLE = Path(__file__).parents[4] / "runtime" / "examples" / "ccm-provider-acme"
SPEC = LoadBalancerSpec("kubernetes", "u1", "shop", "web", (Port("http", "TCP", 80, 30080),))


def backend(name, ip="10.0.0.1", **fields):
    addresses = (Address(AddressType.INTERNAL_IP, ip),)
    return Backend(name, f"sim://north/i-{name:>012}", addresses, **fields)


A, B = backend("a"), backend("b", "10.0.0.2")


def test_what_is_computed_once_is_computed_once_for_each_key():
    backends, calls = Backends([A, B]), []

    def make(backend):
        calls.append(backend)
        return len(calls)

    assert [backends.once(key, make) for key in ("x", "x", "y", "x")] == [1, 1, 2, 1]
    assert all(each is backends for each in calls)
    assert Backends([A, B]).once("x", make) == 3, "others compute their own"


def test_backends_are_a_tuple_and_stay_the_same_object():
    backends = Backends([A, B])
    assert backends == (A, B) and hash(backends) == hash((A, B)) and len({backends, Backends([A, B])}) == 1
    assert Backends.of(backends) is backends
    assert Backends.of([A, B]) == backends and Backends.of(backends[1:]) == (B,)
    assert Backends() == ()


@pytest.mark.parametrize(
    ("other", "same"),
    [
        pytest.param([B, A], True, id="order"),
        pytest.param([A, dataclasses.replace(B, labels={"zone": "z1"})], True, id="labels"),
        pytest.param([A], False, id="fewer"),
        pytest.param([A, dataclasses.replace(B, node_name="c")], False, id="name"),
        pytest.param([A, dataclasses.replace(B, provider_id="sim://north/i-0")], False, id="providerID"),
        pytest.param([A, dataclasses.replace(B, addresses=())], False, id="addresses"),
        pytest.param(
            [A, dataclasses.replace(B, addresses=(Address(AddressType.EXTERNAL_IP, "10.0.0.2"),))], False, id="type"
        ),
    ],
)
def test_the_digest_tells_backends_apart(other, same):
    assert (Backends(other).digest == Backends([A, B]).digest) is same


def test_the_digest_is_the_same_for_ever():
    """Providers store the digest in the cloud: a new digest would rewrite every load balancer after an upgrade."""
    assert Backends([A, B]).digest == "8576e285c0e21b96eb87da563a03810598414ecf777dc7e6de0ab697bd2a289a"


def test_only_the_last_large_results_stay():
    backends, calls = Backends([A, B]), []

    def make(key):
        return backends.recent(key, lambda each: calls.append(key) or (key, len(each)))

    assert make("x") == ("x", 2) and make("x") is make("x") and calls == ["x"]
    for number in range(RECENT - 1):
        make(number)
    make("x")  # now the most recently used, so 0 is evicted first
    make("one more")
    del calls[:]
    make("x"), make(0)
    assert calls == [0]


class Watched(Backends):
    """Backends that count how often they are iterated over."""

    reads = 0

    def __iter__(self):
        Watched.reads += 1
        return super().__iter__()


def openstack():
    return OctaviaLoadBalancers(FakeOpenStack(), clock=lambda: 0.0)


def on_sim():
    return SimLoadBalancers(SimpleNamespace(passes_through=False))


def acme():
    sys.path.insert(0, str(EXAMPLE))
    try:
        from ccm_provider_acme.load_balancers import AcmeLoadBalancers
    finally:
        sys.path.remove(str(EXAMPLE))
    return AcmeLoadBalancers(None)


@pytest.mark.parametrize(
    "make",
    [on_sim, lambda: StaticLoadBalancers(None), openstack, acme],
    ids=["sim", "static", "openstack", "example"],
)
def test_hundreds_of_services_read_their_thousands_of_nodes_once(make):
    """If each of 1,000 Services read all 2,000 Nodes, one joining Node would cost 11 s of CPU."""
    balancers, before, after = make(), Watched([A, B]), Watched([A, B, backend("c", "10.0.0.3")])
    for each in (before, after):
        balancers.fingerprint(SPEC, each)
    Watched.reads = 0
    found = {
        balancers.fingerprint(dataclasses.replace(SPEC, ports=(Port("http", "TCP", 80, 30000 + number),)), each)
        for number in range(100)
        for each in (before, after)
    }
    assert len(found) == 200 and Watched.reads == 0

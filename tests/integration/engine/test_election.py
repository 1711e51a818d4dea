# SPDX-License-Identifier: Apache-2.0
"""Leader election on a real API server, with and without faults.

Leases are long enough for a leader to survive on a busy machine, unless the test is about their expiry.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from ccm.base.clock import SystemClock
from ccm.engine.client import KubeClient
from ccm.engine.election import LeaderElector, LeadershipLost
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Lease, parse_time
from tests.later import jump

from ..cluster import ApiServer
from .conftest import FaultProxy, eventually

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


class Candidate:
    def __init__(self, client: KubeClient, name: str, identity: str, **options: object) -> None:
        settings = {"lease_duration": 60.0, "renew_deadline": 50.0, "retry_period": 0.3, **options}
        self.elector = LeaderElector(
            client,
            namespace="kube-system",
            name=name,
            identity=identity,
            **settings,  # type: ignore[arg-type]
        )
        self.working = False
        self.began = self.ended = 0.0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.task = asyncio.create_task(self.elector.run(self._work))

    async def _work(self) -> None:
        self.working, self.began = True, time.monotonic()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.working, self.ended = False, time.monotonic()


class LoopClock(SystemClock):
    """A clock that jumps with the event loop's time."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


Make = Callable[..., Candidate]


@pytest.fixture
def name() -> str:
    return f"lease-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def candidate(kube: KubeClient, name: str) -> AsyncIterator[Make]:
    made: list[Candidate] = []

    def make(identity: str, client: KubeClient | None = None, **options: object) -> Candidate:
        made.append(Candidate(client or kube, name, identity, **options))
        return made[-1]

    yield make
    for one in made:
        one.task.cancel()
    await asyncio.gather(*(one.task for one in made), return_exceptions=True)


async def test_the_lease_as_kubectl_shows_it(candidate: Make, kube: KubeClient, name: str) -> None:
    leader = candidate("a", annotations=lambda: {"ccm.outoftree.dev/cloud-provider": "sim"})
    await eventually(lambda: leader.working)
    await kube.patch(f"{LEASES}/{name}", {"metadata": {"annotations": {"theirs": "kept"}}})
    first, renewed = await kube.get(f"{LEASES}/{name}", Lease), leader.elector.renewed_at
    await eventually(lambda: leader.elector.renewed_at > renewed + 0.3)
    lease = await kube.get(f"{LEASES}/{name}", Lease)
    assert lease.spec.holder_identity == "a" and lease.spec.lease_transitions == 0
    assert lease.spec.lease_duration_seconds == 60
    assert lease.metadata.annotations == {"ccm.outoftree.dev/cloud-provider": "sim", "theirs": "kept"}
    assert lease.spec.renew_time and first.spec.renew_time and lease.spec.renew_time > first.spec.renew_time
    age = datetime.datetime.now(datetime.UTC) - parse_time(lease.spec.renew_time)
    assert datetime.timedelta(seconds=-0.1) < age < datetime.timedelta(seconds=60)
    assert leader.working


#: Durations longer than any wait of a test: everything happens before the Lease expires.
LONG = {"lease_duration": 3000.0, "renew_deadline": 2000.0, "retry_period": 600.0}


async def test_handover_waits_for_none_of_the_durations(candidate: Make) -> None:
    leader = candidate("a", **LONG)
    await eventually(lambda: leader.working)
    standby = candidate("b", **LONG)
    await eventually(lambda: standby.elector.holder == "a")
    leader.task.cancel()
    await eventually(lambda: standby.working)
    assert not leader.working and leader.ended < standby.began


async def test_the_work_ends_before_the_lease_is_released(candidate: Make, kube: KubeClient, name: str) -> None:
    leader = candidate("a")
    await eventually(lambda: leader.working)
    leader.may_end.clear()
    standby = candidate("b")
    await eventually(lambda: standby.elector.holder == "a")
    leader.task.cancel()
    cancelled = leader.elector.renewed_at
    await eventually(lambda: leader.elector.renewed_at > cancelled + 1.0)  # the Lease is still renewed meanwhile
    assert leader.working and not standby.working
    leader.may_end.set()
    await eventually(lambda: standby.working)
    assert leader.ended < standby.began
    with pytest.raises(asyncio.CancelledError):
        await leader.task


async def black_hole(request: web.Request) -> web.StreamResponse | None:
    await asyncio.sleep(60)
    return None


async def error_page(request: web.Request) -> web.StreamResponse | None:
    return web.Response(status=502, text="<h1>Bad Gateway</h1>", content_type="text/html")


@pytest.mark.parametrize("how", ["black-hole", "error-page", "refused"])
async def test_a_leader_without_api_server_stops_before_another_starts(
    candidate: Make, proxy: FaultProxy, through: KubeClient, how: str
) -> None:
    leader = candidate("a", through, retry_period=0.8, clock=LoopClock())
    await eventually(lambda: leader.working)
    standby = candidate("b", retry_period=0.8, clock=LoopClock())
    await eventually(lambda: standby.elector.holder == "a")
    if how == "refused":
        await proxy.stop()
    else:
        proxy.fault = black_hole if how == "black-hole" else error_page
    jump(47)  # of the 50 s in which the leader must renew its Lease, and of the 60 s after which the standby takes it
    proxy.requests.clear()
    with pytest.raises(LeadershipLost, match=r"could not be renewed for 50 s"):
        await asyncio.wait_for(leader.task, 60)
    await eventually(lambda: standby.working)
    assert leader.ended < standby.began, "the deadline is shorter than the Lease"
    assert len(proxy.requests) < 30, "no hot loop"


async def test_an_api_server_restart_within_the_deadline_costs_nothing(candidate: Make, apiserver: ApiServer) -> None:
    leader = candidate("a")
    await eventually(lambda: leader.working)
    await asyncio.to_thread(apiserver.stop)
    await asyncio.to_thread(apiserver.start)
    renewed = leader.elector.renewed_at
    await eventually(lambda: leader.elector.renewed_at > renewed)
    assert leader.working and not leader.task.done()


async def test_a_slow_api_server_costs_nothing_within_an_attempt(
    candidate: Make, proxy: FaultProxy, through: KubeClient
) -> None:
    async def slow(request: web.Request) -> web.StreamResponse | None:
        await asyncio.sleep(0.3)
        return None

    leader = candidate("a", through)
    await eventually(lambda: leader.working)
    standby = candidate("b")
    proxy.fault = slow
    for _ in range(5):
        renewed = leader.elector.renewed_at
        await eventually(lambda renewed=renewed: leader.elector.renewed_at > renewed)
    assert leader.working and not standby.working


async def test_429_on_a_renewal_is_sent_again_in_time(candidate: Make, proxy: FaultProxy, through: KubeClient) -> None:
    leader = candidate("a", through)
    await eventually(lambda: leader.working)
    refused = 0

    async def busy(request: web.Request) -> web.StreamResponse | None:
        nonlocal refused
        if request.method == "GET" or refused >= 2:
            return None
        refused += 1
        return web.Response(status=429, text="Too many requests", headers={"Retry-After": "1"})

    proxy.fault = busy
    renewed = leader.elector.renewed_at
    await eventually(lambda: refused == 2 and leader.elector.renewed_at > renewed + 1)
    assert leader.working


async def test_a_stolen_lease(candidate: Make, kube: KubeClient, name: str) -> None:
    leader = candidate("a")
    await eventually(lambda: leader.working)
    await kube.patch(f"{LEASES}/{name}", {"spec": {"holderIdentity": "thief"}})
    with pytest.raises(LeadershipLost, match="was taken by thief"):
        await asyncio.wait_for(leader.task, 60)
    assert not leader.working
    assert (await kube.get(f"{LEASES}/{name}", Lease)).spec.holder_identity == "thief"


async def test_an_expired_lease_is_taken_and_counted(candidate: Make, kube: KubeClient, name: str) -> None:
    stamp = "2020-01-01T00:00:00.000000Z"
    spec = {
        "holderIdentity": "dead",
        "leaseDurationSeconds": 1,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": 7,
    }
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    await kube.create(LEASES, lease)
    started = time.monotonic()
    standby = candidate("b")
    await eventually(lambda: standby.working)
    assert standby.began - started >= 1.0, "how old it looks does not count, only that it did not change"
    assert (await kube.get(f"{LEASES}/{name}", Lease)).spec.lease_transitions == 8


async def test_the_release_as_client_go_writes_it(candidate: Make, kube: KubeClient, name: str) -> None:
    leader = candidate("a")
    await eventually(lambda: leader.working)
    leader.task.cancel()
    await asyncio.gather(leader.task, return_exceptions=True)
    spec = (await kube.get(f"{LEASES}/{name}", Lease)).spec
    assert (spec.holder_identity or "", spec.lease_duration_seconds) == ("", 1)


async def test_with_the_rights_of_a_role_on_this_one_lease(
    apiserver: ApiServer, kube: KubeClient, name: str, candidate: Make
) -> None:
    """The least rights are enough: get, patch, list and watch with resourceNames, and create without resourceNames."""
    user = f"user-{name}"
    named = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name]}
    rules = [
        {**named, "verbs": ["get", "patch", "list", "watch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system"
    await kube.create(f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    await kube.create(f"{rbac}/rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    limited = KubeClient.from_config(kubeconfig=str(apiserver.kubeconfig(user, [])))
    leader = candidate("a", limited)
    await eventually(lambda: leader.working)
    standby = candidate("b", limited, **LONG)
    await eventually(lambda: standby.elector.holder == "a")
    leader.task.cancel()
    await eventually(lambda: standby.working)  # only the watch can be that fast
    standby.task.cancel()
    await asyncio.gather(standby.task, return_exceptions=True)
    await limited.close()


async def test_the_event_is_on_the_lease(candidate: Make, kube: KubeClient, apiserver: ApiServer, name: str) -> None:
    recorder = EventRecorder(kube, "test")
    leader = candidate("a", recorder=recorder)
    await eventually(lambda: leader.working)
    await recorder.flush(5)
    selector = f"--field-selector=involvedObject.name={name}"
    events = json.loads(
        await asyncio.to_thread(apiserver.kubectl, "-n", "kube-system", "get", "events", selector, "-o", "json")
    )
    assert [event["message"] for event in events["items"]] == ["a became leader"]

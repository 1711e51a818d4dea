# SPDX-License-Identifier: Apache-2.0
"""Network Load Balancers that outlive their Service. The conformance kit's cases cover the rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ccm.cloud import Conflict, Invalid, Kept, KeptLoadBalancer, LoadBalancerSpec, NotFound
from ccm.providers.aws.load_balancers.network.load_balancer_owners import KEPT_FOR

from .proxy import Fault
from .services import MORE, PORT, backends, classic, delete, ids, patiently, spec
from .world import config

NAME = spec().default_name
KEEPING = spec(keep=Kept.LOAD_BALANCER)
#: The UID of another Service of the namespace, which takes back the load balancer that the first one left.
OTHER = "1c3b4d5e-1111-2222-3333-444455556666"
TAKING = replace(spec(), uid=OTHER, name="again", take_back=NAME)


@pytest.fixture
async def cloud(account, proxy, connect):
    for zone in "ab":
        account.run(zone=zone)
    return await connect(config(account, proxy))


async def kept(cloud, nodes, spec: LoadBalancerSpec = KEEPING) -> str:
    """Create a load balancer, delete its Service, and return the host name."""
    made = await cloud.load_balancers.ensure(spec, nodes)
    await patiently(cloud.load_balancers.delete, spec)
    return made.ingress[0].hostname


async def test_one_that_is_kept_leaves_only_itself(account, cloud):
    host = await kept(cloud, await backends(cloud))
    (row,) = account.balancers()
    assert account.parts() == {row["LoadBalancerArn"]}, "no target groups, and no rules in security groups"
    assert account.balancer(NAME)["tags"][KEPT_FOR] == "default"
    assert await cloud.load_balancers.kept("kube") == [KeptLoadBalancer(NAME, "default", host)]
    assert await cloud.load_balancers.list("kube") == []
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(KEEPING)
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(LoadBalancerSpec("kube", KEEPING.uid, "", "", ()))
    assert account.balancers() == [row], "nobody deletes it, although its name has the UID of the Service"


async def test_the_service_that_takes_it_back_gets_the_host_name_and_all_parts(account, proxy, cloud, connect):
    nodes = await backends(cloud)
    host = await kept(cloud, nodes)
    taken = await cloud.load_balancers.ensure(TAKING, nodes)
    assert (taken.name, taken.ingress[0].hostname) == (NAME, host)
    (listener,) = account.balancer(NAME)["listeners"]
    assert [id for id, _ in listener["targets"]] == ids(nodes)
    assert await cloud.load_balancers.deviations(TAKING, nodes) == []
    assert taken.fingerprint == cloud.load_balancers.fingerprint(TAKING, nodes)
    # Another process finds the load balancer by the annotation; without the annotation, by a listing.
    assert (await (await connect(config(account, proxy))).load_balancers.get(TAKING)).ingress == taken.ingress
    without = replace(TAKING, take_back="")
    other = await connect(config(account, proxy))
    assert (await other.load_balancers.get(without)).ingress == taken.ingress
    await other.load_balancers.update_backends(without, nodes[:1])
    await other.load_balancers.ensure(replace(without, ports=(PORT, MORE)), nodes[:1])
    assert [each["port"] for each in account.balancer(NAME)["listeners"]] == [80, 81]
    assert len(account.balancers()) == 1
    third = await connect(config(account, proxy))
    # A process that just started may have to delete a load balancer before its first listing.
    await delete(third, LoadBalancerSpec("kube", OTHER, "", "", ()))
    assert account.parts() == frozenset()


async def test_what_keeping_and_taking_back_write(account, proxy, cloud):
    """docs/performance.md has these numbers."""
    nodes, written = await backends(cloud), []

    async def count(work):
        since = len(proxy.calls)
        await work
        written.append(sum("Describe" not in call for call in proxy.calls[since:]))

    for one in (spec(), KEEPING):
        await count(patiently(cloud.load_balancers.ensure, one, nodes))
        await count(delete(cloud, one))
    await count(patiently(cloud.load_balancers.ensure, TAKING, nodes))
    assert written == [6, 3, 6, 4, 6]


async def test_one_of_two_services_gets_it(account, cloud):
    nodes = await backends(cloud)
    await kept(cloud, nodes)
    rival = replace(TAKING, uid="2d4c5e6f-1111-2222-3333-444455556666", name="rival")
    found = await asyncio.gather(
        *(cloud.load_balancers.ensure(each, nodes) for each in (TAKING, rival)), return_exceptions=True
    )
    assert [type(each) for each in found if isinstance(each, Exception)] == [Conflict]
    assert len(account.balancers()) == 1


async def test_its_name_and_its_uid_give_it_to_nobody(account, cloud):
    nodes = await backends(cloud)
    await kept(cloud, nodes)
    with pytest.raises(Conflict, match=r"kept for namespace default.*take-back-load-balancer"):
        await cloud.load_balancers.ensure(spec(), nodes)  # the same Service wants a load balancer again
    for stranger in (replace(TAKING, namespace="other"), replace(TAKING, cluster="other")):
        with pytest.raises(Conflict, match="no load balancer"):
            await cloud.load_balancers.ensure(stranger, nodes)
    with pytest.raises(Conflict, match="no load balancer"):
        await cloud.load_balancers.ensure(replace(TAKING, take_back="not a name; at all"), nodes)
    back = await cloud.load_balancers.ensure(spec(take_back=NAME), nodes)
    assert back.name == NAME
    await cloud.load_balancers.ensure(replace(spec(), uid=OTHER), nodes)
    with pytest.raises(Conflict, match="cannot take back"):
        await cloud.load_balancers.ensure(TAKING, nodes)


async def test_every_call_of_keeping_and_taking_back_may_fail_once(account, proxy, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(KEEPING, nodes)
    since = len(proxy.calls)
    await patiently(cloud.load_balancers.delete, KEEPING)
    keeps, since = proxy.calls[since:], len(proxy.calls)
    await cloud.load_balancers.ensure(TAKING, nodes)
    takes, whole = proxy.calls[since:], account.balancer(NAME)
    await delete(cloud, TAKING)
    for kind in ("status", "lost"):
        for calls, is_take in ((keeps, False), (takes, True)):
            for call in sorted(set(calls)):
                for skip in range(calls.count(call)):
                    fault = Fault(kind, call=call, code="InternalError", skip=skip, times=1)
                    await patiently(cloud.load_balancers.ensure, KEEPING, nodes)
                    with proxy.broken(*([] if is_take else [fault])):
                        await delete(cloud, KEEPING)
                    (row,) = account.balancers()
                    assert account.parts() == {row["LoadBalancerArn"]}, (kind, call, skip, is_take)
                    with proxy.broken(*([fault] if is_take else [])):
                        await patiently(cloud.load_balancers.ensure, TAKING, nodes)
                    shown = {**account.balancer(NAME), "dns": ""}
                    assert shown == {**whole, "dns": ""}, (kind, call, skip, is_take)
                    await delete(cloud, TAKING)
                    assert account.parts() == frozenset(), (kind, call, skip, is_take)


async def test_one_that_failed_is_deleted_although_it_was_to_be_kept(account, cloud):
    await cloud.load_balancers.ensure(KEEPING, await backends(cloud))
    account.moto.control(do="fail", name=NAME)
    await patiently(cloud.load_balancers.delete, KEEPING)
    assert account.parts() == frozenset()


async def test_a_classic_one_is_not_kept_and_never_deleted_instead(account, cloud):
    nodes, plain = await backends(cloud), classic()
    await cloud.load_balancers.ensure(plain, nodes)
    asking = replace(plain, keep=Kept.LOAD_BALANCER)
    with pytest.raises(Invalid, match="only a Network Load Balancer can be kept"):
        await cloud.load_balancers.ensure(asking, nodes)
    with pytest.raises(Invalid, match="type to nlb"):
        await cloud.load_balancers.ensure(replace(plain, uid=OTHER, take_back=NAME), nodes)
    with pytest.raises(Conflict, match="remove the annotation"):
        await cloud.load_balancers.delete(asking)
    assert account.classic_balancers()
    await delete(cloud, plain)
    assert account.parts() == frozenset()

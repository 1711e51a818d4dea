# SPDX-License-Identifier: Apache-2.0
"""Each call to the account fails in each way. No object is reported as gone, and nothing is left behind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ccm.cloud import (
    CloudError,
    Instance,
    InstanceRef,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.providers.aws import AwsCloud
from tests.comparison import confirm
from tests.kit import hasty

from .proxy import Fault
from .services import MORE, PORT, backends, classic, delete, patiently, spec
from .world import config

# `make test-clouds` runs these tests, but CI does not, because they make thousands of calls to moto.
pytestmark = pytest.mark.long

#: A series of operations, which returns their results.
Story = Callable[[Any, AwsCloud], Awaitable[Any]]
#: What happens to one call, and the errors that the provider may raise, which are never NotFound.
KINDS: dict[str, tuple[Fault, tuple[type[CloudError], ...]]] = {
    "5xx": (Fault("status", status=503, code="InternalFailure"), (Transient,)),
    "a proxy's page": (Fault("status", status=404, body="<html></html>"), (Transient,)),
    "throttled": (Fault("status", status=400, code="Throttling", headers={"Retry-After": "7"}), (RateLimited,)),
    "busy": (Fault("status", status=400, code="DependencyViolation", times=2), (RetryAfter,)),
    "half an answer": (Fault("truncate"), (Transient,)),
    "no connection": (Fault("drop"), (Transient,)),
    "no answer": (Fault("hang", times=2), (Transient,)),
    "a late answer": (Fault("slow", seconds=0.2), ()),
    "a lost answer": (Fault("lost"), (Transient,)),
    "the token has expired": (Fault("status", status=400, code="ExpiredToken"), (Unauthorized,)),
    "a right is missing": (Fault("status", status=403, code="UnauthorizedOperation"), (Unauthorized,)),
}


async def test_each_call_breaks_in_each_way_and_nothing_looks_gone(account, proxy, connect):
    calls, survived, truth = await _break_each(account, proxy, connect, _story)
    assert {"DescribeInstances", "CreateLoadBalancer", "CreateListener", "RegisterTargets", "AddTags"} < set(calls)
    given = config(account, proxy)
    for kind, (fault, errors) in KINDS.items():
        start = dataclasses.replace(fault, call="DescribeAvailabilityZones")
        with proxy.broken(start), contextlib.suppress(*errors):
            await connect(hasty(given) if kind == "no answer" else given)
        cloud = await connect(given)
        assert await _story(account, cloud) == truth
        survived += 1
    confirm("aws", "faults survived", f"{survived} of {(len(calls) + 1) * len(KINDS)}")


async def test_each_call_about_a_classic_load_balancer_breaks_in_each_way(account, proxy, connect):
    calls, survived, _ = await _break_each(account, proxy, connect, _classic_story)
    assert {"classic CreateLoadBalancer", "CreateSecurityGroup", "DeleteSecurityGroup", "classic AddTags"} < set(calls)
    assert survived == len(calls) * len(KINDS)


async def _break_each(account: Any, proxy: Any, connect: Any, story: Story) -> tuple[list[str], int, Any]:
    """Break each call of `story` (`_story` or `_classic_story`) in each way. Return the calls, how many times the
    result was right afterwards, and the result of `story` without a fault.
    """
    for zone in "aba":
        account.run(zone=zone)
    given = config(account, proxy)
    cloud, impatient = await connect(given), await patiently(connect, hasty(given))
    since, survived = len(proxy.calls), 0
    truth = await story(account, cloud)
    await delete(cloud, spec())
    calls = sorted(set(proxy.calls[since:]))
    for kind, (fault, errors) in KINDS.items():
        used = impatient if kind == "no answer" else cloud
        for call in calls:
            broken = dataclasses.replace(fault, call=call)
            with proxy.broken(broken), contextlib.suppress(*errors):
                assert await story(account, used) == truth, (kind, call)
                await delete(used, spec())
            assert await story(account, used) == truth, (kind, call)
            await delete(used, spec())
            assert account.parts() == frozenset(), (kind, call)
            survived += 1
    return calls, survived, truth


async def _story(account: Any, cloud: AwsCloud) -> tuple[Sequence[Instance], dict[str, Any]]:
    """Read all instances by a listing, one by one and by name. Create a load balancer, remove a target, and change the
    port and attributes. Return the instances, and the load balancer without its host name."""
    page = await patiently(cloud.instances.list_page, None)
    found = list(page.instances)
    for each in page.instances:
        found.append(await patiently(cloud.instances.get, InstanceRef(each.name, each.provider_id)))
        found.append(await patiently(cloud.instances.get, InstanceRef(each.name)))
    nodes = await patiently(backends, cloud)
    checked = {"healthcheck-healthy-threshold": "5", "cross-zone-load-balancing-enabled": "true"}
    await patiently(cloud.load_balancers.ensure, spec(PORT), nodes)
    await patiently(cloud.load_balancers.update_backends, spec(PORT), nodes[1:])
    last = spec(MORE, annotations=checked)
    await patiently(cloud.load_balancers.ensure, last, nodes[1:])
    (listed,) = await patiently(cloud.load_balancers.list, "kube")
    assert listed.fingerprint == cloud.load_balancers.fingerprint(last, nodes[1:])
    return found, {**account.balancer(spec().default_name), "dns": ""}


async def _classic_story(account: Any, cloud: AwsCloud) -> dict[str, Any]:
    """Create a Classic Load Balancer, remove a target, and change the port and attributes. Return the load balancer."""
    nodes = await patiently(backends, cloud)
    await patiently(cloud.load_balancers.ensure, classic(PORT), nodes)
    await patiently(cloud.load_balancers.update_backends, classic(PORT), nodes[1:])
    last = classic(MORE, annotations={"cross-zone-load-balancing-enabled": "true", "proxy-protocol": "*"})
    await patiently(cloud.load_balancers.ensure, last, nodes[1:])
    (listed,) = await patiently(cloud.load_balancers.list, "kube")
    assert listed.fingerprint == cloud.load_balancers.fingerprint(last, nodes[1:])
    return account.classic_balancer(classic().default_name)

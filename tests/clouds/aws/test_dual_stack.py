# SPDX-License-Identifier: Apache-2.0
"""Network Load Balancers of dual-stack Services: the IP address type `dualstack`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ccm.cloud import Port
from ccm.conformance import CASES, Outcome, Subject
from ccm.providers.aws import AwsCloud
from tests.kit import check

from .proxy import Fault
from .services import backends, delete, patiently, spec
from .world import AwsWorld, config

NAME = spec().default_name
BOTH = spec(ip_families=("IPv4", "IPv6"))
LIMITED = replace(BOTH, source_ranges=("192.0.2.0/24", "::/0"))


@pytest.fixture
async def cloud(account, proxy, connect):
    for zone in "ab":
        account.run(zone=zone)
    return await connect(config(account, proxy))


def type_(account) -> str:
    (row,) = account.balancers()
    return str(row["IpAddressType"])


async def test_a_service_of_both_families_gets_both_and_the_name_of_both(account, proxy, cloud):
    account.add_ipv6()
    nodes, since = await backends(cloud), len(proxy.calls)
    made = await cloud.load_balancers.ensure(BOTH, nodes)
    assert type_(account) == "dualstack" and not made.warnings
    assert "SetIpAddressType" not in proxy.calls[since:], "it is created with both families"
    assert [each.hostname.partition("-")[0] for each in made.ingress] == [NAME], "its name has both addresses"
    assert await cloud.load_balancers.deviations(BOTH, nodes) == []
    assert [each.fingerprint for each in await cloud.load_balancers.list("kube")] == [made.fingerprint]
    await delete(cloud, BOTH)


async def test_an_existing_one_is_converted_in_place_and_back(account, cloud):
    account.add_ipv6()
    nodes, plain = await backends(cloud), spec()
    before = await cloud.load_balancers.ensure(plain, nodes)
    for given, expected in ((BOTH, "dualstack"), (plain, "ipv4"), (BOTH, "dualstack"), (LIMITED, "ipv4")):
        after = await cloud.load_balancers.ensure(given, nodes)
        assert type_(account) == expected and after.ingress == before.ingress
        assert await cloud.load_balancers.deviations(given, nodes) == []
        assert after.fingerprint == cloud.load_balancers.fingerprint(given, nodes)


async def test_a_conversion_is_one_change_and_its_mark(account, proxy, cloud):
    account.add_ipv6()
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    since = len(proxy.calls)
    await cloud.load_balancers.ensure(BOTH, nodes)
    assert [call for call in proxy.calls[since:] if not call.startswith("Describe")] == ["SetIpAddressType", "AddTags"]


async def test_what_a_person_set_stays_while_the_service_asks_for_ipv4(account, cloud):
    account.add_ipv6()
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    (row,) = account.balancers()
    account.elb.set_ip_address_type(LoadBalancerArn=row["LoadBalancerArn"], IpAddressType="dualstack")
    assert await cloud.load_balancers.deviations(spec(), nodes) == []
    await cloud.load_balancers.ensure(spec(), nodes)
    assert type_(account) == "dualstack"


async def test_what_somebody_took_away_is_found_and_repaired(account, cloud):
    account.add_ipv6()
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(BOTH, nodes)
    (row,) = account.balancers()
    account.elb.set_ip_address_type(LoadBalancerArn=row["LoadBalancerArn"], IpAddressType="ipv4")
    (found,) = await cloud.load_balancers.deviations(BOTH, nodes)
    assert "no IPv6 addresses" in found
    await cloud.load_balancers.ensure(BOTH, nodes)
    assert type_(account) == "dualstack"


async def test_subnets_without_ipv6_are_named_and_a_comparison_sees_when_they_get_it(account, proxy, cloud, connect):
    nodes = await backends(cloud)
    made = await cloud.load_balancers.ensure(BOTH, nodes)
    assert type_(account) == "ipv4"
    (told,) = made.warnings
    assert account.subnets["public-a"] in told and "have no IPv6 range" in told
    assert await cloud.load_balancers.deviations(BOTH, nodes) == []
    account.add_ipv6()
    later = await connect(config(account, proxy))  # a new process reads the subnets again
    assert len(await later.load_balancers.deviations(BOTH, nodes)) == 1
    assert not (await later.load_balancers.ensure(BOTH, nodes)).warnings
    assert type_(account) == "dualstack"


async def test_udp_comes_and_goes_with_the_type_in_the_order_that_aws_demands(account, proxy, cloud):
    account.add_ipv6()
    nodes = await backends(cloud)
    udp = replace(BOTH, ports=(Port("dns", "UDP", 80, 30080),))
    await cloud.load_balancers.ensure(BOTH, nodes)
    for given, first, second in (
        (udp, "SetIpAddressType", "CreateListener"),
        (BOTH, "DeleteListener", "SetIpAddressType"),
    ):
        since = len(proxy.calls)
        await cloud.load_balancers.ensure(given, nodes)
        calls = proxy.calls[since:]
        assert calls.index(first) < calls.index(second), calls
    assert type_(account) == "dualstack"


async def test_a_lost_answer_of_the_conversion_is_no_second_one(account, proxy, cloud):
    account.add_ipv6()
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    with proxy.broken(Fault("lost", call="SetIpAddressType", times=1)):
        await patiently(cloud.load_balancers.ensure, BOTH, nodes)
    assert type_(account) == "dualstack"
    await cloud.load_balancers.ensure(spec(), nodes)
    assert type_(account) == "ipv4", "the mark says that it was this provider"


async def test_the_kit_believes_a_host_name(account, proxy):
    """In subnets with IPv6, the provider returns a host name instead of addresses, without a warning. The kit's case
    about IP families accepts that."""
    account.run()
    account.add_ipv6()
    (case,) = (each for each in CASES if each.name == "load_balancers.each_ip_family_is_served_or_reported")
    world = AwsWorld(account, proxy)
    result = await check(case, Subject("aws", AwsCloud, config(account, proxy), allow_writes=True, world=world))
    assert result.outcome is Outcome.PASSED, result.detail

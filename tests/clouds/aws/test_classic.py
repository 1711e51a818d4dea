# SPDX-License-Identifier: Apache-2.0
"""Classic Load Balancers of this provider, without cloud-provider-aws."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

import pytest

from ccm.cloud import Conflict, Invalid, NotFound, Port, RetryAfter
from ccm.providers.aws import LAG

from .account import OWNED, Account
from .proxy import Fault
from .services import MORE, PORT, backends, classic, delete, ids, patiently, spec
from .world import config

NAME = classic().default_name
OWN = f"k8s-elb-{NAME}"
OTHER_UID = "ffffffff-1111-2222-3333-444455556666"


@pytest.fixture
async def cloud(account, proxy, connect):
    for zone in "aba":
        account.run(zone=zone)
    return await connect(config(account, proxy))


def create_group(account: Account, name: str, *, of_cluster: bool = False) -> str:
    id = str(account.ec2.create_security_group(GroupName=name, Description=name, VpcId=account.vpc)["GroupId"])
    if of_cluster:
        account.ec2.create_tags(Resources=[id], Tags=OWNED)
    return id


def admits(id: str) -> list[dict[str, Any]]:
    return [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": id}]}]


async def test_a_life_takes_few_calls(account, proxy, cloud):
    nodes, counts, since = await backends(cloud), {}, len(proxy.calls)

    def count(what: str) -> None:
        nonlocal since
        counts[what], since = len(proxy.calls) - since, len(proxy.calls)

    made = await cloud.load_balancers.ensure(classic(), nodes[:2])
    count("create")
    assert made.ready and made.fingerprint == cloud.load_balancers.fingerprint(classic(), nodes[:2])
    (listed,) = await cloud.load_balancers.list("kube")
    assert (listed.fingerprint, listed.service_uid, listed.ingress) == (made.fingerprint, classic().uid, made.ingress)
    count("listing")
    cloud.load_balancers.deletions.clock = lambda: time.monotonic() + LAG
    await cloud.load_balancers.update_backends(classic(), nodes)
    count("node joins")
    shown = account.classic_balancer(NAME)
    assert shown["Instances"] == ids(nodes)
    assert shown["DNSName"] == made.ingress[0].hostname
    assert shown["SecurityGroups"] == [OWN] and shown["admitted by"] == [account.group]
    assert shown["ranges"] == [("icmp", 3, 4, "0.0.0.0/0"), ("tcp", 80, 80, "0.0.0.0/0")]
    await cloud.load_balancers.update_backends(classic(), nodes[1:])
    count("node leaves")
    await cloud.load_balancers.ensure(classic(PORT, MORE), nodes[1:])
    count("port added")
    listeners = account.classic_balancer(NAME)["ListenerDescriptions"]
    assert [each["Listener"]["LoadBalancerPort"] for each in listeners] == [80, 81]
    assert await cloud.load_balancers.deviations(classic(PORT, MORE), nodes[1:]) == []
    since = len(proxy.calls)
    await cloud.load_balancers.delete(classic())
    count("delete")
    assert account.parts() == frozenset()
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(classic())
    count("delete again, soon after a write")
    assert counts["create"] <= 11
    assert counts["listing"] == 3
    assert counts["node joins"] <= 2
    assert counts["node leaves"] <= 2
    assert counts["port added"] <= 9
    assert counts["delete"] <= 8
    assert counts["delete again, soon after a write"] <= 1


async def test_another_process_learns_what_it_needs_for_a_change_of_nodes(account, proxy, cloud, connect):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes[:2])
    other = await connect(config(account, proxy))
    await backends(other)
    since = len(proxy.calls)
    found = await other.load_balancers.update_backends(classic(), nodes)
    assert proxy.counted(since) == {
        "classic DescribeLoadBalancers": 1,
        "classic DescribeTags": 1,
        "DescribeSecurityGroups": 1,
        "classic RegisterInstancesWithLoadBalancer": 1,
        "classic AddTags": 1,
    }
    assert found.fingerprint == other.load_balancers.fingerprint(classic(), nodes)
    assert [each.fingerprint for each in await cloud.load_balancers.list("kube")] == [found.fingerprint]
    since = len(proxy.calls)
    await other.load_balancers.update_backends(classic(), nodes[1:])
    assert proxy.counted(since) == {"classic DeregisterInstancesFromLoadBalancer": 1, "classic AddTags": 1}


async def test_everything_that_a_service_asks_for_is_written_and_taken_back(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes)
    plain = account.classic_balancer(NAME)
    full = classic(
        PORT,
        MORE,
        source_ranges=("192.0.2.0/24",),
        annotations={
            "proxy-protocol": "*",
            "cross-zone-load-balancing-enabled": "true",
            "connection-draining-enabled": "true",
            "connection-draining-timeout": "20",
            "connection-idle-timeout": "90",
            "healthcheck-protocol": "http",
            "healthcheck-path": "/up",
        },
    )
    await cloud.load_balancers.ensure(full, nodes)
    shown = account.classic_balancer(NAME)
    assert shown["HealthCheck"]["Target"] == "HTTP:30080/up"
    assert {each["InstancePort"] for each in shown["BackendServerDescriptions"]} == {30080, 30081}
    assert shown["attributes"]["ConnectionDraining"] == {"Enabled": True, "Timeout": 20}
    assert shown["attributes"]["ConnectionSettings"] == {"IdleTimeout": 90}
    assert shown["ranges"] == [
        ("icmp", 3, 4, "192.0.2.0/24"),
        *(("tcp", port, port, "192.0.2.0/24") for port in (80, 81)),
    ]
    assert await cloud.load_balancers.deviations(full, nodes) == []
    await cloud.load_balancers.ensure(classic(), nodes)
    again = account.classic_balancer(NAME)
    for each in (plain, again):
        each["attributes"].pop("ConnectionDraining")
        each.pop("Policies")  # the policy for the PROXY protocol stays, but no node port uses it
    assert again == plain


async def test_an_instance_that_aws_took_out_keeps_no_other_from_going(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes)
    account.terminate(*ids(nodes[:1]))
    found = await cloud.load_balancers.update_backends(classic(), nodes[-1:])
    assert found.fingerprint == cloud.load_balancers.fingerprint(classic(), nodes[-1:])
    (instance,) = account.classic.describe_load_balancers()["LoadBalancerDescriptions"][0]["Instances"]
    assert [instance["InstanceId"]] == ids(nodes[-1:])


async def test_rules_follow_the_targets_to_their_groups(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes)
    before = account.admissions()
    other = create_group(account, "more")
    account.run(groups=[other])
    (joined,) = [each for each in await backends(cloud) if each not in nodes]
    await cloud.load_balancers.update_backends(classic(), [*nodes, joined])
    assert {group for group, _ in account.admissions()} == {account.group, other}
    account.ec2.create_tags(Resources=[other], Tags=OWNED)
    await cloud.load_balancers.ensure(classic(), nodes)
    assert account.admissions() == before


async def test_services_that_come_and_go_together_leave_nothing(account, cloud):
    nodes = await backends(cloud)
    given = [
        dataclasses.replace(
            classic(Port("http", "TCP", 80, 30080 + number)), uid=f"{number:08x}-1111-2222-3333-444455556666"
        )
        for number in range(6)
    ]
    await asyncio.gather(*(patiently(cloud.load_balancers.ensure, each, nodes) for each in given))
    assert len(account.admissions()) == len(given)
    await asyncio.gather(*(delete(cloud, each) for each in given))
    assert account.parts() == frozenset()


async def test_what_somebody_changed_is_found_and_repaired(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(PORT, MORE), nodes)
    whole = account.classic_balancer(NAME)
    own = account.groups()[OWN]
    account.classic.deregister_instances_from_load_balancer(
        LoadBalancerName=NAME, Instances=[{"InstanceId": ids(nodes)[0]}]
    )
    account.classic.delete_load_balancer_listeners(LoadBalancerName=NAME, LoadBalancerPorts=[81])
    account.ec2.revoke_security_group_ingress(GroupId=account.group, IpPermissions=admits(own))
    account.ec2.authorize_security_group_ingress(
        GroupId=own, IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0"
    )
    found = await cloud.load_balancers.deviations(classic(PORT, MORE), nodes)
    assert len(found) == 4, found
    await cloud.load_balancers.ensure(classic(PORT, MORE), nodes)
    assert await cloud.load_balancers.deviations(classic(PORT, MORE), nodes) == []
    assert account.classic_balancer(NAME) == whole


async def test_it_follows_the_subnets_of_the_cluster(account, cloud):
    nodes = await backends(cloud)
    named = classic(annotations={"subnets": account.subnets["public-a"]})
    await cloud.load_balancers.ensure(named, nodes)
    assert account.classic_balancer(NAME)["Subnets"] == [account.subnets["public-a"]]
    (found,) = await cloud.load_balancers.deviations(classic(), nodes)
    assert account.subnets["public-b"] in found
    await cloud.load_balancers.ensure(classic(), nodes)
    public = sorted(account.subnets[f"public-{zone}"] for zone in "ab")
    assert account.classic_balancer(NAME)["Subnets"] == public


@pytest.mark.parametrize("what", ["create", "delete"])
@pytest.mark.parametrize("kind", ["status", "lost"])
async def test_every_call_of_a_create_and_a_delete_may_fail_once(account, proxy, cloud, kind, what):
    nodes = await backends(cloud)
    wanted = classic(annotations={"cross-zone-load-balancing-enabled": "true", "proxy-protocol": "*"})
    calls, since = {}, len(proxy.calls)
    await cloud.load_balancers.ensure(wanted, nodes)
    calls["create"], since = proxy.calls[since:], len(proxy.calls)
    whole = account.classic_balancer(NAME)
    await cloud.load_balancers.delete(wanted)
    calls["delete"] = proxy.calls[since:]
    assert account.parts() == frozenset()
    assert {"classic CreateLoadBalancer", "CreateSecurityGroup", "classic AddTags"} < set(calls["create"])
    assert {"classic DeleteLoadBalancer", "DeleteSecurityGroup", "RevokeSecurityGroupIngress"} < set(calls["delete"])
    for call in sorted(set(calls[what])):
        for skip in range(calls[what].count(call)):
            fault = Fault(kind, call=call, code="InternalError", skip=skip, times=1)
            with proxy.broken(*([fault] if what == "create" else [])):
                await patiently(cloud.load_balancers.ensure, wanted, nodes)
            assert account.classic_balancer(NAME) == whole, (call, skip)
            with proxy.broken(*([fault] if what == "delete" else [])):
                await delete(cloud, wanted)
            assert account.parts() == frozenset(), (call, skip)


async def test_a_create_that_is_given_up_leaves_nothing_after_its_delete(account, proxy, cloud):
    nodes = await backends(cloud)
    for call in ("CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "classic *Balancer", "classic AddTags"):
        with proxy.broken(Fault("lost", call=call)), pytest.raises(Exception, match="AWS"):
            await cloud.load_balancers.ensure(classic(), nodes)
        await delete(cloud, classic())
        assert account.parts() == frozenset(), call


async def test_a_group_that_is_still_in_use_is_deleted_later(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes)
    account.moto.control(do="hold groups", seconds=60)
    for _ in range(2):
        with pytest.raises(RetryAfter):
            await cloud.load_balancers.delete(classic())
        assert account.parts() == {OWN}
    account.moto.control(do="hold groups", seconds=0)
    await cloud.load_balancers.delete(classic())
    assert account.parts() == frozenset()
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(classic())


async def test_groups_of_others_are_used_and_never_changed(account, cloud):
    nodes, shared, extra = await backends(cloud), create_group(account, "shared"), create_group(account, "extra")
    for group, port in ((shared, 80), (extra, 443)):
        account.ec2.authorize_security_group_ingress(
            GroupId=group, IpProtocol="tcp", FromPort=port, ToPort=port, CidrIp="192.0.2.0/24"
        )
    before = [account.ranges(shared), account.ranges(extra)]
    given = classic(annotations={"security-groups": shared, "extra-security-groups": extra})
    other = dataclasses.replace(given, uid=OTHER_UID, name="other")
    for each in (given, other):
        await cloud.load_balancers.ensure(each, nodes)
        assert await cloud.load_balancers.deviations(each, nodes) == []
    assert account.classic_balancer(NAME)["SecurityGroups"] == ["shared", "extra"]
    assert account.admissions() == [(account.group, shared)]
    await cloud.load_balancers.delete(given)
    assert account.admissions() == [(account.group, shared)], "another load balancer has the group"
    await cloud.load_balancers.delete(other)
    assert account.parts() == frozenset()
    assert [account.ranges(shared), account.ranges(extra)] == before


async def test_a_group_of_its_own_and_one_of_others_take_each_others_place(account, cloud):
    nodes, shared = await backends(cloud), create_group(account, "shared")
    borrowing = classic(annotations={"security-groups": shared})
    await cloud.load_balancers.ensure(classic(), nodes)
    for _ in range(2):
        await cloud.load_balancers.ensure(borrowing, nodes)
        assert account.classic_balancer(NAME)["SecurityGroups"] == ["shared"]
        assert OWN not in account.groups() and account.admissions() == [(account.group, shared)]
        await cloud.load_balancers.ensure(classic(), nodes)
        assert account.classic_balancer(NAME)["SecurityGroups"] == [OWN]
        assert account.admissions() == [(account.group, account.groups()[OWN])]
        assert await cloud.load_balancers.deviations(classic(), nodes) == []
    await cloud.load_balancers.delete(classic())
    assert account.parts() == frozenset()
    assert "shared" in account.groups()


async def test_a_group_that_does_not_exist_is_reported(account, cloud):
    with pytest.raises(Invalid, match="the VPC has no security group sg-0123"):
        await cloud.load_balancers.ensure(classic(annotations={"security-groups": "sg-0123"}), [])
    assert account.parts() == frozenset()


async def test_the_groups_of_nodes_stay_as_they_are_if_the_configuration_says_so(account, proxy, connect):
    account.run()
    cloud = await connect(config(account, proxy, "DisableSecurityGroupIngress = true"))
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(classic(), nodes)
    assert account.admissions() == []
    assert await cloud.load_balancers.deviations(classic(), nodes) == []
    await cloud.load_balancers.delete(classic())
    assert account.parts() == frozenset()


async def test_the_group_of_the_configuration_is_never_changed(account, proxy, connect):
    group = create_group(account, "all", of_cluster=True)
    account.run(groups=[group])
    cloud = await connect(config(account, proxy, f"ElbSecurityGroup = {group}"))
    await cloud.load_balancers.ensure(classic(), await backends(cloud))
    assert account.classic_balancer(NAME)["SecurityGroups"] == ["all"]
    assert account.admissions() == [] and account.ranges(group) == []
    await cloud.load_balancers.delete(classic())
    assert "all" in account.groups()


async def test_what_belongs_to_another_cluster_is_not_touched(account, proxy, cloud, connect):
    """A load balancer and a security group that have the same names, but the tag of another cluster, stay unchanged."""
    given = config(account, proxy)
    other = await connect(dataclasses.replace(given, text=given.text.replace("ID = kube", "ID = other")))
    theirs = dataclasses.replace(classic(), cluster="other")
    nodes = await backends(cloud)
    account.ec2.create_tags(
        Resources=[account.group, *account.subnets.values()],
        Tags=[{"Key": "kubernetes.io/cluster/other", "Value": "owned"}],
    )
    await other.load_balancers.ensure(theirs, nodes)
    before, parts = account.classic_balancer(NAME), account.parts()
    with pytest.raises(Conflict, match="not of cluster kube"):
        await cloud.load_balancers.ensure(classic(), nodes)
    for call in (cloud.load_balancers.get, cloud.load_balancers.delete):
        with pytest.raises((Conflict, NotFound)):
            await call(classic())
    assert await cloud.load_balancers.list("kube") == []
    account.classic.delete_load_balancer(LoadBalancerName=NAME)
    with pytest.raises(Conflict, match=f"{OWN} exists without the tag of cluster kube"):
        await cloud.load_balancers.ensure(classic(), nodes)
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(classic())
    assert account.parts() == parts - {f"classic {NAME}"}
    await other.load_balancers.ensure(theirs, nodes)
    assert account.classic_balancer(NAME) == before


async def test_a_load_balancer_of_nobody_is_not_taken_over(account, cloud):
    account.classic.create_load_balancer(
        LoadBalancerName=NAME,
        Listeners=[{"Protocol": "TCP", "LoadBalancerPort": 80, "InstancePort": 30080}],
        Subnets=[account.subnets["public-a"]],
        SecurityGroups=[account.group],
    )
    before = account.classic_balancer(NAME)
    with pytest.raises(Conflict, match="nobody's by its tags"):
        await cloud.load_balancers.ensure(classic(), [])
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(classic())
    assert account.classic_balancer(NAME) == before


@pytest.mark.parametrize("first", ["classic", "nlb"])
async def test_the_type_of_a_load_balancer_never_changes(account, proxy, cloud, first):
    """The error says what to do, and nothing changes. The load balancer is deleted with its Service."""
    nodes = await backends(cloud)
    before, after = (classic(), spec()) if first == "classic" else (spec(), classic())
    made = await cloud.load_balancers.ensure(before, nodes)
    parts = account.parts()
    changed = dataclasses.replace(after, ingress=made.ingress)
    since = len(proxy.calls)
    with pytest.raises(Invalid, match=rf"Load Balancer {NAME}, .* type never changes.*to {first}, or create another"):
        await cloud.load_balancers.ensure(changed, nodes)
    assert len(proxy.calls) == since + 1
    with pytest.raises(Invalid, match="never changes"):
        await cloud.load_balancers.get(changed)
    assert account.parts() == parts
    again = dataclasses.replace(before, ingress=made.ingress)
    assert (await cloud.load_balancers.ensure(again, nodes)).ingress == made.ingress
    await cloud.load_balancers.delete(changed)
    assert account.parts() == frozenset()
    assert (await cloud.load_balancers.ensure(changed, nodes)).ingress != made.ingress


async def test_what_is_refused_makes_no_call(proxy, cloud):
    given, since = classic(Port("", "UDP", 80, 30080)), len(proxy.calls)
    with pytest.raises(Invalid, match="forwards TCP, not UDP"):
        await cloud.load_balancers.ensure(given, [])
    assert proxy.calls[since:] == []
    assert cloud.load_balancers.fingerprint(given, []).startswith("not served: ")
    with pytest.raises(Invalid, match="UDP"):
        await cloud.load_balancers.get(given)


async def test_protection_is_in_the_mark_and_so_the_audit_respects_it(account, cloud):
    nodes, plain = await backends(cloud), classic()
    for given in (dataclasses.replace(plain, protected=True), plain):
        await cloud.load_balancers.ensure(given, nodes)
        (listed,) = await cloud.load_balancers.list("kube")
        assert listed.protected is given.protected
        assert listed.fingerprint == cloud.load_balancers.fingerprint(given, nodes)

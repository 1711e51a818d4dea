# SPDX-License-Identifier: Apache-2.0
"""Network Load Balancers of this provider, without cloud-provider-aws."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter

import pytest

from ccm.cloud import Conflict, ImplementedElsewhere, Invalid, NotFound, Port, RetryAfter, Transient
from ccm.providers.aws import LAG

from .proxy import Fault
from .services import MORE, PORT, backends, delete, ids, patiently, spec
from .world import config

NAME = spec().default_name


@pytest.fixture
async def cloud(account, proxy, connect):
    for zone in "aba":
        account.run(zone=zone)
    return await connect(config(account, proxy))


async def test_a_life_takes_few_calls(account, proxy, cloud):
    assert await cloud.load_balancers.list("kube") == []  # at its start, the framework lists
    nodes, counts, since = await backends(cloud), {}, len(proxy.calls)

    def count(what: str) -> None:
        nonlocal since
        counts[what], since = len(proxy.calls) - since, len(proxy.calls)

    made = await cloud.load_balancers.ensure(spec(), nodes[:2])
    count("create")
    assert made.fingerprint == cloud.load_balancers.fingerprint(spec(), nodes[:2])
    (listed,) = await cloud.load_balancers.list("kube")
    assert (listed.fingerprint, listed.service_uid, listed.ingress) == (made.fingerprint, spec().uid, made.ingress)
    count("listing")
    cloud.load_balancers.deletions.clock = lambda: time.monotonic() + LAG
    await cloud.load_balancers.update_backends(spec(), nodes)
    count("node joins")
    (shown,) = account.balancer(NAME)["listeners"]
    assert [id for id, _ in shown["targets"]] == ids(nodes)
    await cloud.load_balancers.update_backends(spec(), nodes[1:])
    count("node leaves")
    await cloud.load_balancers.ensure(spec(PORT, MORE), nodes[1:])
    count("port added")
    assert {each["port"] for each in account.balancer(NAME)["listeners"]} == {80, 81}
    assert await cloud.load_balancers.deviations(spec(PORT, MORE), nodes[1:]) == []
    since = len(proxy.calls)
    await cloud.load_balancers.delete(spec())
    count("delete")
    assert account.parts() == frozenset()
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(spec())
    count("delete again, soon after a write")
    assert counts["node joins"] <= 3
    assert counts["node leaves"] <= 3
    assert counts["create"] <= 10
    assert counts["listing"] == 3
    assert counts["port added"] <= 15
    assert counts["delete"] <= 8
    assert counts["delete again, soon after a write"] <= 2


async def test_the_limit_counts_each_port_of_an_instance(account, proxy, connect):
    for zone in "aba":
        account.run(zone=zone)
    limited = await connect(config(account, proxy, runtime="MaxTargets = 4"))
    nodes, two = await backends(limited), spec(PORT, MORE)
    made = await limited.load_balancers.ensure(two, nodes)
    targets = {each["port"]: {id for id, _ in each["targets"]} for each in account.balancer(NAME)["listeners"]}
    assert targets[80] == targets[81] < set(ids(nodes)) and len(targets[80]) == 2
    assert await limited.load_balancers.deviations(two, nodes) == [] and not made.warnings
    local = dataclasses.replace(two, external_traffic_policy="Local")
    (told,) = (await limited.load_balancers.ensure(local, nodes)).warnings
    assert "MaxTargets" in told
    assert {len(each["targets"]) for each in account.balancer(NAME)["listeners"]} == {3}


async def test_another_process_deletes_what_it_finds(account, proxy, cloud, connect):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    other = await connect(config(account, proxy))
    since = len(proxy.calls)
    await other.load_balancers.delete(spec())
    assert proxy.counted(since) == Counter(
        DescribeLoadBalancers=1,
        DescribeTags=1,
        DescribeTargetGroups=1,
        DeleteLoadBalancer=1,
        DeleteTargetGroup=1,
        DescribeSecurityGroups=1,
        RevokeSecurityGroupIngress=1,
        **{"classic DescribeLoadBalancers": 1},
    )
    assert account.parts() == frozenset()
    await other.load_balancers.ensure(spec(), nodes)
    await delete(cloud, spec())  # this process knows only the ARN of the first load balancer
    assert account.parts() == frozenset()


async def test_another_process_learns_what_it_needs_for_a_change_of_nodes(account, proxy, cloud, connect):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes[:2])
    other = await connect(config(account, proxy))
    found = await other.load_balancers.update_backends(spec(), nodes)
    assert found.fingerprint == other.load_balancers.fingerprint(spec(), nodes)
    assert [each.fingerprint for each in await cloud.load_balancers.list("kube")] == [found.fingerprint]


async def test_a_change_of_nodes_needs_no_look_at_one_that_was_seen_active(account, proxy, cloud):
    nodes = await backends(cloud)
    account.moto.control(do="slow", seconds=60)
    assert not (await cloud.load_balancers.ensure(spec(), nodes[:1])).ready
    assert not (await cloud.load_balancers.get(spec())).ready
    assert not (await cloud.load_balancers.update_backends(spec(), nodes[:2])).ready
    account.moto.control(do="slow", seconds=0)
    assert (await cloud.load_balancers.get(spec())).ready
    assert (await cloud.load_balancers.update_backends(spec(), nodes)).ready


async def test_rules_follow_the_targets_to_their_groups(account, proxy, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    before = account.rules()
    assert {(group, rule[4].partition("=")[0]) for group, rule in before} == {
        (account.group, "kubernetes.io/rule/nlb/client"),
        (account.group, "kubernetes.io/rule/nlb/mtu"),
    }
    other = account.ec2.create_security_group(GroupName="more", Description="more", VpcId=account.vpc)["GroupId"]
    account.run(groups=[other])
    (joined,) = [each for each in await backends(cloud) if each not in nodes]
    await cloud.load_balancers.update_backends(spec(), [*nodes, joined])
    assert {group for group, _ in account.rules()} == {account.group, other}
    await cloud.load_balancers.ensure(spec(), nodes)
    assert account.rules() == before


async def test_services_that_come_and_go_together_share_a_rule_and_leave_none(account, cloud):
    nodes = await backends(cloud)
    ports = [Port("http", "TCP", 80, 30080 + number) for number in range(8)]
    given = [
        dataclasses.replace(
            spec(port), uid=f"{port.node_port:08x}-1111-2222-3333-444455556666", name=f"web-{port.node_port}"
        )
        for port in ports
    ]
    await asyncio.gather(*(patiently(cloud.load_balancers.ensure, each, nodes) for each in given))
    assert [rule[0] for _, rule in account.rules()] == ["icmp", *["tcp"] * len(ports)]
    await asyncio.gather(*(delete(cloud, each) for each in given))
    assert account.parts() == frozenset()


async def test_a_rule_of_somebody_else_stays(account, cloud):
    theirs = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22,
               "IpRanges": [{"CidrIp": "192.0.2.0/24", "Description": "by hand"}]}]  # fmt: skip
    account.ec2.authorize_security_group_ingress(GroupId=account.group, IpPermissions=theirs)
    before = account.rules()
    await cloud.load_balancers.ensure(spec(), await backends(cloud))
    await cloud.load_balancers.delete(spec())
    assert account.rules() == before


async def test_what_somebody_changed_is_found_and_repaired(account, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(PORT, MORE), nodes)
    (group,) = [each for each in account.elb.describe_target_groups()["TargetGroups"] if each["Port"] == 30080]
    arn = group["TargetGroupArn"]
    account.elb.deregister_targets(TargetGroupArn=arn, Targets=[{"Id": ids(nodes)[0]}])
    account.elb.modify_target_group(TargetGroupArn=arn, HealthCheckPort="1")
    (rule,) = [rule for _, rule in account.rules() if rule[1] == 30081]
    account.ec2.revoke_security_group_ingress(
        GroupId=account.group, IpProtocol="tcp", FromPort=30081, ToPort=30081, CidrIp=rule[3]
    )
    found = await cloud.load_balancers.deviations(spec(PORT, MORE), nodes)
    assert len(found) == 3, found
    await cloud.load_balancers.ensure(spec(PORT, MORE), nodes)
    assert await cloud.load_balancers.deviations(spec(PORT, MORE), nodes) == []


async def test_every_call_of_a_create_and_a_delete_may_fail_once(account, proxy, cloud):
    nodes = await backends(cloud)
    wanted = spec(annotations={"cross-zone-load-balancing-enabled": "true"})
    since = len(proxy.calls)
    await cloud.load_balancers.ensure(wanted, nodes)
    creates, since = proxy.calls[since:], len(proxy.calls)
    whole = account.balancer(NAME)
    await cloud.load_balancers.delete(wanted)
    deletes = proxy.calls[since:]
    assert account.parts() == frozenset()
    for kind in ("status", "lost"):
        for calls, is_create in ((creates, True), (deletes, False)):
            for call in sorted(set(calls)):
                for skip in range(calls.count(call)):
                    fault = Fault(kind, call=call, code="InternalError", skip=skip, times=1)
                    with proxy.broken(*([fault] if is_create else [])):
                        await patiently(cloud.load_balancers.ensure, wanted, nodes)
                    shown = account.balancer(NAME)
                    assert {**shown, "dns": ""} == {**whole, "dns": ""}, (kind, call, skip)
                    with proxy.broken(*([] if is_create else [fault])):
                        await delete(cloud, wanted)
                    assert account.parts() == frozenset(), (kind, call, skip, is_create)


async def test_a_create_that_is_given_up_leaves_nothing_after_its_delete(account, proxy, cloud):
    nodes = await backends(cloud)
    for call in ("CreateLoadBalancer", "CreateTargetGroup", "RegisterTargets", "CreateListener", "AddTags"):
        with proxy.broken(Fault("lost", call=call)), pytest.raises(Exception, match="AWS"):
            await cloud.load_balancers.ensure(spec(), nodes)
        await delete(cloud, spec())
        assert account.parts() == frozenset(), call


async def test_a_change_of_nodes_reads_no_targets_unless_a_write_failed(account, proxy, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    since = len(proxy.calls)
    await cloud.load_balancers.update_backends(spec(), nodes[:1])
    assert "DescribeTargetHealth" not in proxy.calls[since:]
    with proxy.broken(Fault("lost", call="RegisterTargets")), pytest.raises(Exception, match="AWS"):
        await cloud.load_balancers.update_backends(spec(), nodes)
    await cloud.load_balancers.update_backends(spec(), nodes[:1])
    (listener,) = account.balancer(NAME)["listeners"]
    assert [id for id, _ in listener["targets"]] == ids(nodes[:1]), "also what the lost write left"
    await delete(cloud, spec())


async def test_an_instance_that_does_not_run_keeps_no_other_from_being_a_target(account, cloud):
    nodes = await backends(cloud)
    (stopped,) = ids(nodes[:1])
    account.ec2.stop_instances(InstanceIds=[stopped])
    made = await cloud.load_balancers.ensure(spec(PORT, MORE), nodes)
    assert f"{stopped} get no traffic yet" in made.warnings[-1]
    for listener in account.balancer(NAME)["listeners"]:
        assert [id for id, _ in listener["targets"]] == ids(nodes[1:])
    assert made.fingerprint == cloud.load_balancers.fingerprint(spec(PORT, MORE), nodes)
    assert await cloud.load_balancers.deviations(spec(PORT, MORE), nodes) == []
    late = ids(nodes[1:2])  # stopped before the third port is added, so it is a target of the first two ports only
    account.ec2.stop_instances(InstanceIds=late)
    third = Port("third", "TCP", 82, 30082)
    await cloud.load_balancers.ensure(spec(PORT, MORE, third), nodes)
    assert await cloud.load_balancers.deviations(spec(PORT, MORE, third), nodes) == []
    account.ec2.start_instances(InstanceIds=late)
    await cloud.load_balancers.ensure(spec(PORT, MORE), nodes)
    await cloud.load_balancers.update_backends(spec(PORT, MORE), nodes[:-1])
    account.ec2.start_instances(InstanceIds=[stopped])
    assert len(await cloud.load_balancers.deviations(spec(PORT, MORE), nodes[:-1])) == 2
    await cloud.load_balancers.update_backends(spec(PORT, MORE), nodes)
    for listener in account.balancer(NAME)["listeners"]:
        assert [id for id, _ in listener["targets"]] == ids(nodes)
    await delete(cloud, spec(PORT, MORE))
    assert account.parts() == frozenset()


@pytest.mark.parametrize("kind", ["status", "lost"])
async def test_a_target_group_that_could_not_be_deleted_is_deleted_later(account, proxy, cloud, kind):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(PORT, MORE), nodes)
    moved = dataclasses.replace(PORT, node_port=30090)
    fault = Fault(kind, call="DeleteTargetGroup", code="ResourceInUse", times=1)
    with proxy.broken(fault), pytest.raises((RetryAfter, Transient)):
        await cloud.load_balancers.ensure(spec(moved), nodes)
    await cloud.load_balancers.ensure(spec(moved), nodes)
    (group,) = account.elb.describe_target_groups()["TargetGroups"]
    assert group["Port"] == 30090
    with proxy.broken(Fault("status", call="DeleteTargetGroup", code="ResourceInUse", times=1)):
        with pytest.raises(RetryAfter):
            await cloud.load_balancers.ensure(spec(PORT), nodes)
        await cloud.load_balancers.ensure(spec(moved), nodes)  # this port needs its target group again
    (group,) = account.elb.describe_target_groups()["TargetGroups"]
    assert group["Port"] == 30090
    assert await cloud.load_balancers.deviations(spec(moved), nodes) == []
    await delete(cloud, spec(moved))
    assert account.parts() == frozenset()


@pytest.mark.parametrize("code", ["OperationNotPermitted", "ResourceInUse"])
async def test_what_only_a_person_can_change_is_reported(proxy, cloud, code):
    with proxy.broken(Fault("status", call="CreateLoadBalancer", code=code)), pytest.raises(Conflict, match=code):
        await cloud.load_balancers.ensure(spec(), [])


@pytest.mark.parametrize("port", [Port("", "SCTP", 80, 30080)])
async def test_what_is_refused_makes_no_call(proxy, cloud, port):
    since = len(proxy.calls)
    with pytest.raises(Invalid):
        await cloud.load_balancers.ensure(spec(port), [])
    assert proxy.calls[since:] == []
    assert cloud.load_balancers.fingerprint(spec(port), []).startswith("not served: ")


@pytest.mark.parametrize("type_", ["external", "nlb-ip"])
async def test_a_service_of_another_controller_is_left_to_it(proxy, cloud, type_):
    given, since = spec(annotations={"type": type_}), len(proxy.calls)
    with pytest.raises(ImplementedElsewhere):
        await cloud.load_balancers.ensure(given, [])
    assert proxy.calls[since:] == []
    assert cloud.load_balancers.fingerprint(given, []).startswith("not served: ")
    with pytest.raises(ImplementedElsewhere):
        await cloud.load_balancers.get(given)


async def test_a_question_for_a_load_balancer_that_is_refused_says_why(cloud):
    with pytest.raises(Invalid, match="SCTP"):
        await cloud.load_balancers.get(spec(Port("", "SCTP", 80, 30080)))


async def test_a_load_balancer_of_nobody_is_not_taken_over(account, cloud):
    account.elb.create_load_balancer(Name=NAME, Type="network", Subnets=[account.subnets["public-a"]])
    with pytest.raises(Conflict, match="nobody's by its tags"):
        await cloud.load_balancers.ensure(spec(), [])
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(spec())
    assert len(account.balancers()) == 1


async def test_a_recreated_service_gets_a_group_while_the_former_one_goes(account, cloud):
    nodes = await backends(cloud)
    again = dataclasses.replace(spec(), uid="ffffffff-1111-2222-3333-444455556666")
    await cloud.load_balancers.ensure(spec(), nodes)
    await cloud.load_balancers.ensure(again, nodes)
    await cloud.load_balancers.ensure(again, nodes)
    assert len(account.elb.describe_target_groups()["TargetGroups"]) == 2
    await cloud.load_balancers.delete(spec())
    (left,) = account.balancer(again.default_name)["listeners"]
    assert [id for id, _ in left["targets"]] == ids(nodes)
    await cloud.load_balancers.delete(again)
    assert account.parts() == frozenset()


async def test_subnets_and_addresses_are_chosen(account, cloud):
    chosen = account.subnets["private-b"]
    account.ec2.create_tags(Resources=[chosen], Tags=[{"Key": "Name", "Value": "inside"}])
    await cloud.load_balancers.ensure(spec(annotations={"internal": "true", "subnets": "inside"}), [])
    shown = account.balancer(NAME)
    assert (shown["scheme"], shown["subnets"]) == ("internal", [chosen])
    found = await cloud.load_balancers.ensure(spec(), [])
    assert "never changes" in found.warnings[0]
    await cloud.load_balancers.delete(spec())
    with pytest.raises(Invalid, match="1 entries, and there are 2 subnets"):
        await cloud.load_balancers.ensure(spec(annotations={"eip-allocations": "eipalloc-0a1"}), [])
    assert account.parts() == frozenset()


def protection(account):
    (row,) = account.elb.describe_load_balancers()["LoadBalancers"]
    found = account.elb.describe_load_balancer_attributes(LoadBalancerArn=row["LoadBalancerArn"])["Attributes"]
    return next(each["Value"] for each in found if each["Key"] == "deletion_protection.enabled")


async def test_a_service_that_protects_its_load_balancer_has_it_protected_by_aws_too(account, proxy, cloud):
    nodes, plain = await backends(cloud), spec()
    asking = dataclasses.replace(plain, protected=True)
    for given, value in ((asking, "true"), (plain, "false"), (asking, "true")):
        await cloud.load_balancers.ensure(given, nodes)
        (listed,) = await cloud.load_balancers.list("kube")
        assert protection(account) == value and listed.protected is given.protected
        assert await cloud.load_balancers.deviations(given, nodes) == []
        assert listed.fingerprint == cloud.load_balancers.fingerprint(given, nodes)
    # The annotation is gone, but the framework deletes without another write, so AWS still protects the load balancer.
    with proxy.broken(Fault("status", call="DeleteLoadBalancer", code="OperationNotPermitted", times=1)):
        await delete(cloud, plain)
    assert account.parts() == frozenset()


async def test_what_a_person_protected_stays(account, proxy, cloud):
    nodes = await backends(cloud)
    await cloud.load_balancers.ensure(spec(), nodes)
    (row,) = account.elb.describe_load_balancers()["LoadBalancers"]
    on = [{"Key": "deletion_protection.enabled", "Value": "true"}]
    account.elb.modify_load_balancer_attributes(LoadBalancerArn=row["LoadBalancerArn"], Attributes=on)
    await cloud.load_balancers.ensure(spec(MORE), nodes)
    with (
        proxy.broken(Fault("status", call="DeleteLoadBalancer", code="OperationNotPermitted", times=1)),
        pytest.raises(Conflict, match="OperationNotPermitted"),
    ):
        await cloud.load_balancers.delete(spec())
    assert protection(account) == "true"

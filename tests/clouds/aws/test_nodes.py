# SPDX-License-Identifier: Apache-2.0
"""Nodes and routes: pages of listings, kinds of names and addresses, unknown IDs, and route tables."""

from __future__ import annotations

import pytest

from ccm.cloud import Backend, Conflict, InstanceRef, InstanceState, NotFound, Route

from .account import REGION
from .services import spec
from .world import PAGE, config

DOMAIN = f"{REGION}.compute.internal"


async def listing(cloud):
    found, token = [], None
    while True:
        page = await cloud.instances.list_page(token)
        found += page.instances
        if (token := page.next) is None:
            return found


async def test_a_start_and_a_listing_take_the_pages_and_one_call(account, proxy, connect):
    machines = [account.run(zone="ab"[number % 2]) for number in range(2 * PAGE + 1)]
    cloud = await connect(config(account, proxy))
    found = await listing(cloud)
    assert {each.provider_id.rpartition("/")[2] for each in found} == {each["InstanceId"] for each in machines}
    assert proxy.calls == ["DescribeAvailabilityZones", *["DescribeInstances"] * 3]
    assert all(each.labels["topology.k8s.aws/zone-id"] for each in found)


async def test_another_vpc_has_no_nodes(account, proxy, connect):
    account.run(SubnetId=account.ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])[
        "Subnets"][0]["SubnetId"], SecurityGroupIds=None, PrivateIpAddress=None)  # fmt: skip
    cloud = await connect(config(account, proxy))
    assert await listing(cloud) == []


@pytest.mark.parametrize("named_by", ["address", "resource"])
async def test_a_node_may_register_under_each_name(account, proxy, connect, named_by):
    made = account.run()
    id = made["InstanceId"]
    by_address = made["PrivateDnsName"]
    if named_by == "resource":
        account.moto.control(do="name", instance=id, name=f"{id}.{DOMAIN}")
    account.run()
    cloud = await connect(config(account, proxy))
    (listed,) = [each for each in await listing(cloud) if id in each.provider_id]
    for name in (by_address, id, f"{id}.{DOMAIN}"):
        assert listed.is_named(name), name
        assert await cloud.instances.get(InstanceRef(name)) == listed
    for name in (f"{id}.elsewhere", by_address.partition(".")[0], by_address.upper()):
        with pytest.raises(NotFound):
            await cloud.instances.get(InstanceRef(name))


async def test_addresses_of_all_interfaces_and_families(account, proxy, connect):
    made = account.run()
    nic = account.ec2.create_network_interface(SubnetId=account.subnets["private-a"], PrivateIpAddress="10.0.1.77")
    account.ec2.attach_network_interface(
        NetworkInterfaceId=nic["NetworkInterface"]["NetworkInterfaceId"], InstanceId=made["InstanceId"], DeviceIndex=1
    )
    more = [{"index": 0, "more": ["10.0.0.201"], "ipv6": ["2001:db8::1", "2001:db8::2"]}]
    account.moto.control(do="addresses", instance=made["InstanceId"], interfaces=more)
    cloud = await connect(config(account, proxy, "NodeIPFamilies = ipv6\nNodeIPFamilies = ipv4"))
    (found,) = await listing(cloud)
    internal = [each.address for each in found.addresses if each.type == "InternalIP"]
    assert internal == ["2001:db8::1", made["PrivateIpAddress"], "10.0.0.201", "10.0.1.77"]


async def test_one_unknown_id_spoils_no_other_question(account, proxy, connect):
    known = account.run()["InstanceId"]
    cloud = await connect(config(account, proxy))
    with pytest.raises(NotFound, match="i-0123456789abcdef0"):
        await cloud.instances.get(InstanceRef("x", f"aws:///{REGION}a/i-0123456789abcdef0"))
    assert set(await cloud.instances.fresh(["i-0123456789abcdef0", known])) == {known}
    nodes = [
        Backend("gone", f"aws:///{REGION}a/i-0123456789abcdef0", ()),
        Backend("here", f"aws:///{REGION}a/{known}", (await listing(cloud))[0].addresses),
    ]
    await cloud.load_balancers.ensure(spec(), nodes)
    (shown,) = account.balancer(spec().default_name)["listeners"]
    assert [id for id, _ in shown["targets"]] == [known]


async def test_an_older_spelling_and_another_zone(account, proxy, connect):
    id = account.run()["InstanceId"]
    cloud = await connect(config(account, proxy))
    found = await cloud.instances.get(InstanceRef("x", f"aws:////{id}"))
    assert found.provider_id == f"aws:///{REGION}a/{id}"
    assert cloud.instances.canonical(f"aws:////{id}") == found.provider_id
    with pytest.raises(Conflict, match=f"is in zone {REGION}a"):  # it exists, so its Node must not be deleted
        await cloud.instances.get(InstanceRef("x", f"aws:///{REGION}b/{id}"))


async def test_stopped_and_terminated(account, proxy, connect):
    stopped, ended = account.run()["InstanceId"], account.run()["InstanceId"]
    cloud = await connect(config(account, proxy))
    account.ec2.stop_instances(InstanceIds=[stopped])
    account.terminate(ended)
    (found,) = await listing(cloud)
    assert found.state is InstanceState.SHUTDOWN
    with pytest.raises(NotFound):
        await cloud.instances.get(InstanceRef("x", f"aws:///{REGION}a/{ended}"))


async def test_routes_are_in_every_table_of_the_cluster_and_in_no_other(account, proxy, connect):
    made = account.run()
    tables = [account.table] + [
        account.ec2.create_route_table(VpcId=account.vpc)["RouteTable"]["RouteTableId"] for _ in range(2)
    ]
    owned = [{"Key": "kubernetes.io/cluster/kube", "Value": "owned"}]
    account.ec2.create_tags(Resources=[tables[1]], Tags=owned)
    cloud = await connect(config(account, proxy))
    (instance,) = await listing(cloud)
    await cloud.routes.create("kube", Route("10.244.1.0/24", instance.provider_id))
    (route,) = await cloud.routes.list("kube")
    assert route == Route("10.244.1.0/24", instance.provider_id, id=",".join(sorted(tables[:2])))
    assert not account.instance(made["InstanceId"])["SourceDestCheck"]
    account.ec2.delete_route(RouteTableId=tables[1], DestinationCidrBlock="10.244.1.0/24")
    assert await cloud.routes.list("kube") == []
    since = len(proxy.calls)
    await cloud.routes.create("kube", Route("10.244.1.0/24", instance.provider_id))
    assert proxy.counted(since)["CreateRoute"] == 1
    assert len(await cloud.routes.list("kube")) == 1
    await cloud.routes.delete("kube", route)
    shown = account.ec2.describe_route_tables(RouteTableIds=tables)["RouteTables"]
    destinations = {each["DestinationCidrBlock"] for table in shown for each in table["Routes"]}
    assert destinations == {"10.0.0.0/16", "0.0.0.0/0"}

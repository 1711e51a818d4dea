# SPDX-License-Identifier: Apache-2.0
"""The IAM policy in docs/providers allows the provider's calls, and nothing else. RECORD_COMPARISON=1 writes the
policy."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from ccm.cloud import Backend, InstanceRef, NotFound, Route, VolumeRef
from ccm.providers.aws import AwsCloud

from .account import Account
from .services import MORE, PORT, backends, classic, spec
from .world import config

POLICY = Path(__file__).parents[3] / "docs" / "providers" / "aws-iam-policy.json"


def policy(**statements: set[str]) -> str:
    found = {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": name, "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
            for name, actions in statements.items()
        ],
    }
    return json.dumps(found, indent=2) + "\n"


async def test_the_policy_is_what_the_provider_calls(account, proxy, connect):
    for zone in "ab":
        account.run(zone=zone)
    cloud = await connect(config(account, proxy))
    nodes = await backends(cloud)
    for name in (nodes[0].node_name, "ip-10-9-9-9.elsewhere"):
        try:
            await cloud.instances.get(InstanceRef(name))
        except NotFound:
            continue
    base = proxy.actions

    route = Route("10.244.1.0/24", nodes[0].provider_id)
    await cloud.routes.create("kube", route)
    id = nodes[1].provider_id.rpartition("/")[2]
    (nic,) = account.instance(id)["NetworkInterfaces"]
    account.ec2.create_route(
        RouteTableId=account.table,
        DestinationCidrBlock="10.244.2.0/24",
        NetworkInterfaceId=nic["NetworkInterfaceId"],
    )
    made = account.ec2.create_network_interface(SubnetId=account.subnets["public-b"], PrivateIpAddress="10.0.2.77")
    account.ec2.attach_network_interface(
        NetworkInterfaceId=made["NetworkInterface"]["NetworkInterfaceId"], InstanceId=id, DeviceIndex=1
    )
    second = Route("10.244.3.0/24", nodes[1].provider_id, target_addresses=("10.0.2.77",))
    await cloud.routes.create("kube", second)
    for each in await cloud.routes.list("kube"):
        await cloud.routes.delete("kube", each)
    routes = proxy.actions - base

    since = set(proxy.actions)
    await cloud.instance_tags.add(nodes[0].provider_id, {"team": "a"})
    await cloud.instance_tags.list()
    tags = proxy.actions - since

    since = set(proxy.actions)
    await cloud.volumes.labels(VolumeRef("ebs.csi.aws.com", account.create_volume()))
    volumes = proxy.actions - since

    since = set(proxy.actions)
    account.add_ipv6()
    plain = spec(PORT, annotations={"target-group-attributes": "proxy_protocol_v2.enabled=true"})
    full = spec(
        PORT,
        MORE,
        annotations={
            "cross-zone-load-balancing-enabled": "true",
            "healthcheck-healthy-threshold": "5",
            "target-group-attributes": "proxy_protocol_v2.enabled=false",
        },
    )
    dual = spec(ip_families=("IPv4", "IPv6"))
    moved = spec(dataclasses.replace(PORT, node_port=30090))
    for given, some in ((plain, nodes), (full, nodes), (moved, nodes), (dual, nodes), (spec(), nodes[:1])):
        await cloud.load_balancers.ensure(given, some)
    for some in (nodes, nodes[:1]):
        await cloud.load_balancers.update_backends(spec(), some)
    await cloud.load_balancers.list("kube")
    await cloud.load_balancers.get(spec())
    await cloud.load_balancers.delete(spec())
    balancers = (proxy.actions - since) | {"ec2:DescribeRouteTables"}

    since = set(proxy.actions)
    await _serve_classic_ones(account, cloud, nodes)
    balancers |= (proxy.actions - since) | {"ec2:CreateTags"}  # CreateSecurityGroup has tags

    text = policy(Nodes=base, Routes=routes, LoadBalancers=balancers, InstanceTags=tags, Volumes=volumes)
    if os.environ.get("RECORD_COMPARISON") == "1":
        POLICY.write_text(text)
    assert POLICY.read_text() == text


async def _serve_classic_ones(account: Account, cloud: AwsCloud, nodes: list[Backend]) -> None:
    """Serve Services with Classic Load Balancers, with changes that need every kind of call."""
    borrowed = account.ec2.create_security_group(GroupName="more", Description="more", VpcId=account.vpc)["GroupId"]
    certificate = "arn:aws:iam::123456789012:server-certificate/web"
    tls = {"ssl-cert": certificate, "ssl-negotiation-policy": "ELBSecurityPolicy-TLS-1-2-2017-01"}
    given = [
        classic(PORT, annotations={"proxy-protocol": "*", "subnets": account.subnets["public-a"]}),
        classic(MORE, annotations={"connection-idle-timeout": "90", "subnets": account.subnets["public-b"]}),
        classic(PORT, MORE, annotations={"ssl-ports": "80", **tls}),
        classic(PORT, MORE, annotations={"ssl-ports": "80", **tls, "ssl-cert": f"{certificate}-2"}),
        classic(annotations={"security-groups": borrowed}),
    ]
    for each in given:
        await cloud.load_balancers.ensure(each, nodes)
    for some in (nodes[:1], nodes):
        await cloud.load_balancers.update_backends(classic(), some)
    await cloud.load_balancers.list("kube")
    await cloud.load_balancers.ensure(classic(), nodes)
    await cloud.load_balancers.delete(classic())

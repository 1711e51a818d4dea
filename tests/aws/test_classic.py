# SPDX-License-Identifier: Apache-2.0
"""A Classic Load Balancer that cloud-provider-aws made for a Service: left as it is, and an Event says what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm.cloud import Ingress, Invalid, NotFound
from ccm.providers.aws.nlb_annotations import PREFIX

from .account import Account
from .services import backends, spec
from .world import config

TYPE = f"{PREFIX}type"
#: What an Event must say: the load balancer, and what to do.
ADVICE = (
    "the Classic Load Balancer {name}",
    "keep cloud-provider-aws",
    f"{TYPE}: nlb",
    "delete {name}",
    "k8s-elb-{name}",
)


def create(account: Account, name: str) -> str:
    """A Classic Load Balancer of this name. Returns its host name."""
    listener = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 30080}
    made = account.classic.create_load_balancer(
        LoadBalancerName=name,
        Listeners=[listener],
        Subnets=[account.subnets["public-a"]],
        SecurityGroups=[account.group],
    )
    return str(made["DNSName"])


def everything(account: Account) -> dict[str, Any]:
    """All of the account that either kind of load balancer is made of."""
    groups = account.ec2.describe_security_groups()["SecurityGroups"]
    balancers = account.classic.describe_load_balancers()["LoadBalancerDescriptions"]
    names = [each["LoadBalancerName"] for each in balancers]
    attributes = [
        account.classic.describe_load_balancer_attributes(LoadBalancerName=name)["LoadBalancerAttributes"]
        for name in names
    ]
    tags = [account.classic.describe_tags(LoadBalancerNames=[name])["TagDescriptions"] for name in names]
    return {
        "classic": [balancers, attributes, tags],
        "groups": groups,
        "network": account.balancers(),
        "target groups": account.elb.describe_target_groups()["TargetGroups"],
    }


async def test_it_is_not_replaced_and_not_forgotten(account, proxy, connect):
    """Neither by an annotation, nor by LoadBalancerType, nor when the Service is deleted."""
    cloud = await connect(config(account, proxy))
    account.run()
    nodes, name = await backends(cloud), spec().default_name
    had = (Ingress(hostname=create(account, name)),)
    before = everything(account)
    for type_ in ("nlb", None):
        given = dataclasses.replace(spec(), ingress=had, annotations={TYPE: type_} if type_ else {})
        with pytest.raises(Invalid) as raised:
            await cloud.load_balancers.ensure(given, nodes)
        assert all(each.format(name=name) in str(raised.value) for each in ADVICE)
        for call in (cloud.load_balancers.delete, cloud.load_balancers.get):
            with pytest.raises(Invalid, match="the Classic Load Balancer"):
                await call(given)
    assert everything(account) == before
    account.classic.delete_load_balancer(LoadBalancerName=name)
    with pytest.raises(NotFound):
        await cloud.load_balancers.delete(given)
    assert (await cloud.load_balancers.ensure(given, nodes)).ingress != had


async def test_one_without_an_annotation_for_another_type_costs_no_call(account, proxy, connect):
    given = config(account, proxy)
    cloud = await connect(dataclasses.replace(given, text=given.text.replace("LoadBalancerType = nlb", "")))
    host = create(account, spec().default_name)
    since = len(proxy.calls)
    classic = dataclasses.replace(spec(), annotations={}, ingress=(Ingress(hostname=host),))
    with pytest.raises(Invalid, match="Classic Load Balancer"):
        await cloud.load_balancers.ensure(classic, [])
    assert proxy.calls[since:] == []

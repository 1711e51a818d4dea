# SPDX-License-Identifier: Apache-2.0
"""Services, and rows as AWS answers them, for tests of the provider aws."""

from __future__ import annotations

import dataclasses
from typing import Any

from ccm.cloud import Address, AddressType, Backend, LoadBalancerSpec, Port
from ccm.providers.aws.annotations import PREFIX
from ccm.providers.aws.load_balancers.network import load_balancer_rules as rules
from ccm.providers.aws.settings_sections import Global

UID = "0b2a3c4d-1111-2222-3333-444455556666"
NAME = "a0b2a3c4d11112222333344445555666"
VPC = "vpc-1"


def interface(index: int, *addresses: str, ipv6: tuple[str, ...] = (), status: str = "in-use") -> dict[str, Any]:
    return {
        "NetworkInterfaceId": f"eni-{index}",
        "Status": status,
        "Attachment": {"DeviceIndex": index},
        "PrivateIpAddresses": [{"PrivateIpAddress": each} for each in addresses],
        "Ipv6Addresses": [{"Ipv6Address": each} for each in ipv6],
    }


def machine(id: str = "i-0a1b2c3d", **more: Any) -> dict[str, Any]:
    return {
        "InstanceId": id,
        "InstanceType": "t3.small",
        "State": {"Name": "running"},
        "Placement": {"AvailabilityZone": "eu-central-1a"},
        "PrivateDnsName": "ip-10-0-0-7.eu-central-1.compute.internal",
        "PrivateIpAddress": "10.0.0.7",
        "NetworkInterfaces": [interface(0, "10.0.0.7")],
        "SecurityGroups": [{"GroupId": "sg-nodes"}],
        **more,
    }


def spec(*ports: Port, **more: Any) -> LoadBalancerSpec:
    """Return a Service that asks for a Network Load Balancer. `annotations`: without their prefix."""
    given = {"type": "nlb", **more.pop("annotations", {})}
    annotations = {PREFIX + name: text for name, text in given.items() if text is not None}
    ports = ports or (Port("http", "TCP", 80, 30080),)
    made = LoadBalancerSpec("kube", UID, "default", "web", ports, annotations)
    return dataclasses.replace(made, **more)


def want(service: LoadBalancerSpec | None = None, **common: Any) -> rules.DesiredState:
    return rules.desired_state(service or spec(), Global(**common), "kube")


def backend(id: str, *, addresses: tuple[str, ...] = ("10.0.0.7",), **labels: str) -> Backend:
    found = tuple(Address(AddressType.INTERNAL_IP, each) for each in addresses)
    return Backend(id, f"aws:///eu-central-1a/{id}", found, labels)


def tags(**values: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]

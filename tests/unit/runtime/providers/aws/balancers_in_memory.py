# SPDX-License-Identifier: Apache-2.0
"""An AWS account in memory, with what deletions of load balancers read and delete. Its listings may lag."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import NotFound
from ccm.providers.aws.load_balancers.network.node_group_rules import CLIENT, MTU

from .rows import NAME, tags

ARN = "arn:aws:elasticloadbalancing:eu-central-1:123456789012"
BALANCER = f"{ARN}:loadbalancer/net/{NAME}/1"


@dataclass
class Account:
    """An AWS account. `shown`: part -> the time from which listings show it. `owner`: the tags of everything that is
    created."""

    clock: Callable[[], float]
    owner: Mapping[str, str]
    calls: list[str] = field(default_factory=list)
    network: set[str] = field(default_factory=set)
    classic: set[str] = field(default_factory=set)
    target_groups: set[str] = field(default_factory=set)
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {"nodes": []})
    shown: dict[str, float] = field(default_factory=dict)

    def create_network(self, *, shown: float = -math.inf, group: float = -math.inf, rule: float = -math.inf) -> None:
        """Create a Network Load Balancer with a target group and rules in the Nodes' security group.

        The arguments are the times from which listings show the load balancer, the target group and the rules.
        """
        self.network.add(NAME)
        self.target_groups.add("k8s-http")
        for protocol, first, last, said in (("tcp", 30080, 30080, f"{CLIENT}={NAME}"), ("icmp", 3, 4, MTU)):
            ranges = [{"CidrIp": "0.0.0.0/0", "Description": said}]
            self.groups["nodes"].append({"IpProtocol": protocol, "FromPort": first, "ToPort": last, "IpRanges": ranges})
        self.shown |= {NAME: shown, "k8s-http": group, "rules": rule}

    def create_classic(self, *, shown: float = -math.inf) -> None:
        """Create a Classic Load Balancer with its own security group, which the Nodes' group admits."""
        self.classic.add(NAME)
        own = f"k8s-elb-{NAME}"
        self.groups[own] = []
        self.groups["nodes"].append({"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]})
        self.shown |= {f"classic {NAME}": shown, own: shown}

    @property
    def parts(self) -> set[str]:
        rules = {"a rule"} if self.groups["nodes"] else set()
        return self.network | self.classic | self.target_groups | (self.groups.keys() - {"nodes"}) | rules

    def asked(self) -> list[str]:
        """Return the calls since the last time this was called."""
        calls, self.calls = self.calls, []
        return calls

    async def call(
        self, service: str, operation: str, *, missing: tuple[str, ...] = (), what: str = "", **parameters: Any
    ) -> Mapping[str, Any]:
        """Record and answer a call. Replaces `Api.call`."""
        self.calls.append(f"{service} {operation}")
        found: Mapping[str, Any] = getattr(self, f"_{service}_{operation}")(**parameters)
        return found

    def _is_shown(self, what: str) -> bool:
        return self.clock() >= self.shown.get(what, -math.inf)

    def _elbv2_describe_load_balancers(self, Names: Sequence[str] = (), PageSize: int = 0) -> Mapping[str, Any]:
        if NAME not in self.network or not self._is_shown(NAME):
            if PageSize:
                return {"LoadBalancers": []}
            raise NotFound(Names[0])
        return {"LoadBalancers": [{"LoadBalancerArn": BALANCER, "LoadBalancerName": NAME}]}

    def _elbv2_describe_tags(self, ResourceArns: list[str]) -> Mapping[str, Any]:
        return {"TagDescriptions": [{"ResourceArn": each, "Tags": tags(**self.owner)} for each in ResourceArns]}

    def _elbv2_describe_target_groups(self) -> Mapping[str, Any]:
        of = [BALANCER] if NAME in self.network else []
        return {
            "TargetGroups": [
                {"TargetGroupArn": f"{ARN}:targetgroup/{each}", "TargetGroupName": each, "LoadBalancerArns": of}
                for each in self.target_groups
                if self._is_shown(each)
            ]
        }

    def _elbv2_delete_load_balancer(self, LoadBalancerArn: str) -> Mapping[str, Any]:
        assert LoadBalancerArn == BALANCER
        self.network.clear()
        return {}

    def _elbv2_delete_target_group(self, TargetGroupArn: str) -> Mapping[str, Any]:
        self.target_groups.remove(TargetGroupArn.rpartition("/")[2])
        return {}

    def _elb_describe_load_balancers(
        self, LoadBalancerNames: Sequence[str] = (), PageSize: int = 0
    ) -> Mapping[str, Any]:
        if NAME not in self.classic or not self._is_shown(f"classic {NAME}"):
            if PageSize:
                return {"LoadBalancerDescriptions": []}
            raise NotFound(LoadBalancerNames[0])
        row = {"LoadBalancerName": NAME, "SecurityGroups": [f"k8s-elb-{NAME}"]}
        return {"LoadBalancerDescriptions": [row]}

    def _elb_describe_tags(self, LoadBalancerNames: list[str]) -> Mapping[str, Any]:
        return {"TagDescriptions": [{"LoadBalancerName": NAME, "Tags": tags(**self.owner)}]}

    def _elb_delete_load_balancer(self, LoadBalancerName: str) -> Mapping[str, Any]:
        self.classic.remove(LoadBalancerName)
        return {}

    def _ec2_describe_security_groups(self, Filters: Any) -> Mapping[str, Any]:
        rows = [
            {
                "GroupId": name,
                "GroupName": name,
                "Tags": tags(**self.owner),
                "IpPermissions": list(rules) if self._is_shown("rules") else [],
            }
            for name, rules in self.groups.items()
            if self._is_shown(name)
        ]
        return {"SecurityGroups": rows}

    def _ec2_revoke_security_group_ingress(self, GroupId: str, IpPermissions: list[Any]) -> Mapping[str, Any]:
        for each in IpPermissions:
            self.groups[GroupId].remove(each)
        return {}

    def _ec2_delete_security_group(self, GroupId: str) -> Mapping[str, Any]:
        del self.groups[GroupId]
        return {}

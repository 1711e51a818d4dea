# SPDX-License-Identifier: Apache-2.0
"""An AWS account for tests: moto as a process, a VPC in it, and the changes that AWS itself would make."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.session

from bed import moto
from bed.progress import Progress
from tests.ports import free_port

REGION = "eu-central-1"
CLUSTER = "kube"
OWNED = [{"Key": f"kubernetes.io/cluster/{CLUSTER}", "Value": "owned"}]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "correct-horse-battery-staple"}
#: An image that moto has from the start. A listing of all images would take seconds.
IMAGE = "ami-12c6146b"
PATIENCE = 300.0
Row = dict[str, Any]


class Moto:
    """A process of moto; its contents can be discarded."""

    def __init__(self) -> None:
        self.port = free_port()
        script = Path(__file__).parents[3] / "tools/clouds/aws/serve_moto.py"
        environment = {**os.environ, "PYTHONPATH": str(moto.ensure(Progress()))}
        command = [sys.executable, str(script), str(self.port)]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.reset()
                return
            except OSError:
                if time.monotonic() > end or self._process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def reset(self) -> None:
        self._post("/moto-api/reset", b"")
        self.control(do="slow", seconds=0)
        self.control(do="hold groups", seconds=0)

    def control(self, **what: Any) -> None:
        self._post("/ccm-control", json.dumps(what).encode())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _post(self, path: str, body: bytes) -> None:
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body, method="POST"), timeout=60) as answer:
            assert answer.status == 200, answer.status


class Account:
    """A VPC with a public and a private subnet in each of two zones, with the tags that the controllers look for, and a
    security group for Nodes."""

    def __init__(self, server: Moto) -> None:
        self.moto = server
        session = botocore.session.Session()
        session.set_credentials(*KEYS.values())
        self.ec2 = session.create_client("ec2", REGION, endpoint_url=server.url)
        self.elb = session.create_client("elbv2", REGION, endpoint_url=server.url)
        self.classic = session.create_client("elb", REGION, endpoint_url=server.url)
        ec2 = self.ec2
        self.vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        ec2.modify_vpc_attribute(VpcId=self.vpc, EnableDnsHostnames={"Value": True})
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=self.vpc)
        self.table = ec2.create_route_table(VpcId=self.vpc)["RouteTable"]["RouteTableId"]
        ec2.create_route(RouteTableId=self.table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        self.group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=self.vpc)["GroupId"]
        self.subnets = {}
        for number, (zone, kind) in enumerate(itertools.product("ab", ("public", "private"))):
            made = ec2.create_subnet(
                VpcId=self.vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"{REGION}{zone}"
            )["Subnet"]["SubnetId"]
            self.subnets[f"{kind}-{zone}"] = made
            if kind == "public":
                ec2.associate_route_table(RouteTableId=self.table, SubnetId=made)
        ec2.create_tags(Resources=[self.vpc, self.group, self.table, *self.subnets.values()], Tags=OWNED)
        self._numbers = {zone: itertools.count(10) for zone in "ab"}

    def add_ipv6(self) -> None:
        """Give the public subnets an IPv6 range."""
        self.ec2.associate_vpc_cidr_block(VpcId=self.vpc, AmazonProvidedIpv6CidrBlock=True)
        for number, zone in enumerate("ab"):
            block = f"2001:db8:0:{number}::/64"
            self.ec2.associate_subnet_cidr_block(SubnetId=self.subnets[f"public-{zone}"], Ipv6CidrBlock=block)

    def run(self, name: str = "", *, zone: str = "a", groups: Sequence[str] = (), **more: Any) -> Row:
        """Create a running instance; `name` replaces its private DNS name."""
        subnet = more.pop("SubnetId", self.subnets[f"public-{zone}"])
        network = ipaddress.ip_network("10.0.0.0/24" if zone == "a" else "10.0.2.0/24")
        given = {
            "ImageId": IMAGE,
            "MinCount": 1,
            "MaxCount": 1,
            "InstanceType": "t3.small",
            "SubnetId": subnet,
            "PrivateIpAddress": str(network[next(self._numbers[zone])]),
            "SecurityGroupIds": list(groups) or [self.group],
            "TagSpecifications": [{"ResourceType": "instance", "Tags": OWNED}],
            **more,
        }
        (made,) = self.ec2.run_instances(**{key: value for key, value in given.items() if value is not None})[
            "Instances"
        ]
        if name:
            self.moto.control(do="name", instance=made["InstanceId"], name=name)
        return self.instance(made["InstanceId"])

    def instance(self, id: str) -> Row:
        (group,) = self.ec2.describe_instances(InstanceIds=[id])["Reservations"]
        return dict(group["Instances"][0])

    def terminate(self, id: str) -> None:
        self.ec2.terminate_instances(InstanceIds=[id])

    def create_volume(self, zone: str = "a") -> str:
        return str(self.ec2.create_volume(AvailabilityZone=f"{REGION}{zone}", Size=1)["VolumeId"])

    def delete_volume(self, id: str) -> None:
        """Delete a volume, if it exists."""
        if self.ec2.describe_volumes(Filters=[{"Name": "volume-id", "Values": [id]}])["Volumes"]:
            self.ec2.delete_volume(VolumeId=id)

    # Load balancers and their parts.

    def balancers(self) -> list[Row]:
        return list(self.elb.describe_load_balancers()["LoadBalancers"])

    def parts(self) -> frozenset[str]:
        """Return load balancers of both types, target groups, security groups of load balancers, and two kinds of rules
        of security groups: those with a description, and those that admit everything from another group."""
        groups = [each["TargetGroupArn"] for each in self.elb.describe_target_groups()["TargetGroups"]]
        rules = [f"{group} {rule}" for group, rule in self.rules()]
        classic = [f"classic {each['LoadBalancerName']}" for each in self.classic_balancers()]
        own = [name for name in self.groups() if name.startswith("k8s-elb-")]
        admitted = [f"{group} admits {other}" for group, other in self.admissions()]
        balancers = [each["LoadBalancerArn"] for each in self.balancers()]
        return frozenset([*balancers, *groups, *rules, *classic, *own, *admitted])

    def groups(self) -> dict[str, str]:
        """Return the security groups of the VPC: name -> ID."""
        found = self.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])
        return {str(each["GroupName"]): str(each["GroupId"]) for each in found["SecurityGroups"]}

    def admissions(self) -> list[tuple[str, str]]:
        """Return pairs of IDs: a security group, and another group from which it admits everything."""
        return sorted(
            (group["GroupId"], pair["GroupId"])
            for group in self.ec2.describe_security_groups()["SecurityGroups"]
            for rule in group["IpPermissions"]
            for pair in rule["UserIdGroupPairs"]
            if pair["GroupId"] != group["GroupId"] and rule["IpProtocol"] == "-1"
        )

    def ranges(self, group: str) -> list[tuple[str, int, int, str]]:
        """Return the rules of a group that have CIDRs: protocol, first and last port, CIDR."""
        (found,) = self.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
        return sorted(
            (rule["IpProtocol"], rule["FromPort"], rule["ToPort"], each["CidrIp"])
            for rule in found["IpPermissions"]
            for each in rule["IpRanges"]
        )

    def classic_balancers(self) -> list[Row]:
        return list(self.classic.describe_load_balancers()["LoadBalancerDescriptions"])

    def classic_balancer(self, name: str) -> Row:
        """Return everything about a Classic Load Balancer that its Service decides, without the time of its
        creation."""
        (found,) = self.classic.describe_load_balancers(LoadBalancerNames=[name])["LoadBalancerDescriptions"]
        attributes = self.classic.describe_load_balancer_attributes(LoadBalancerName=name)["LoadBalancerAttributes"]
        (tags,) = self.classic.describe_tags(LoadBalancerNames=[name])["TagDescriptions"]
        names = {id: each for each, id in self.groups().items()}
        return {
            **{key: value for key, value in found.items() if key != "CreatedTime"},
            "Subnets": sorted(found["Subnets"]),
            "Instances": sorted(each["InstanceId"] for each in found["Instances"]),
            "SecurityGroups": [names[each] for each in found["SecurityGroups"]],
            "ListenerDescriptions": sorted(
                found["ListenerDescriptions"], key=lambda each: each["Listener"]["LoadBalancerPort"]
            ),
            # moto adds the same additional attribute with each change.
            "attributes": {key: value for key, value in attributes.items() if key != "AdditionalAttributes"},
            "tags": {each["Key"]: each["Value"] for each in tags["Tags"]},
            "ranges": self.ranges(found["SecurityGroups"][0]),
            "admitted by": [group for group, other in self.admissions() if other == found["SecurityGroups"][0]],
        }

    def rules(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return, for each rule with a description, the group and (protocol, from, to, CIDR, description)."""
        return sorted(
            (group["GroupId"], (rule["IpProtocol"], rule["FromPort"], rule["ToPort"], each["CidrIp"], said))
            for group in self.ec2.describe_security_groups()["SecurityGroups"]
            for rule in group["IpPermissions"]
            for each in rule["IpRanges"]
            if (said := each.get("Description"))
        )

    def balancer(self, name: str) -> Row:
        """Return everything about a load balancer that its Service decides, without the ARNs of its parts."""
        (found,) = self.elb.describe_load_balancers(Names=[name])["LoadBalancers"]
        arn = found["LoadBalancerArn"]
        attributes = self.elb.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
        return {
            "scheme": found.get("Scheme", ""),
            "type": found["Type"],
            "subnets": sorted(each["SubnetId"] for each in found["AvailabilityZones"]),
            "dns": found["DNSName"],
            "tags": self.tags(arn),
            "attributes": {each["Key"]: each["Value"] for each in attributes},
            "listeners": [
                self._listener(each) for each in self.elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]
            ],
        }

    def tags(self, arn: str) -> Mapping[str, str]:
        (found,) = self.elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
        return {each["Key"]: each["Value"] for each in found["Tags"]}

    def _listener(self, listener: Row) -> Row:
        (action,) = listener["DefaultActions"]
        arn = action["TargetGroupArn"]
        (group,) = self.elb.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
        health = self.elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        attributes = self.elb.describe_target_group_attributes(TargetGroupArn=arn)["Attributes"]
        skipped = ("TargetGroupArn", "LoadBalancerArns")
        return {
            "port": listener["Port"],
            "protocol": listener["Protocol"],
            "certificates": [each["CertificateArn"] for each in listener.get("Certificates", ())],
            "policy": listener.get("SslPolicy", ""),
            "tags": self.tags(listener["ListenerArn"]),
            "group": {key: value for key, value in group.items() if key not in skipped},
            "group tags": self.tags(arn),
            "group attributes": {each["Key"]: each["Value"] for each in attributes},
            "targets": sorted((each["Target"]["Id"], each["Target"]["Port"]) for each in health),
        }

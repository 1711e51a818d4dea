# SPDX-License-Identifier: Apache-2.0
"""Changes and shows an AWS account in moto; runs in the gateway of the test bed: account.py REGION
create|add|terminate|show. Input and output are JSON.

A cluster's machines are instances with the addresses of the bed. A VPC has a public subnet in each of two zones, and a
security group for nodes. All of them have the tags by which the controller finds them.
"""

from __future__ import annotations

import ipaddress
import json
import sys
from typing import Any

import boto3

URL = "http://127.0.0.1:5000"
Data = dict[str, Any]


class Account:
    def __init__(self, region: str) -> None:
        keys = {"aws_access_key_id": "AKIAMOLECULE", "aws_secret_access_key": "m0lecule"}
        self.region = region
        self.ec2 = boto3.client("ec2", region, endpoint_url=URL, **keys)
        self.elb = boto3.client("elbv2", region, endpoint_url=URL, **keys)

    def create(self, given: Data) -> Data:
        """Create a VPC with instances. `given` has the cluster's name, its subnet and its machines (name, address)."""
        ec2, tags = self.ec2, [{"Key": f"kubernetes.io/cluster/{given['cluster']}", "Value": "owned"}]
        vpc = ec2.create_vpc(CidrBlock=given["subnet"])["Vpc"]["VpcId"]
        ec2.modify_vpc_attribute(VpcId=vpc, EnableDnsHostnames={"Value": True})
        gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
        (table,) = self._of_vpc(ec2.describe_route_tables, vpc)["RouteTables"]
        ec2.create_route(RouteTableId=table["RouteTableId"], DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
        subnets = []
        for network, zone in zip(ipaddress.ip_network(given["subnet"]).subnets(), "ab", strict=True):
            made = ec2.create_subnet(VpcId=vpc, CidrBlock=str(network), AvailabilityZone=f"{self.region}{zone}")
            subnets.append(made["Subnet"]["SubnetId"])
        ec2.create_tags(Resources=[vpc, group, *subnets], Tags=tags)
        for machine in given["machines"]:
            self.add({**machine, "cluster": given["cluster"]})
        return {"vpc": vpc, "subnet": subnets[0], "subnets": subnets, "group": group}

    def add(self, machine: Data) -> Data:
        """Create an instance with the machine's address, from which EC2 makes the machine's name."""
        address = ipaddress.ip_address(machine["address"])
        owned = {"Name": f"tag:kubernetes.io/cluster/{machine['cluster']}", "Values": ["owned"]}
        subnets = self.ec2.describe_subnets(Filters=[owned])
        (subnet,) = [each for each in subnets["Subnets"] if address in ipaddress.ip_network(each["CidrBlock"])]
        groups = self._of_vpc(self.ec2.describe_security_groups, subnet["VpcId"])["SecurityGroups"]
        (group,) = [each for each in groups if each["GroupName"] == "nodes"]
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
        tags = [{"Key": f"kubernetes.io/cluster/{machine['cluster']}", "Value": "owned"}]
        (instance,) = self.ec2.run_instances(
            ImageId=image,
            MinCount=1,
            MaxCount=1,
            InstanceType="t3.small",
            SubnetId=subnet["SubnetId"],
            PrivateIpAddress=str(address),
            SecurityGroupIds=[group["GroupId"]],
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )["Instances"]
        if instance["PrivateDnsName"] != machine["name"]:
            sys.exit(f"EC2 names the instance {instance['PrivateDnsName']}, the machine is {machine['name']}")
        # An address for documentation, which belongs to nobody. moto would choose one of Amazon's.
        public = self.ec2.allocate_address(Domain="vpc", Address=f"203.0.113.{address.packed[-1]}")
        self.ec2.associate_address(AllocationId=public["AllocationId"], InstanceId=instance["InstanceId"])
        return {"id": instance["InstanceId"]}

    def terminate(self, machine: Data) -> Data:
        return dict(self.ec2.terminate_instances(InstanceIds=[machine["id"]]))

    def show(self, _: Data) -> Data:
        """Return the running instances as Nodes should show them, load balancers with all parts, the number of target
        groups, and the rules of the nodes' security group."""
        rooms = self.ec2.describe_availability_zones()["AvailabilityZones"]
        zones = {each["ZoneName"]: each["ZoneId"] for each in rooms}
        found = [each for group in self.ec2.describe_instances()["Reservations"] for each in group["Instances"]]
        return {
            "instances": [self._instance(each, zones) for each in found if each["State"]["Name"] == "running"],
            "balancers": [self._balancer(each) for each in self.elb.describe_load_balancers()["LoadBalancers"]],
            "groups": len(self.elb.describe_target_groups()["TargetGroups"]),
            "rules": [
                {
                    "port": rule["FromPort"],
                    "to": rule["ToPort"],
                    "why": sorted(each["Description"] for each in rule["IpRanges"]),
                }
                for group in self.ec2.describe_security_groups()["SecurityGroups"]
                if group["GroupName"] == "nodes"
                for rule in group["IpPermissions"]
            ],
        }

    def _instance(self, found: Data, zones: dict[str, str]) -> Data:
        zone = found["Placement"]["AvailabilityZone"]
        return {
            "name": found["PrivateDnsName"],
            "id": found["InstanceId"],
            "type": found["InstanceType"],
            "zone": zone,
            "zone_id": zones[zone],
            "addresses": [
                {"type": "InternalIP", "address": found["PrivateIpAddress"]},
                {"type": "ExternalIP", "address": found["PublicIpAddress"]},
                {"type": "InternalDNS", "address": found["PrivateDnsName"]},
                {"type": "Hostname", "address": found["PrivateDnsName"]},
                {"type": "ExternalDNS", "address": found["PublicDnsName"]},
            ],
        }

    def _balancer(self, found: Data) -> Data:
        arn = found["LoadBalancerArn"]
        listeners = []
        for listener in self.elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
            (action,) = listener["DefaultActions"]
            group = action["TargetGroupArn"]
            (about,) = self.elb.describe_target_groups(TargetGroupArns=[group])["TargetGroups"]
            health = self.elb.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
            listeners.append(
                {
                    "port": listener["Port"],
                    "protocol": listener["Protocol"],
                    "node_port": about["Port"],
                    "targets": sorted(each["Target"]["Id"] for each in health),
                }
            )
        (described,) = self.elb.describe_tags(ResourceArns=[arn])["TagDescriptions"]
        tags = {each["Key"]: each["Value"] for each in described["Tags"]}
        return {
            "service": tags["kubernetes.io/service-name"],
            "name": found["LoadBalancerName"],
            "dns": found["DNSName"],
            "type": found["Type"],
            "internal": found.get("Scheme") == "internal",
            "zones": sorted(each["ZoneName"] for each in found["AvailabilityZones"]),
            "listeners": listeners,
            "tags": tags,
        }

    def _of_vpc(self, describe: Any, vpc: str) -> Data:
        return dict(describe(Filters=[{"Name": "vpc-id", "Values": [vpc]}]))


if __name__ == "__main__":
    given = {} if sys.argv[2] == "show" else json.load(sys.stdin)
    print(json.dumps(getattr(Account(sys.argv[1]), sys.argv[2])(given)))

# SPDX-License-Identifier: Apache-2.0
"""Reads what Services have in the account and in the API server, field by field, to compare two controllers.

All fields of AWS's answers are kept, except those that differ between any two objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.comparison.belongings import Belongings, Replacements, Row

from .account import Account
from .proxy import Proxy

_IDENTITIES = re.compile(r"id|.*Arns?|CreatedTime|DNSName")
_OURS = "ccm-outoftree/"
#: Matches fields of the call that creates a load balancer. They are compared in that call, in any order, because moto
#: does not keep them in the load balancer.
_CREATED = re.compile(r"SubnetMappings\..*|Scheme|Type|SecurityGroups.*|IpAddressType")
#: The name under which rules that several load balancers share are listed, beside the names of Services.
SHARED = "(all)"


def belongings(account: Account, proxy: Proxy, services: Iterable[Row]) -> dict[str, Belongings]:
    """Return the belongings of each Service, by its name; `SHARED` has the rules for the MTU, which Services share."""
    bodies = {str(body["metadata"]["name"]): body for body in services}
    found = {name: Belongings(_IDENTITIES) for name in (*bodies, SHARED)}
    says = Replacements({group: name for name, group in _groups(account).items()})
    balancers = {row["LoadBalancerName"]: row for row in account.balancers()}
    classic = {row["LoadBalancerName"] for row in account.classic_balancers()}
    for name, body in bodies.items():
        balancer = ("a" + body["metadata"]["uid"].replace("-", ""))[:32]
        if (row := balancers.get(balancer)) is not None:
            says.add(row["DNSName"], f"host of {name}")
            _of_balancer(found[name], account, row, proxy.created.get(balancer, {}))
            _of_rules(found[name], account, balancer)
        if balancer in classic:
            _of_classic(found[name], account, balancer)
        says.add(balancer, f"balancer of {name}")
        _of_service(found[name], body)
    _of_rules(found[SHARED], account, "nlb/mtu")
    for each in found.values():
        each.fields = {part: says.replaced(fields) for part, fields in each.fields.items()}
    return found


def _of_balancer(belongings: Belongings, account: Account, row: Row, created: Mapping[str, str]) -> None:
    arn = row["LoadBalancerArn"]
    attributes = account.elb.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
    asked = sorted(f"{key}={value}" for key, value in created.items() if _CREATED.fullmatch(key))
    zones = sorted(str(each) for each in row["AvailabilityZones"])
    more = {"attributes": _pairs(attributes), "created from": asked, "AvailabilityZones": zones, **_tags(account, arn)}
    belongings.add("load balancer", "", {**row, "id": arn}, **more)
    for listener in account.elb.describe_listeners(LoadBalancerArn=arn)["Listeners"]:
        _of_listener(belongings, account, listener)


def _of_classic(belongings: Belongings, account: Account, name: str) -> None:
    """Add a Classic Load Balancer, and its own security group if it has one."""
    row = account.classic_balancer(name)
    (shown,) = (each for each in account.classic_balancers() if each["LoadBalancerName"] == name)
    identity = f"{row['DNSName']} {shown['CreatedTime']} {shown['SecurityGroups']}"
    belongings.add("Classic Load Balancer", "", {**row, "id": identity}, **_split(row["tags"]))
    for group in account.ec2.describe_security_groups(GroupIds=shown["SecurityGroups"])["SecurityGroups"]:
        if name in group["GroupName"]:
            kept = {"name": group["GroupName"], "description": group["Description"], "id": group["GroupId"]}
            belongings.add("security group", "", kept, tags=_pairs(group["Tags"]))


def _of_listener(belongings: Belongings, account: Account, listener: Row) -> None:
    which = f"{listener['Protocol']} {listener['Port']}"
    actions = [{key: value for key, value in each.items() if "TargetGroup" not in key and key != "ForwardConfig"}
               for each in listener["DefaultActions"]]  # fmt: skip
    arn = listener["ListenerArn"]
    belongings.add("listener", which, {**listener, "id": arn}, DefaultActions=actions, **_tags(account, arn))
    for action in listener["DefaultActions"]:
        arn = action["TargetGroupArn"]
        (group,) = account.elb.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"]
        attributes = account.elb.describe_target_group_attributes(TargetGroupArn=arn)["Attributes"]
        health = account.elb.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        targets = sorted(f"{each['Target']['Id']}:{each['Target']['Port']}" for each in health)
        more = {"attributes": _pairs(attributes), "targets": targets, **_tags(account, arn)}
        belongings.add("target group", which, {**group, "id": arn}, **more)


def _of_rules(belongings: Belongings, account: Account, described: str) -> None:
    """Add the rules whose descriptions contain this text, by group."""
    for name, group in _groups(account).items():
        rules = sorted(" ".join(map(str, rule)) for id, rule in account.rules() if id == group and described in rule[4])
        if rules:
            belongings.fields["rules of", name] = {"rules": rules}


def _of_service(belongings: Belongings, body: Row) -> None:
    belongings.fields["Service", ""] = {
        "status": body["status"],
        "finalizers": body["metadata"].get("finalizers"),
        "annotations": body["metadata"].get("annotations"),
    }


def _groups(account: Account) -> dict[str, str]:
    groups = account.ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [account.vpc]}])
    return {str(each["GroupName"]): str(each["GroupId"]) for each in groups["SecurityGroups"]}


def _tags(account: Account, arn: str) -> dict[str, Any]:
    return _split(account.tags(arn))


def _split(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the tags without those of our runtime, and the number of the latter."""
    ours = [key for key in tags if key.startswith(_OURS)]
    return {"tags": {key: tags[key] for key in sorted(tags) if key not in ours}, f"tags {_OURS}...": len(ours)}


def _pairs(attributes: Iterable[Row]) -> dict[str, str]:
    return {str(each["Key"]): str(each["Value"]) for each in attributes}

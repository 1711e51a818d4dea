# SPDX-License-Identifier: Apache-2.0
"""The adapter of `ccm-suite` for AWS: an account in moto, behind a proxy that breaks and counts only the controller's
calls.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.exceptions
import botocore.parsers
from ccm_suite.cloud import Cloud, Fault, LoadBalancer, Machine, Route, Settings
from ccm_suite.errors import Unsupported

from . import proxy as edge
from .account import CLUSTER, REGION, Account, Moto, Row
from .peer import ENVIRONMENT, conf
from .proxy import Proxy

#: Fault -> how the proxy refuses a call. The codes are EC2's, for Elastic Load Balancing, too. AWS does not throttle
#: with 429.
_REFUSALS = {
    Fault.UNAUTHORIZED: {"status": 401, "code": "AuthFailure"},
    Fault.FORBIDDEN: {"status": 403, "code": "UnauthorizedOperation"},
    Fault.THROTTLED: {"status": 503, "code": "RequestLimitExceeded"},
    Fault.INTERNAL: {"status": 500, "code": "InternalError"},
    Fault.UNAVAILABLE: {"status": 503, "code": "ServiceUnavailable"},
    Fault.GATEWAY_PAGE: {"status": 502, "body": "<html><body>502 Bad Gateway</body></html>"},
}
TRIES = 4
#: How many machines the subnet of a zone has addresses for.
HOSTS = 240
_KINDS = {Fault.TIMEOUT: "hang", Fault.HANG_UP: "drop"}


def alone(function: Any) -> Any:
    """Let only one of our threads call moto at a time. Repeat a call that fails because the controller changes
    something in the meantime."""

    @functools.wraps(function)
    def locked(self: AwsAccount, *arguments: Any) -> Any:
        with self.lock:
            for _ in range(TRIES):
                with contextlib.suppress(botocore.parsers.ResponseParserError):  # a page of HTML
                    return function(self, *arguments)
            return function(self, *arguments)

    return locked


class AwsAccount(Cloud):
    """An account in moto. Variables for the command: {cloud_config}, {cluster}. Services get Network Load Balancers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: Of all machines, also of those that are gone: ID -> address.
        self._addresses: dict[str, str] = {}
        self._moto: Moto | None = None
        self._proxy: Proxy | None = None
        self._account: Account

    def start(self, folder: Path) -> Settings:
        self._moto = Moto()
        self._proxy = Proxy(self._moto.port)
        self._account = Account(self._moto)
        config = folder / "cloud.conf"
        config.write_text(conf(self._account, self._proxy))
        return Settings(
            {"cloud_config": str(config), "cluster": CLUSTER},
            ENVIRONMENT,
            {"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"},
        )

    def stop(self) -> None:
        if self._proxy is not None:
            self._proxy.close()
        if self._moto is not None:
            self._moto.stop()

    @alone
    def create_machine(self, name: str) -> Machine:
        row = self._account.run(name, zone="a" if len(self._addresses) < HOSTS else "b")
        self._addresses[row["InstanceId"]] = row["PrivateIpAddress"]
        zone = row["Placement"]["AvailabilityZone"]
        return Machine(
            id=row["InstanceId"],
            name=name,
            addresses=(("InternalIP", row["PrivateIpAddress"]),),
            provider_id=f"aws:///{zone}/{row['InstanceId']}",
            zone=zone,
            region=REGION,
            type=row["InstanceType"],
        )

    @alone
    def delete_machine(self, machine: Machine) -> None:
        self._account.terminate(machine.id)

    @alone
    def stop_machine(self, machine: Machine) -> None:
        self._account.ec2.stop_instances(InstanceIds=[machine.id])

    @alone
    def start_machine(self, machine: Machine) -> None:
        self._account.ec2.start_instances(InstanceIds=[machine.id])

    def rename_machine(self, machine: Machine, name: str) -> None:
        raise Unsupported("renaming a machine: AWS names it by its private DNS name, for its whole life")

    def sharing(self, balancer: LoadBalancer) -> Mapping[str, str]:
        raise Unsupported("a load balancer of several Services: both controllers give each Service one of its own")

    def other_project(self) -> contextlib.AbstractContextManager[None]:
        raise Unsupported("another project: moto takes every key for one of the same account")

    def failing(self, balancers: Sequence[LoadBalancer]) -> contextlib.AbstractContextManager[None]:
        raise Unsupported("failing changes of chosen load balancers: AWS's calls about target groups do not name them")

    @alone
    def load_balancers(self) -> Sequence[LoadBalancer]:
        """Read load balancers before their listeners, and those before their target groups: so one that appears
        meanwhile is complete, or left out."""
        listeners = list[tuple[Row, Sequence[Row]]]()
        for row in self._account.balancers():
            with contextlib.suppress(botocore.exceptions.ClientError):  # it has just gone
                answer = self._account.elb.describe_listeners(LoadBalancerArn=row["LoadBalancerArn"])
                listeners.append((row, answer["Listeners"]))
        groups = {row["TargetGroupArn"]: row for row in self._account.elb.describe_target_groups()["TargetGroups"]}
        balancers, rules = [], self._account.rules()
        for row, its_listeners in listeners:
            with contextlib.suppress(botocore.exceptions.ClientError, KeyError):  # a part of it has just gone
                balancers.append(self._balancer(row, its_listeners, groups, rules))
        return balancers

    def _balancer(
        self,
        row: Row,
        listeners: Sequence[Row],
        groups: Mapping[str, Row],
        rules: Sequence[tuple[str, tuple[Any, ...]]],
    ) -> LoadBalancer:
        elb = self._account.elb
        pairs = [(each, groups[each["DefaultActions"][0]["TargetGroupArn"]]) for each in listeners]
        targets = [
            each["Target"]["Id"]
            for _, group in pairs
            for each in elb.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
        ]
        checks = {group["HealthCheckPort"] for _, group in pairs} - {"traffic-port"}
        described = f"client={row['LoadBalancerName']}"
        return LoadBalancer(
            id=row["LoadBalancerArn"],
            address=row["DNSName"],
            ports=frozenset((each["Protocol"], each["Port"], group["Port"]) for each, group in pairs),
            members=frozenset(self._addresses.get(id, "") for id in targets),
            source_ranges=frozenset(rule[3] for _, rule in rules if described in rule[4]),
            health_check_port=int(checks.pop()) if len(checks) == 1 else 0,
        )

    @alone
    def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        self._account.elb.delete_load_balancer(LoadBalancerArn=balancer.id)

    @alone
    def routes(self) -> Sequence[Route]:
        (table,) = self._account.ec2.describe_route_tables(RouteTableIds=[self._account.table])["RouteTables"]
        rows = [each for each in table["Routes"] if each.get("InstanceId")]
        return [Route(each["DestinationCidrBlock"], each["InstanceId"]) for each in rows]

    def broken(self, fault: Fault) -> contextlib.AbstractContextManager[None]:
        if fault is Fault.LATE_LISTING:
            raise Unsupported(f"the fault {fault}: the proxy keeps no former answers")
        if fault in (Fault.EMPTY_LISTING, Fault.HALF_LISTING):
            raise Unsupported(f"the fault {fault}: AWS names each machine that it does not find")
        rule = edge.Fault(_KINDS.get(fault, "status"), **_REFUSALS.get(fault, {}))
        return self._edge.broken(rule)

    @contextlib.contextmanager
    def refusing_changes(self) -> Iterator[None]:
        refusal = {"status": 400, "code": "InvalidConfigurationRequest"}
        calls = ("CreateListener", "ModifyListener", "CreateTargetGroup")
        with self._edge.broken(*(edge.Fault("status", call, **refusal) for call in calls)):
            yield

    def calls(self) -> Mapping[str, int]:
        names = self._edge.calls
        writes = sum("Describe" not in name for name in names)
        return {"read": len(names) - writes, "write": writes}

    @property
    def _edge(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

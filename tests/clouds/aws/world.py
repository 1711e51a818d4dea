# SPDX-License-Identifier: Apache-2.0
"""The AWS account in moto as the conformance kit's `World`, and the configuration with which the provider uses that
account."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ccm.cloud import ProviderConfig, VolumeRef
from ccm.conformance import Listener, NotRun, Trouble, World
from tests.kit import PATIENT

from .account import CLUSTER, KEYS, REGION, Account
from .proxy import Fault, Proxy

#: The smallest page that EC2 allows.
PAGE = 5
FAULTS = {
    Trouble.SERVER_ERROR: Fault("status", status=503, code="Unavailable"),
    Trouble.PROXY_PAGE: Fault("status", status=404, body="<html><body>no such page</body></html>"),
    Trouble.CUT_ANSWER: Fault("truncate"),
    Trouble.LATER_PAGE: Fault("status", status=503, code="InternalError", later=True),
    Trouble.HANG: Fault("hang"),
    Trouble.UNAUTHORIZED: Fault("status", status=401, code="AuthFailure"),
    Trouble.RATE_LIMITED: Fault(
        "status", status=503, code="RequestLimitExceeded", headers={"Retry-After": f"{World.RETRY_AFTER:g}"}
    ),
    Trouble.LOST_ANSWER: Fault("lost", call="CreateLoadBalancer", times=1),
    Trouble.REFUSED: Fault("status", status=400, code="OddRequest", call="CreateLoadBalancer"),
    Trouble.HALF_MADE: Fault("status", status=503, code="InternalFailure", call="CreateListener", times=1),
}


class AwsWorld(World):
    load_balancers_in_a_page = PAGE

    def __init__(self, account: Account, proxy: Proxy) -> None:
        self._account, self._proxy = account, proxy

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        if kind is Trouble.SHORT_LISTING:
            super().trouble(kind)  # EC2 reports no total, and a truncated answer is not valid XML
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            await asyncio.to_thread(self._account.moto.control, do="slow", seconds=60)
            try:
                yield
            finally:
                await asyncio.to_thread(self._account.moto.control, do="slow", seconds=0)
            return
        fault = FAULTS[kind]
        fault.times = 1 if fault.times is not None else None
        with self._proxy.broken(fault):
            yield

    async def create_instance(self, name: str) -> None:
        await asyncio.to_thread(self._account.run, name)

    async def delete_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._account.terminate, _id(provider_id))

    async def stop_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._account.ec2.stop_instances, InstanceIds=[_id(provider_id)])

    async def untag_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._account.ec2.delete_tags, Resources=[_id(provider_id)])

    async def break_load_balancer(self, name: str) -> None:
        await asyncio.to_thread(self._account.moto.control, do="fail", name=name)

    async def create_volume(self) -> VolumeRef:
        return VolumeRef("ebs.csi.aws.com", await asyncio.to_thread(self._account.create_volume))

    async def delete_volume(self, ref: VolumeRef) -> None:
        await asyncio.to_thread(self._account.delete_volume, ref.handle)

    async def load_balancer_parts(self) -> frozenset[str]:
        return await asyncio.to_thread(self._account.parts)

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        return await asyncio.to_thread(self._listeners, name)

    def _listeners(self, name: str) -> tuple[Listener, ...]:
        found, rules = [], [rule for _, rule in self._account.rules()]
        for each in self._account.balancer(name)["listeners"]:
            group = each["group"]
            targets = frozenset(
                (str(self._account.instance(id)["PrivateIpAddress"]), port) for id, port in each["targets"]
            )
            # The kit's Services share a node port, so the first Service's rule serves the second Service, too.
            clients = {
                rule[3]
                for rule in rules
                if rule[1] == group["Port"] and rule[4].startswith("kubernetes.io/rule/nlb/client=")
            }
            check = group["HealthCheckPort"]
            found.append(
                Listener(
                    each["port"],
                    each["protocol"],
                    targets,
                    frozenset(clients - {"0.0.0.0/0"}),
                    health_check_port=0 if check == "traffic-port" else int(check),
                )
            )
        return tuple(found)


class ClassicWorld(AwsWorld):
    """The world with Classic Load Balancers, which exist at once and never fail."""

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            raise NotRun("Classic Load Balancers are never slow")
        calls = {
            Trouble.LOST_ANSWER: Fault("lost", call="classic CreateLoadBalancer", times=1),
            Trouble.REFUSED: Fault("status", status=400, code="OddRequest", call="classic CreateLoadBalancer"),
            Trouble.HALF_MADE: Fault("status", code="InternalFailure", call="classic ConfigureHealthCheck", times=1),
        }
        with self._proxy.broken(calls[kind]) if kind in calls else contextlib.nullcontext():
            async with contextlib.nullcontext() if kind in calls else super().trouble(kind):
                yield

    async def break_load_balancer(self, name: str) -> None:
        raise NotRun("Classic Load Balancers never fail")

    def _listeners(self, name: str) -> tuple[Listener, ...]:
        shown = self._account.classic_balancer(name)
        addresses = [str(self._account.instance(id)["PrivateIpAddress"]) for id in shown["Instances"]]
        rows = [each["Listener"] for each in shown["ListenerDescriptions"]]
        check = int(shown["HealthCheck"]["Target"].split(":")[1].partition("/")[0])
        return tuple(
            Listener(
                row["LoadBalancerPort"],
                row["Protocol"],
                frozenset((address, row["InstancePort"]) for address in addresses),
                frozenset(cidr for _, first, _, cidr in shown["ranges"] if first == row["LoadBalancerPort"])
                - {"0.0.0.0/0"},
                health_check_port=0 if check == rows[0]["InstancePort"] else check,
            )
            for row in rows
        )


def config(account: Account, proxy: Proxy, more: str = "", *, runtime: str = "", type_: str = "nlb") -> ProviderConfig:
    """Return a cloud.conf. Credentials and the endpoint come from the environment. `more`: lines of Global. `type_`:
    the type of load balancers.
    """
    text = f"""[Global]
Region = {REGION}
VPC = {account.vpc}
SubnetID = {account.subnets["public-a"]}
KubernetesClusterID = {CLUSTER}
{more}
[Runtime]
LoadBalancerType = {type_}
RequestTimeout = {PATIENT}s
CallsPerSecond = 10000
Burst = 10000
PageSize = {PAGE}
{runtime}
"""
    return ProviderConfig(text, "cloud.conf", {**KEYS, "AWS_ENDPOINT_URL": proxy.url})


def _id(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]

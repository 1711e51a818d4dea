# SPDX-License-Identifier: Apache-2.0
"""Measures what a joining Node costs with many Services: CPU of the service controller and a provider, in virtual
time.

Controller, gateway and providers are the real ones. The API server is the small one of the unit tests; clouds answer
from memory, and their own CPU is not counted. The CPU for encoding bodies in JSON, as the provider's client does, is
counted; for `aws`, nothing is encoded. HTTP and the decoding of answers are left out, because they cost the same for
any number of unchanged Nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import gc
import json
import math
import pstats
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from ccm.cloud import NotFound, ProviderConfig
from ccm.providers.aws.load_balancers.network.load_balancers import NetworkLoadBalancers
from ccm.providers.aws.settings import Settings as AwsSettings
from ccm.providers.hetzner.load_balancers import HetznerLoadBalancers
from ccm.providers.hetzner.settings import Variables
from ccm.providers.openstack.load_balancers.load_balancers import OctaviaLoadBalancers
from ccm.providers.sim import SimLoadBalancers
from ccm.providers.sim import api as sim_api
from ccm.providers.static import StaticLoadBalancers
from tests.unit.runtime.controllers.services_harness import Cluster
from tests.unit.runtime.gateway.virtual import VirtualLoop
from tests.unit.runtime.providers.openstack.octavia_in_memory import FakeOpenStack

EXAMPLE = Path(__file__).parents[2] / "runtime" / "examples" / "ccm-provider-acme"
SERVICES, NODES = 1000, 2000


class Elsewhere:
    """Adds up the CPU seconds of the clouds in memory, which `join` subtracts."""

    seconds = 0.0

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        began = time.process_time()
        try:
            yield
        finally:
            self.seconds += time.process_time() - began


elsewhere = Elsewhere()


@dataclass(frozen=True)
class Case:
    """A provider to measure. `make`: returns its load balancers. `provider_id`: returns the ID of a Node by its
    number."""

    make: Callable[[], Any]
    provider_id: Callable[[int], str]
    annotations: Mapping[str, str]


# --- clouds that answer from memory --------------------------------------------------------------------------------


class Acme:
    """The `Api` of the example provider, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}

    async def call(self, method: str, path: str, body: Any = None, *, missing: str = "") -> Any:
        _ = None if body is None else json.dumps(body).encode()
        with elsewhere():
            if method == "PUT":
                self.rows[path] = {"name": path, "ip": "203.0.113.1", "state": "active", "labels": body["labels"]}
            if path == "/balancers":
                return {"balancers": list(self.rows.values())}
            if path not in self.rows:
                raise NotFound(path)
            return self.rows[path]


class Sim:
    """The `Api` of the provider sim, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, sim_api.LoadBalancer] = {}
        self.passes_through = False

    async def list(self, path: str, item: Any, query: Any = ()) -> Any:
        with elsewhere():
            uid = next((text.removeprefix("service_uid:") for _, text in query if text.startswith("service_uid:")), "")
            return [self.rows[uid]] if uid in self.rows else [] if uid else list(self.rows.values())

    async def call(self, method: str, path: str, answer: Any, *, body: Any = None, missing: str = "") -> Any:
        msgspec.json.encode(body)
        with elsewhere():
            uid = body["tags"].get("service_uid") or path.split("/")[2]
            tags = {**(self.rows[uid].tags if uid in self.rows else {}), **body["tags"]}
            self.rows[uid] = sim_api.LoadBalancer(uid, uid, "203.0.113.1", "active", tags)
            return self.rows[uid]


class Hetzner:
    """The `Api` of the provider hetzner, in memory. Each load balancer has the smallest type, with room for 25
    servers."""

    network = 0
    settings = SimpleNamespace(variables=Variables(hcloud_load_balancers_location="fsn1"))

    def __init__(self) -> None:
        self.balancers: dict[int, dict[str, Any]] = {}

    async def rows(self, path: str, name: str, *, query: Any = ()) -> Any:
        with elsewhere():
            if name == "load_balancer_types":
                return [{"name": "lb11", "max_targets": 25}]
            return [dict(row) for row in self.balancers.values()]

    async def call(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        _ = json.dumps(body)
        with elsewhere():
            action = {"id": 1, "status": "success"}
            if method == "POST":
                number = len(self.balancers) + 1
                address = {"ip": "203.0.113.1", "dns_ptr": None}
                self.balancers[number] = {
                    "id": number,
                    "private_net": [],
                    "protection": {"delete": False},
                    "public_net": {"enabled": True, "ipv4": address, "ipv6": address},
                    "algorithm": {"type": "round_robin"},
                    **body,
                    "load_balancer_type": {"name": "lb11", "max_targets": 25},
                }
                return {"load_balancer": self.balancers[number], "action": action}
            self.balancers[int(path.split("/")[2])] |= body
            return {"load_balancer": self.balancers[int(path.split("/")[2])], "action": action}

    async def action(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        _ = json.dumps(body)
        with elsewhere():
            row = self.balancers[int(path.split("/")[2])]
            others = [target for target in row["targets"] if target["server"] != body["server"]]
            row["targets"] = [*others, body] if path.endswith("add_target") else others
            return {"id": 1, "status": "success"}


class Aws:
    """The `Api` of the provider aws, in memory, with one security group for all Nodes."""

    vpc, cluster, zone_types = "vpc-1", "", {}
    subnet = "subnet-1"
    settings = AwsSettings.parse(ProviderConfig())

    def __init__(self) -> None:
        self.balancers: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.targets: dict[str, dict[tuple[str, int], Any]] = {}

    async def elb(self, operation: str, *, missing: Any = (), what: str = "", **parameters: Any) -> Any:
        with elsewhere():
            return getattr(self, operation)(**parameters)

    async def elb_rows(self, operation: str, rows: str, *, missing: Any = (), **parameters: Any) -> Any:
        with elsewhere():
            return getattr(self, operation)(**parameters)[rows]

    async def ec2_rows(self, operation: str, rows: str, **parameters: Any) -> Any:
        with elsewhere():
            if rows == "Subnets":
                zone = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailabilityZone": "a", "CidrBlock": "10.0.0.0/16"}
                return [zone | {"AvailableIpAddressCount": 99, "Tags": []}]
            if rows == "SecurityGroups":
                return [{"GroupId": "sg-nodes", "IpPermissions": [], "Tags": []}]
            return []

    async def ec2(self, operation: str, **parameters: Any) -> Any:
        return {}

    def describe_load_balancers(self, Names: Any = None, **_: Any) -> Any:
        if Names and Names[0] not in self.balancers:
            raise NotFound(Names[0])
        return {"LoadBalancers": [self.balancers[Names[0]]] if Names else list(self.balancers.values())}

    def create_load_balancer(self, Name: str, Tags: Any, **_: Any) -> Any:
        row = {"LoadBalancerArn": f"arn/{Name}", "LoadBalancerName": Name, "DNSName": f"{Name}.example.org"}
        self.balancers[Name] = row | {"Type": "network", "VpcId": "vpc-1", "State": {"Code": "active"}}
        self.tags[f"arn/{Name}"] = {}
        self.add_tags([f"arn/{Name}"], Tags)
        return {"LoadBalancers": [self.balancers[Name]]}

    def add_tags(self, ResourceArns: Any, Tags: Any) -> Any:
        for arn in ResourceArns:
            self.tags.setdefault(arn, {}).update({each["Key"]: each["Value"] for each in Tags})
        return {}

    def describe_tags(self, ResourceArns: Any) -> Any:
        return {
            "TagDescriptions": [
                {"ResourceArn": arn, "Tags": [{"Key": key, "Value": text} for key, text in self.tags[arn].items()]}
                for arn in ResourceArns
            ]
        }

    def create_target_group(self, Name: str, Port: int, **_: Any) -> Any:
        self.groups[f"arn/{Name}"] = {"TargetGroupArn": f"arn/{Name}", "TargetGroupName": Name, "Port": Port}
        self.targets[f"arn/{Name}"] = {}
        return {"TargetGroups": [self.groups[f"arn/{Name}"]]}

    def register_targets(self, TargetGroupArn: str, Targets: Any) -> Any:
        self.targets[TargetGroupArn] |= {(each["Id"], each["Port"]): {"Target": each} for each in Targets}
        return {}

    def describe_target_health(self, TargetGroupArn: str) -> Any:
        return {"TargetHealthDescriptions": list(self.targets[TargetGroupArn].values())}

    def __getattr__(self, name: str) -> Any:
        return lambda **_: {}


def openstack() -> OctaviaLoadBalancers:
    class Cloud(FakeOpenStack):
        async def call(self, *args: Any, body: Any = None, **more: Any) -> Any:
            sent = msgspec.json.encode(body)
            with elsewhere():
                body = msgspec.json.decode(sent)
                if body and "members" in body:
                    body = {"members": body["members"][:1]}
                if body and "loadbalancer" in body:
                    for each in body["loadbalancer"].get("listeners", ()):
                        each["default_pool"]["members"] = []
                return await super().call(*args, body=body, **more)

    cloud = Cloud()
    cloud.floating_quota = 10**6
    return OctaviaLoadBalancers(cloud, clock=lambda: asyncio.get_running_loop().time())  # type: ignore[arg-type]


def aws() -> NetworkLoadBalancers:
    from ccm.providers.aws.instances import Ec2Instances
    from ccm.providers.aws.load_balancers.network.node_groups import NodeGroups
    from ccm.providers.aws.load_balancers.shared.security_groups import SecurityGroups
    from ccm.providers.aws.load_balancers.shared.subnets import VpcSubnets

    api = Aws()
    instances = Ec2Instances(api)  # type: ignore[arg-type]
    for number in range(NODES + 1):
        id = f"i-{number:017x}"
        instances._known[id] = {"InstanceId": id, "SecurityGroups": [{"GroupId": "sg-nodes"}]}
    nodes = NodeGroups(api, instances, SecurityGroups(api))  # type: ignore[arg-type]
    return NetworkLoadBalancers(api, instances, nodes, VpcSubnets(api))  # type: ignore[arg-type]


def example() -> Any:
    sys.path.insert(0, str(EXAMPLE))
    from ccm_provider_acme.load_balancers import AcmeLoadBalancers

    return AcmeLoadBalancers(Acme())


def static() -> StaticLoadBalancers:
    from ccm.providers.static.settings import Settings

    machines = "machines: [{id: m-1, name: node-1, addresses: [10.0.0.1]}]"
    text = f"cluster: c\n{machines}\nload_balancer_addresses: [10.9.0.0/20]\n"
    return StaticLoadBalancers(Settings.parse(text, "cloud.conf"))


AWS = "service.beta.kubernetes.io/aws-load-balancer"
NLB = {f"{AWS}-type": "nlb", f"{AWS}-subnets": "subnet-1"}
CASES = {
    "example": Case(example, lambda number: f"acme://srv-{number}", {}),
    "sim": Case(lambda: SimLoadBalancers(Sim()), lambda number: f"sim://north/i-{number:012x}", {}),  # type: ignore[arg-type]
    "static": Case(static, lambda number: f"static://c/m-{number}", {}),
    "openstack": Case(openstack, lambda number: f"openstack:///00000000-0000-4000-8000-{number:012x}", {}),
    "hetzner": Case(
        lambda: HetznerLoadBalancers(Hetzner()),  # type: ignore[arg-type]
        lambda number: f"hcloud://{number + 1000}",
        {},
    ),
    "aws": Case(aws, lambda number: f"aws:///eu-central-1a/i-{number:017x}", NLB),
}


# --- the measurement -----------------------------------------------------------------------------------------------


async def join(case: Case, services: int, nodes: int, profile: cProfile.Profile | None = None) -> dict[str, float]:
    """Return the CPU seconds from the moment a Node joins until it is a backend of all Services: `cloud_cpu` of the
    clouds in memory, and `cpu` of everything else in the process."""
    async with Cluster() as cluster:
        cluster.cloud = case.make()
        cluster.machines.owns = lambda provider_id: True  # type: ignore[method-assign]
        cluster.machines.canonical = lambda provider_id: provider_id  # type: ignore[method-assign]
        cluster._connect()

        def add(number: int) -> None:
            address = f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"
            cluster.add_node(f"node-{number:05}", provider_id=case.provider_id(number), addresses=(address,))

        for number in range(nodes):
            add(number)
        for number in range(services):
            uid = f"{number:08x}-0000-4000-9000-000000000000"
            cluster.add_service(f"web-{number}", uid=uid, annotations=dict(case.annotations))
        cluster.api.latency = 0.0
        controller = cluster.serve(audit_period=0)
        keys = [f"shop/web-{number}" for number in range(services)]

        def done() -> bool:
            known = controller._known
            return len(known) == services and all(
                known[key].polling.settled and len(known[key].written.backends) == len(cluster.api.objects["nodes"])
                for key in keys
            )

        async def wait() -> None:
            while not done():
                await asyncio.sleep(1)

        await wait()
        await asyncio.sleep(30)
        add(nodes)
        gc.collect()
        gc.freeze()  # keep the clouds' objects out of the garbage collection that is measured
        elsewhere.seconds, began = 0.0, time.process_time()
        if profile is not None:
            profile.enable()
        await wait()
        if profile is not None:
            profile.disable()
        whole = time.process_time() - began
        return {"cpu": whole - elsewhere.seconds, "cloud_cpu": elsewhere.seconds}


def measure(name: str, services: int, nodes: int, profile: cProfile.Profile | None = None) -> dict[str, float]:
    def loop() -> VirtualLoop:
        made = VirtualLoop()
        made.given_up = math.inf
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(join(CASES[name], services, nodes, profile))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for name in options.case or CASES:
        profile = cProfile.Profile() if options.profile else None
        size = {"size": options.services, "nodes": options.nodes}
        print(json.dumps(size | measure(name, options.services, options.nodes, profile)), flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(18)

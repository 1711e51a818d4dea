# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to Services, Nodes, the cloud and the process, the cloud finally has the desired state, and then
nothing more is written."""

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm.cloud import Conflict, QuotaExceeded, RetryAfter, Transient
from ccm.controllers.services import backend_rules
from ccm.engine.api_errors import UnavailableError

from ..gateway.virtual import in_virtual_time
from .services_harness import FINALIZER, Cluster

EXCLUDED = {"metadata": {"labels": {backend_rules.EXCLUDE_LABEL: ""}}}
INCLUDED = {"metadata": {"labels": {backend_rules.EXCLUDE_LABEL: None}}}
WHAT = [*["add"] * 2, "delete", *["port"] * 3, "type", "note", "node", "node-", *["label"] * 3, "restart"]
#: Longer than the longest back-off.
LONG = 700.0


class Churn:
    def __init__(self, cluster, chance):
        self.c, self.chance, self.made, self.troubled = cluster, chance, 0, True
        cluster.cloud.provision = chance.choice([0.0, 0.0, 3.0])
        cluster.cloud.fault = lambda verb, spec: self.trouble()
        cluster.cloud.after = lambda verb, spec: self.trouble()
        cluster.api.fault = lambda path, patch: (
            UnavailableError(503, "", "no etcd leader") if self.troubled and chance.random() < 0.1 else None
        )

    def trouble(self):
        if not self.troubled or self.chance.random() > 0.25:
            return None
        kinds = [
            Transient("no answer"),
            RetryAfter("busy", 2.0),
            Conflict("locked"),
            QuotaExceeded("full"),
            KeyError("x"),
        ]
        return self.chance.choice(kinds)

    def services(self):
        found = self.c.api.objects["services"].values()
        return [each for each in found if not each["metadata"].get("deletionTimestamp")]

    def change(self, service, patch):
        self.c.api.change("services", f"shop/{service['metadata']['name']}", patch)

    def node(self):
        return self.chance.choice(list(self.c.api.objects["nodes"]) or [None])

    async def step(self):
        services = self.services()
        what = self.chance.choice(WHAT)
        if what == "restart":
            await self.c.stop()
            self.c.cloud.writing.clear()
            self.c.serve(workers=self.chance.choice([1, 5]))
        elif what == "add" or not services:
            self.made += 1
            self.c.add_service(f"s{self.made}", uid=f"uid-{self.made}", port=self.made + 100)
        elif what == "node":
            self.made += 1
            self.c.add_node(f"n{self.made}")
        elif what == "node-" and (name := self.node()):
            self.c.api.remove("nodes", name)
        elif what == "label" and (name := self.node()):
            self.c.api.change("nodes", name, self.chance.choice([EXCLUDED, INCLUDED]))
        else:
            service = self.chance.choice(services)
            if what == "delete":
                self.c.api.delete_service(service["metadata"]["name"])
            elif what == "port":
                ports = [{**service["spec"]["ports"][0], "port": self.chance.choice([80, 81])}]  # often changed back
                self.change(service, {"spec": {"ports": ports}})
            elif what == "type":
                kind = self.chance.choice(["ClusterIP", "LoadBalancer"])
                self.change(service, {"spec": {"type": kind}})
            elif what == "note":
                self.change(service, {"metadata": {"annotations": {"note": str(self.chance.random())}}})

    def check(self):
        """Check that the cloud has the desired state and that the status of each Service shows it."""
        c = self.c
        assert all(not each["metadata"].get("deletionTimestamp") for each in c.api.objects["services"].values())
        wanted = {s["metadata"]["uid"]: s for s in self.services() if s["spec"]["type"] == "LoadBalancer"}
        assert set(c.cloud.made) == set(wanted)
        labels = {name: node["metadata"].get("labels", {}) for name, node in c.api.objects["nodes"].items()}
        hosts = sorted(name for name in labels if backend_rules.EXCLUDE_LABEL not in labels[name])
        for uid, service in wanted.items():
            made = c.cloud.made[uid]
            assert made["hosts"] == hosts
            assert [number for _, number, _ in made["ports"]] == [port["port"] for port in service["spec"]["ports"]]
            assert [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]] == [made["ip"]]
            assert service["metadata"]["finalizers"] == [FINALIZER]
        for service in self.services():
            if service["spec"]["type"] != "LoadBalancer":
                assert FINALIZER not in service["metadata"].get("finalizers", [])
                assert not (service["status"].get("loadBalancer") or {}).get("ingress")


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60))
def test_in_the_end_all_is_right_and_nothing_is_left_to_do(seed, steps):
    @in_virtual_time
    async def run():
        async with Cluster() as c:
            chance = random.Random(seed)
            churn = Churn(c, chance)
            c.serve()
            for _ in range(steps):
                await churn.step()
                await asyncio.sleep(chance.choice([0.0, 0.005, 0.05, 1.0, 3.0, 10.0]))
            churn.troubled = False
            await asyncio.sleep(LONG)
            churn.check()
            writes, patches = c.cloud.count("ensure", "update", "delete"), len(c.api.patches)
            await asyncio.sleep(LONG)
            assert (c.cloud.count("ensure", "update", "delete"), len(c.api.patches)) == (writes, patches)
            await c.stop()
            c.serve()  # a new leader finds the same state
            await asyncio.sleep(LONG)
            churn.check()
            assert (c.cloud.count("ensure", "update", "delete"), len(c.api.patches)) == (writes, patches)

    run()

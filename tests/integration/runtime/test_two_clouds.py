# SPDX-License-Identifier: Apache-2.0
"""Two clouds in one process, the simulated one and machines in a file, with a real API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import (
    NODES,
    SERVICES,
    Ccm,
    ask,
    documented,
    event_messages,
    eventually,
    get_lease,
    get_node,
    get_service,
    initialised,
    is_tainted,
    node_body,
    set_ready,
)
from .test_lifecycle import delete_instance
from .test_static_addresses import service

#: Flags that make the safety rules fast enough for a test.
FAST = {"node_monitor_period": "200ms", "node_deletion_min_age": "0s"}


class TwoClouds:
    """Both clouds, and a function that starts a process for both."""

    def __init__(self, cloud: Simulator, start_ccm: StartCcm, folder: Path) -> None:
        self.cloud, self._start, self._folder = cloud, start_ccm, folder
        self.machines = folder / "machines.yaml"

    def write(self, *names: str) -> None:
        self.machines.write_text(
            "".join(f"- {{name: {name}, addresses: [10.9.1.{n}]}}\n" for n, name in enumerate(names))
        )

    def start(self, request_timeout: float = 10.0, **flags: Any) -> Ccm:
        sim, static = self._folder / "sim.conf", self._folder / "static.yaml"
        sim.write_text(self.cloud.conf(request_timeout=request_timeout))
        static.write_text(
            f"cluster: cellar\nmachines_file: {self.machines}\nload_balancer_addresses: [192.0.2.10-192.0.2.19]\n"
        )
        values = {
            "cloud_provider": "sim,static",
            "cloud_config": f"sim={sim},static={static}",
            "load_balancer_class": "example.com/metal=static",
            "default_load_balancer_provider": "sim",
        }
        return self._start(**values | FAST | flags)


@pytest.fixture
def both(cloud: Simulator, start_ccm: StartCcm, tmp_path: Path) -> TwoClouds:
    return TwoClouds(cloud, start_ccm, tmp_path)


async def nodes(kube: KubeClient, *names: str) -> None:
    for name in names:
        await kube.create(NODES, node_body(name))


async def lasting(kube: KubeClient, *names: str) -> list[str]:
    return [name for name in names if await get_node(kube, name) is not None]


async def provider_id(kube: KubeClient, name: str) -> str:
    node = await get_node(kube, name)
    assert node is not None
    return node.spec.provider_id


async def test_each_cloud_takes_its_own_nodes_and_only_those_of_deleted_machines_go(
    kube: KubeClient, both: TwoClouds
) -> None:
    both.cloud.add_instances(3, prefix="virtual-")
    virtual, metal = [f"virtual-{n}" for n in range(3)], [f"metal-{n}" for n in range(3)]
    both.write(*metal)
    ccm = both.start()
    await ccm.leading()
    await nodes(kube, *virtual, *metal, "nobodys")
    await eventually(lambda: initialised(kube, *virtual, *metal))
    assert (await provider_id(kube, "metal-0"), (await provider_id(kube, "virtual-0"))[:6]) == (
        "static://cellar/metal-0",
        "sim://",
    )
    messages = await eventually(lambda: event_messages(kube, "InstanceNotFound", "nobodys"))
    assert "asked: sim and static" in messages[0]

    before = {name: await get_node(kube, name) for name in metal}
    delete_instance(both.cloud, "virtual-0")

    async def is_gone() -> bool:
        return await get_node(kube, "virtual-0") is None

    await eventually(is_gone)
    await asyncio.sleep(3)  # fifteen passes
    assert await lasting(kube, *virtual, *metal) == [*virtual[1:], *metal]
    for name, node in before.items():
        now = await get_node(kube, name)
        assert now is not None and node is not None
        assert now.metadata.resource_version == node.metadata.resource_version, "nothing was written to it"
    nobodys = await get_node(kube, "nobodys")
    assert nobodys is not None and is_tainted(nobodys) and not nobodys.spec.provider_id

    both.write(*metal[1:])

    async def is_gone_too() -> bool:
        return await get_node(kube, "metal-0") is None

    await eventually(is_gone_too)
    assert await lasting(kube, *virtual, *metal) == [*virtual[1:], *metal[1:]]


async def test_a_node_that_both_claim_belongs_to_nobody_until_it_is_declared(kube: KubeClient, both: TwoClouds) -> None:
    both.cloud.add_instances(1, prefix="twin-")
    both.write("twin-0")
    ccm = both.start()
    await ccm.leading()
    await nodes(kube, "twin-0")
    messages = await eventually(lambda: event_messages(kube, "SeveralOwners", "twin-0"))
    assert "sim and static each have a machine" in messages[0]
    assert not await initialised(kube, "twin-0") and not await provider_id(kube, "twin-0")
    label = {"node-restriction.kubernetes.io/ccm-cloud": "static"}
    await kube.patch(f"{NODES}/twin-0", {"metadata": {"labels": label}})
    await eventually(lambda: initialised(kube, "twin-0"))
    assert await provider_id(kube, "twin-0") == "static://cellar/twin-0"


async def test_services_go_to_the_cloud_of_their_class(kube: KubeClient, both: TwoClouds) -> None:
    both.cloud.add_instances(1, prefix="virtual-")
    both.write("metal-0")
    ccm = both.start()
    await ccm.leading()
    await nodes(kube, "virtual-0", "metal-0")
    for name in ("virtual-0", "metal-0"):
        await set_ready(kube, name, "True")
    await eventually(lambda: initialised(kube, "virtual-0", "metal-0"))
    await kube.create(SERVICES, service("plain"))
    await kube.create(SERVICES, service("bare", loadBalancerClass="example.com/metal"))
    await kube.create(SERVICES, service("other", loadBalancerClass="example.com/else"))

    async def addresses(name: str) -> list[str]:
        return [entry.ip for entry in (await get_service(kube, name)).status.load_balancer.ingress]

    assert (await eventually(lambda: addresses("plain")))[0].startswith("203.0.113.")
    assert (await eventually(lambda: addresses("bare")))[0].startswith("192.0.2.")
    await asyncio.sleep(1)
    assert await addresses("other") == [] and not (await get_service(kube, "other")).metadata.finalizers
    balancers = both.cloud.project().load_balancers
    assert len(balancers.ids) == 1, "the class of the machines is not the simulated cloud's"


async def test_each_cloud_has_pod_cidrs_of_its_own(kube: KubeClient, both: TwoClouds) -> None:
    """Nodes of machines in the file get blocks of the range for that cloud, and Nodes of the simulated cloud get blocks
    of the rest. A Node of no cloud gets none. Only the simulated cloud has routes, to its own Nodes."""
    both.cloud.add_instances(2, prefix="virtual-")
    both.write("metal-0", "metal-1")
    ccm = both.start(
        controllers="*,node-ipam-controller",
        allocate_node_cidrs="true",
        cluster_cidr="10.244.0.0/16,fd00:10::/56",
        cloud_cluster_cidr="static=10.244.128.0/17,static=fd00:10:0:80::/57",
    )
    await ccm.leading()
    await nodes(kube, "virtual-0", "metal-0", "metal-1", "virtual-1", "nobodys")

    async def cidrs() -> dict[str, list[str]]:
        found = {name: await get_node(kube, name) for name in ("virtual-0", "virtual-1", "metal-0", "metal-1")}
        return {name: node.spec.pod_cidrs for name, node in found.items() if node is not None and node.spec.pod_cidrs}

    async def have_all() -> bool:
        return len(await cidrs()) == 4

    await eventually(have_all)
    found = await cidrs()
    assert sorted(found["metal-0"] + found["metal-1"]) == [
        "10.244.128.0/24",
        "10.244.129.0/24",
        "fd00:10:0:80::/64",
        "fd00:10:0:81::/64",
    ]
    assert sorted(found["virtual-0"] + found["virtual-1"]) == [
        "10.244.0.0/24",
        "10.244.1.0/24",
        "fd00:10:0:1::/64",
        "fd00:10::/64",
    ]
    nobodys = await get_node(kube, "nobodys")
    assert nobodys is not None and not nobodys.spec.pod_cidrs

    async def routed() -> bool:
        routes = {route.destination for route in both.cloud.project().routes.rows.values()}
        return routes == {*found["virtual-0"], *found["virtual-1"]}

    await eventually(routed)


@pytest.mark.parametrize("action", ["timeout", "hang_up"])
async def test_a_cloud_that_is_down_costs_the_other_one_nothing(
    kube: KubeClient, both: TwoClouds, action: str, admin_token: str
) -> None:
    both.cloud.add_instances(1, prefix=f"down-{action.replace('_', '-')}-")
    virtual = f"down-{action.replace('_', '-')}-0"
    both.cloud.fault(action=action)
    both.write("metal-0")
    ccm = both.start(request_timeout=2.0 if action == "timeout" else 60, cloud_nodes="static=metal-*")
    await ccm.leading()
    await nodes(kube, virtual, "metal-0")
    await eventually(lambda: initialised(kube, "metal-0"))
    assert not await initialised(kube, virtual)

    async def is_ready() -> bool:
        """Return whether the process is ready, which it is after the first call to the cloud that is down has failed.
        """
        status, checks = await ccm.get("/readyz?verbose", admin_token)
        return status == 200 and "[+]cloud-sim tolerated: " in checks and "[+]cloud-static ok" in checks

    await eventually(is_ready)
    assert (await ccm.get("/readyz/cloud-sim", admin_token))[0] == 500
    _, page = await ccm.get("/statusz?format=json", admin_token)
    clouds = {each["name"]: each for each in json.loads(page)["clouds"]}
    assert clouds["sim"]["failing"] is not None and clouds["static"]["failing"] is None
    assert any(each["operation"].startswith("instances.") for each in clouds["static"]["calls"])
    _, metrics = await ccm.get("/metrics", admin_token)
    assert 'ccm_cloud_last_success_timestamp_seconds{cloud="static"}' in metrics
    noted = (await get_lease(kube)).metadata.annotations
    assert noted["ccm.outoftree.dev/last-cloud-success.sim"] == noted["ccm.outoftree.dev/last-cloud-success"] == ""
    assert noted["ccm.outoftree.dev/last-cloud-success.static"]
    both.cloud.clear_faults()
    await eventually(lambda: initialised(kube, virtual))


def flags_of(ccm: Ccm) -> list[str]:
    """Return the controller's flags that a command needs to read the same clouds."""
    names = ("cloud-provider", "cloud-config", "kubeconfig", "load-balancer-class", "default-load-balancer-provider")
    names += ("cluster-cidr", "configure-cloud-routes")
    return [text for text in ccm.arguments if text.startswith(tuple(f"--{name}=" for name in names))]


async def test_commands_say_whose_each_node_is_and_plan_what_is_done(kube: KubeClient, both: TwoClouds) -> None:
    both.cloud.add_instances(1, prefix="virtual-")
    both.cloud.add_instances(1, prefix="twin-")
    both.write("metal-0", "twin-0")
    ccm = both.start()
    await ccm.leading()
    await nodes(kube, "virtual-0", "metal-0", "twin-0", "nobodys")
    await kube.create(NODES, node_body("elsewhere", tainted=False, providerID="k3s://elsewhere"))
    await eventually(lambda: initialised(kube, "virtual-0", "metal-0"))
    await kube.create(SERVICES, service("bare", loadBalancerClass="example.com/metal"))
    flags = flags_of(ccm)

    own = [text for text in flags if text.startswith(("--cloud-provider", "--cloud-config", "--kubeconfig"))]
    status, out, err = await ask("nodes", "--output=json", *own)
    assert (status, err) == (0, "")
    found = {each["name"]: (each["cloud"], each["verdict"]) for each in json.loads(out)}
    assert found == {
        "elsewhere": ("", "foreign"),
        "metal-0": ("static", "ok"),
        "nobodys": ("", "mismatched"),
        "twin-0": ("", "mismatched"),
        "virtual-0": ("sim", "ok"),
    }
    assert "CLOUD" in (await ask("nodes", *own))[1].splitlines()[0]

    status, out, err = await ask("plan", "--output=json", *flags)
    assert (status, err) == (1, "")
    documented(json.loads(out))
    planned = {each["name"]: (each["action"], each["cloud"], each["reason"]) for each in json.loads(out)["outlooks"]}
    assert planned["twin-0"] == ("blocked", "", "SeveralOwners")
    assert planned["nobodys"] == ("blocked", "", "InstanceNotFound")
    assert not {"virtual-0", "metal-0", "elsewhere"} & set(planned)
    assert set(json.loads(out)["controllers"]) >= {"cloud-node-controller", "service-lb-controller"}

    _, out, _ = await ask("explain", "node", "metal-0", *flags)
    assert "It belongs to cloud static." in out
    _, out, _ = await ask("explain", "node", "twin-0", *flags)
    assert "sim and static each have a machine" in out and "provider sim" in out and "provider static" in out
    _, out, _ = await ask("explain", "service", "bare", *flags, "--output=json")
    assert {each["cloud"] for each in json.loads(out)["outlooks"]} == {"static"}

    _, out, err = await ask("doctor", "--output=json", *flags)
    assert err == ""
    checks = [each for each in json.loads(out)["checks"] if each["check"] == "credentials"]
    assert [(each["state"], each["said"].partition(":")[0]) for each in checks] == [
        ("ok", "provider sim"),
        ("ok", "provider static"),
        ("ok", "sim and static have no machine in common"),
    ]
    both.cloud.fault(action="status", status=401)
    _, out, _ = await ask("doctor", "--output=json", *flags)
    refused = [each["said"] for each in json.loads(out)["checks"] if each["check"] == "credentials"]
    assert any(each.startswith("cloud sim refuses: sign in") for each in refused), refused
    assert any(each.startswith("provider static: the cloud accepts") for each in refused), refused
    _, out, _ = await ask("plan", "--output=json", *flags)
    planned = {each["name"]: (each["action"], each["cloud"], each["reason"]) for each in json.loads(out)["outlooks"]}
    assert planned["virtual-0"] == ("unknown", "sim", "CloudNotAvailable") and "metal-0" not in planned
    both.cloud.clear_faults()

# SPDX-License-Identifier: Apache-2.0
"""Ten faults: what `ccm explain`, `doctor`, `plan` and the status page say about each, and that its fix works.

docs/how-to/answers.md has the table of the faults, and its quotes must be in the commands' output. The commands run as
a user with only the rights that answers.md lists, and change nothing: the API server's audit log and the cloud's
journal prove it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from ccm.engine.kubeconfig import from_kubeconfig
from ccm_simcloud.config import Limits
from ccm_simcloud.model import InstancePatch
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import CLUSTER_CIDR, DEADLINE, NODES, SERVICES, ask, event_messages, eventually, node_body, set_ready

pytestmark = pytest.mark.timeout(600)

PAGE = Path(__file__).parents[3] / "docs/how-to/answers.md"
ON_CALL = "on-call"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Yield an API server for this file alone, with an audit log."""
    server = ApiServer(tmp_path_factory.mktemp("audited"), audit=True)
    yield server
    server.close()


@pytest.fixture
async def reader(apiserver: ApiServer, kube: KubeClient) -> AsyncIterator[Path]:
    """Yield the kubeconfig of a user with the rights that the page lists."""
    (text,) = re.findall(r"```yaml\n(kind: ClusterRole\n.*?)```", PAGE.read_text(), re.DOTALL)
    name = {"metadata": {"name": ON_CALL}}
    group = "rbac.authorization.k8s.io"
    await kube.create(f"{RBAC}/clusterroles", yaml.safe_load(text) | name | {"apiVersion": f"{group}/v1"})
    binding = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ON_CALL},
        "subjects": [{"kind": "User", "apiGroup": group, "name": ON_CALL}],
    }
    await kube.create(f"{RBAC}/clusterrolebindings", name | binding)
    yield apiserver.kubeconfig(ON_CALL, ())
    for kind in ("clusterrolebindings", "clusterroles"):
        await kube.delete(f"{RBAC}/{kind}/{ON_CALL}")


@dataclass
class Scene:
    """A cluster, its cloud, and what a fault needs. `flags`: flags of the controller and of the commands."""

    kube: KubeClient
    cloud: Simulator
    start_ccm: StartCcm
    apiserver: ApiServer
    conf: Path
    kubeconfig: Path
    flags: dict[str, str] = field(default_factory=dict)
    #: What `ccm explain` is asked about.
    about: tuple[str, str] = ("node", "worker-1")

    async def node(self, name: str = "worker-1", **more: Any) -> None:
        await self.kube.create(NODES, node_body(name, **more))
        await set_ready(self.kube, name, "True")

    def instance(self, name: str = "worker-1", number: int = 1, **more: Any) -> Any:
        address = {"type": "InternalIP", "address": f"10.0.0.{number}"}
        return self.cloud.add_instance(name, addresses=[address], **more)

    async def service(self) -> None:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await self.kube.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
        self.about = ("service", "default/web")

    async def run_controller(self, until: Callable[[], Awaitable[Any]] | None = None) -> None:
        """Run the controller until `until` is true, by default until nothing is left to do."""
        ccm = self.start_ccm(conf=self.conf.read_text(), **self.flags)
        await ccm.until_logged("leading; controllers")
        await eventually(until or self.nothing_is_left)
        await ccm.stop()

    async def page(self, quotes: list[str]) -> str:
        """Return the status page of a controller that runs during the fault, as soon as the page has these words, or as
        it is after DEADLINE.

        If the controller ends by itself, return its log instead.
        """
        ccm = self.start_ccm(conf=self.conf.read_text(), **self.flags)
        await ccm.until_logged("outoftree-ccm")
        shown = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE):
                while not all(text in shown for text in quotes):
                    with contextlib.suppress(OSError):  # the process does not serve yet
                        _, shown = await ccm.get("/statusz?format=text", self.apiserver.token)
                    if ccm.process.poll() is not None:
                        shown = ccm.text
                        break
                    await asyncio.sleep(0.2)
        await ccm.stop()
        return shown

    async def nothing_is_left(self) -> bool:
        return (await self.run("plan"))[0] == 0

    async def run(self, *command: str) -> tuple[int, str, str]:
        """Run a command as the user on call, with the controller's flags."""
        flags = {
            "cloud-provider": "sim",
            "cloud-config": self.conf,
            "kubeconfig": self.kubeconfig,
            "cluster-cidr": CLUSTER_CIDR,
        } | self.flags
        return await ask(*command, *(f"--{name}={value}" for name, value in flags.items()))

    async def answers(self) -> dict[str, str]:
        """Return the output of each command. Check that nothing but logins is written to the cloud meanwhile."""
        before = len(self.cloud.journal(writes=True))
        said = {}
        for name, command in {"explain": ("explain", *self.about), "doctor": ("doctor",), "plan": ("plan",)}.items():
            status, out, err = await self.run(*command)
            assert err == "", err
            said[name] = f"{out}exit status {status}"
        only = (f"--cloud-config={self.conf}", f"--kubeconfig={self.kubeconfig}")
        assert (await ask("nodes", "--cloud-provider=sim", *only))[0] in (0, 1)
        written = self.cloud.journal(writes=True)[before:]
        assert {each.operation for each in written} <= {"tokens.create"}  # the login of a client
        return said


@pytest.fixture
async def scene(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, reader: Path, tmp_path: Path
) -> AsyncIterator[Scene]:
    conf = tmp_path / "on-call.conf"
    conf.write_text(cloud.conf(request_timeout=60))
    yield Scene(kube, cloud, start_ccm, apiserver, conf, reader)


Fix = Callable[[], Awaitable[None]]


async def no_instance(scene: Scene) -> Fix:
    await scene.node()
    machine = scene.instance("worker-01")

    async def fix() -> None:
        scene.cloud.project().change_instance(machine.id, InstancePatch(name="worker-1"))

    return fix


async def two_of_one_name(scene: Scene) -> Fix:
    await scene.node()
    machines = [scene.instance(number=number) for number in (1, 2)]

    async def fix() -> None:
        scene.cloud.project().change_instance(machines[1].id, InstancePatch(name="worker-2"))

    return fix


async def wrong_zone_label(scene: Scene) -> Fix:
    machine = scene.instance(zone="north-a")
    await scene.node()
    await scene.run_controller()
    scene.cloud.project().change_instance(machine.id, InstancePatch(zone="north-b"))

    async def fix() -> None:
        scene.flags["refresh-node-labels"] = "true"

    return fix


async def foreign_provider_id(scene: Scene) -> Fix:
    scene.instance()
    await scene.node(providerID="k3s://worker-1")

    async def fix() -> None:
        await scene.kube.delete(f"{NODES}/worker-1")
        await scene.node()

    return fix


async def quota(scene: Scene) -> Fix:
    scene.instance()
    await scene.node()
    world = scene.cloud.server.world
    world.limits = Limits(load_balancers=0)
    await scene.service()
    await scene.run_controller(lambda: event_messages(scene.kube, "SyncLoadBalancerFailed", "web"))

    async def fix() -> None:
        world.limits = Limits()

    return fix


async def wrong_credentials(scene: Scene) -> Fix:
    scene.instance()
    await scene.node()
    scene.cloud.rotate_token("tomorrows-token")

    async def fix() -> None:
        text = scene.conf.read_text()
        scene.conf.write_text(text.replace("demo-token", "tomorrows-token"))

    return fix


async def cloud_away(scene: Scene) -> Fix:
    scene.instance()
    await scene.node()
    scene.cloud.fault(action="hang_up")

    async def fix() -> None:
        scene.cloud.clear_faults()

    return fix


async def throttled(scene: Scene) -> Fix:
    scene.instance()
    await scene.node()
    listings = {"operation": "instances.*"}
    scene.cloud.fault(action="rate_limit", per_second=0.001, burst=1, retry_after=20, match=listings)
    await scene.run("plan")  # another client's call

    async def fix() -> None:
        scene.cloud.clear_faults()

    return fix


async def half_made_load_balancer(scene: Scene) -> Fix:
    scene.instance()
    await scene.node()
    await scene.service()
    await scene.run_controller()
    (balancer,) = scene.cloud.project().load_balancers.rows
    scene.cloud.project().break_load_balancer(balancer, "no capacity in zone north-a")

    async def fix() -> None:
        """Do nothing: the controller itself replaces the load balancer."""

    return fix


async def another_controller(scene: Scene) -> Fix:
    machine = scene.instance()
    await scene.node()
    name = "openstack-cloud-controller-manager"
    container = {"name": "c", "image": f"registry.k8s.io/provider-os/{name}:v1.33.0"}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    daemon_sets = "/apis/apps/v1/namespaces/kube-system/daemonsets"
    await scene.kube.create(daemon_sets, {"metadata": {"name": name}, "spec": spec})
    access: Access = from_kubeconfig(scene.apiserver.kubeconfig())
    other = KubeClient(access, user_agent=f"{name}/v1.33.0")

    async def written_by_both() -> bool:
        node = f"{NODES}/worker-1"
        wrong = [{"type": "InternalIP", "address": "192.0.2.9"}]
        await asyncio.sleep(2)  # times of managedFields are whole seconds
        await other.patch(f"{node}/status", {"status": {"addresses": wrong}})
        return True

    ccm = scene.start_ccm(conf=scene.conf.read_text())
    await ccm.until_logged("leading; controllers")
    await eventually(scene.nothing_is_left)
    await written_by_both()
    await other.close()
    assert machine

    async def fix() -> None:
        await scene.kube.delete(f"{daemon_sets}/{name}")
        await ccm.stop()

    return fix


FAULTS: dict[str, Callable[[Scene], Awaitable[Fix]]] = {
    "no instance": no_instance,
    "two instances of one name": two_of_one_name,
    "wrong zone label": wrong_zone_label,
    "foreign providerID": foreign_provider_id,
    "quota": quota,
    "wrong credentials": wrong_credentials,
    "cloud away": cloud_away,
    "throttled": throttled,
    "half-made load balancer": half_made_load_balancer,
    "another controller": another_controller,
}


def rows() -> dict[str, dict[str, list[str]]]:
    """Return the page's table: by fault and command, what the page quotes of the command's output."""
    found: dict[str, dict[str, list[str]]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        fault = cells[0][:1].lower() + cells[0][1:]
        if len(cells) == 6 and fault in FAULTS:
            columns = zip(("explain", "doctor", "plan", "page"), cells[1:5], strict=True)
            found[fault] = {name: re.findall(r"`([^`]+)`", cell) for name, cell in columns}
    return found


def test_the_page_has_every_fault():
    assert list(rows()) == list(FAULTS)
    assert all(quotes for row in rows().values() for quotes in row.values())


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_the_commands_say_of_a_fault(fault: str, scene: Scene):
    fix = await FAULTS[fault](scene)
    said = await scene.answers()
    said["page"] = await scene.page(rows()[fault]["page"])
    for name, output in said.items():
        print(f"--- {name}\n{output}\n")
    missing = {(name, text) for name, quotes in rows()[fault].items() for text in quotes if text not in said[name]}
    assert missing == set()
    signed_in = fault not in ("wrong credentials", "cloud away")
    assert ("\nquotas " in said["doctor"]) is signed_in
    await fix()
    await scene.run_controller()
    requests = scene.apiserver.audited(ON_CALL)
    assert requests and {(each["verb"], each["objectRef"]["resource"]) for each in requests if "objectRef" in each} <= {
        *(("get", resource) for resource in ("nodes", "services", "configmaps", "leases")),
        *(("list", resource) for resource in ("nodes", "services", "pods", "events", "leases", "daemonsets")),
        *(("list", resource) for resource in ("deployments", "certificatesigningrequests")),
        *(("create", f"{kind}subjectaccessreviews") for kind in ("", "self")),
    }
    assert all(each["verb"] == "get" for each in requests if "objectRef" not in each)  # /version
    assert {each["responseStatus"]["code"] for each in requests} <= {200, 201, 404}  # 404: nobody has ever led


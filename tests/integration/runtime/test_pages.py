# SPDX-License-Identifier: Apache-2.0
"""The commands of pages for operators run as they are written."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tests.listening import listening
from tools.docs.commands import ROOT, command, commands

from ..cluster import ApiServer
from ..shell import shell
from .conftest import StartCcm
from .support import NODES, SERVICES, event_messages, eventually, get_service, initialised, node_body, set_ready

TROUBLESHOOTING = "docs/how-to/troubleshooting.md"
PODS = "/api/v1/namespaces/kube-system/pods"
POD = "cloud-controller-manager-x7k2p"
#: The path of cloud.conf on the pages, which a test replaces.
CLOUD_CONF = "/etc/ccm/cloud/cloud.conf"


@pytest.fixture
async def kubelet(apiserver: ApiServer, kube: KubeClient, tmp_path: Path) -> AsyncIterator[Callable[[str], None]]:
    """Run the part of a control plane's kubelet that `kubectl logs` needs, with one Pod of the controller. Yield a
    function that sets the Pod's log."""
    certificate, key = apiserver.authority.issue("kubelet", hosts=["127.0.0.1"])
    (tmp_path / "kubelet.crt").write_bytes(certificate)
    (tmp_path / "kubelet.key").write_bytes(key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "kubelet.crt", tmp_path / "kubelet.key")
    log = ""

    async def answer(request: web.Request) -> web.Response:
        lines = log.splitlines(keepends=True)[-int(request.query["tailLines"]) :]
        return web.Response(text="".join(lines))

    def write(text: str) -> None:
        nonlocal log
        log = text

    async with listening(web.get(f"/containerLogs/kube-system/{POD}/ccm", answer), tls=context) as url:
        await kube.create(NODES, node_body("cp-1", tainted=False))
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        endpoint = {"kubeletEndpoint": {"Port": URL(url).port}}
        await kube.patch(f"{NODES}/cp-1/status", {"status": {"addresses": addresses, "daemonEndpoints": endpoint}})
        await set_ready(kube, "cp-1", "True")
        labels = {"app.kubernetes.io/name": "cloud-controller-manager"}
        container = {"name": "ccm", "image": "localhost/outoftree-ccm:0.1.0"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD, "labels": labels}}
        # No kubelet stops the Pod: without a grace period, the deletion is complete when the call returns.
        spec = {"nodeName": "cp-1", "terminationGracePeriodSeconds": 0, "containers": [container]}
        await kube.create(PODS, body | {"spec": spec})
        yield write
        await kube.delete(f"{PODS}/{POD}")


async def web_is_served(kube: KubeClient) -> None:
    """Create a Service named web as on the pages, and wait for its load balancer."""
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}
    await kube.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})

    async def has_address() -> bool:
        return bool((await get_service(kube, "web")).status.load_balancer.ingress)

    await eventually(has_address)


async def test_where_to_look_first(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, kubelet: Callable[[str], None],
    tmp_path: Path,
):  # fmt: skip
    cloud.add_instance("worker-1", addresses=[{"type": "InternalIP", "address": "10.0.0.7"}])
    await kube.create(NODES, node_body("worker-1", number=1))
    leader = start_ccm()
    await leader.leading()
    await eventually(lambda: initialised(kube, "worker-1"))
    await web_is_served(kube)
    await eventually(lambda: event_messages(kube, "EnsuredLoadBalancer", "web"))
    await eventually(lambda: event_messages(kube, "Synced", "worker-1"))
    kubelet(leader.text)
    said = {
        # `ccm explain` exits with 1 where something is left to do, as for a Node that is not Ready.
        shown: await shell(f"{shown} || test $? = 1" if "ccm explain" in shown else shown, tmp_path, apiserver)
        for shown in commands(TROUBLESHOOTING)
        if not shown.startswith("ansible-playbook")  # tests/packaging/test_installed.py
    }
    lease, logs, node, service, explained = said.values()
    assert "holderIdentity: " in lease and "ccm.outoftree.dev/last-cloud-success" in lease
    assert "leading; controllers" in logs
    assert "Synced" in node and "sim://north/" in node
    assert "EnsuredLoadBalancer" in service
    assert explained.startswith("Node worker-1: ") and "provider sim" in explained


async def test_the_two_commands_for_nodes(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path
):
    page = "docs/reference/nodes.md"
    cloud.add_instance("cp-1")
    bodies = [node_body("cp-1"), node_body("worker-2", tainted=False, providerID="k3s://worker-2")]
    for body in [*bodies, node_body("worker-3")]:
        await kube.create(NODES, body)
    await start_ccm().leading()
    await eventually(lambda: event_messages(kube, "InstanceNotFound", "worker-3"))
    explained = await shell(f"{command(page, 'ccm explain node')} || test $? = 1", tmp_path, apiserver)
    assert "It waits for its initialisation" in explained
    assert "the cloud lists no instance named 'worker-3'" in explained
    (tmp_path / "cloud.conf").write_text(cloud.conf())
    nodes = command(page, "ccm nodes")
    assert CLOUD_CONF in nodes
    rows = (await shell(nodes.replace(CLOUD_CONF, "cloud.conf"), tmp_path, apiserver)).splitlines()
    assert rows[0].split() == ["NODE", "VERDICT", "INSTANCE", "REASON"]
    assert [row.split()[:2] for row in rows[1:]] == [
        ["cp-1", "ok"],
        ["worker-2", "foreign"],
        ["worker-3", "mismatched"],
    ]


async def test_a_comparison_that_a_person_asks_for(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path
):
    """The provider `sim` cannot compare, so the controller ensures the load balancer again, as the page says."""
    await start_ccm().leading()
    await web_is_served(kube)
    cloud.server.journal.clear()
    said = await shell(command("docs/reference/services-and-routes.md", "kubectl annotate"), tmp_path, apiserver)
    assert "service/web annotated" in said

    async def asked() -> bool:
        return cloud.calls("load_balancers.*") > 0

    await eventually(asked)


async def test_the_simulated_cloud_from_its_page(tmp_path: Path):
    """The commands run with a network and a /var/lib of their own, so that ports and paths are those of the page."""
    page = "docs/providers/sim.md"
    alone, kept, *calls = commands(page)
    assert alone == "ccm sim" and kept.startswith("ccm sim ") and calls[0].startswith("api=")
    text = (ROOT / page).read_text()
    (tmp_path / "cloud.yaml").write_text(text.partition("```yaml\n")[2].partition("```\n")[0])
    (tmp_path / "var").mkdir()
    up = "until curl -sf http://127.0.0.1:9440/healthz > healthz; do kill -0 $! || { cat *.log; exit 1; }; done\n"
    script = "ip link set lo up\nmount --bind var /var/lib\ntrap 'kill $(jobs -p)' EXIT\n"
    script += f"{alone} > alone.log 2>&1 &\n{up}kill $!; wait $! || true\n"
    script += f"{kept} > kept.log 2>&1 &\n{up}" + "\n".join(f"{call}\necho" for call in calls)
    inside = tmp_path / "script"
    inside.write_text(f"set -euo pipefail\n{script}")
    said = await shell(f"unshare --mount --net bash {inside}", tmp_path)
    answers = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert answers and not [answer for answer in answers if "error" in answer], said
    renamed, made = answers[0], answers[1]
    assert (renamed["name"], renamed["state"], made["name"]) == ("worker-renamed", "stopped", "worker-1")
    assert renamed["id"] != made["id"]
    rules = sum(call.startswith("fault '") for call in calls)
    (listed,) = [answer["rules"] for answer in answers if "rules" in answer]
    assert len(listed) == rules


async def test_the_answers_of_the_page(
    apiserver: ApiServer, kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path
):
    """The commands of docs/how-to/answers.md run as the page shows them, on a laptop."""
    page = "docs/how-to/answers.md"
    cloud.add_instance("worker-1", addresses=[{"type": "InternalIP", "address": "10.0.0.7"}])
    await kube.create(NODES, node_body("worker-1", number=1))
    (tmp_path / "cloud.conf").write_text(cloud.conf())
    shown = [each for each in commands(page) if not each.startswith("kubectl -n")]
    alone, asked, checked, planned = [await shell(f"{each} || test $? = 1", tmp_path, apiserver) for each in shown]
    assert "LOOKED UP" not in alone and "named 'worker-1', running" in asked
    assert "the cloud accepts the credentials" in checked and "spec.providerID: none -> sim://north/" in planned

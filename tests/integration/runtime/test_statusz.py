# SPDX-License-Identifier: Apache-2.0
"""`/statusz` and `ccm status` of real processes: a leader, a standby, faults, and markup in names and messages."""

from __future__ import annotations

import json
from typing import Any

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tools.docs.commands import commands

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import NODES, SERVICES, Ccm, ask, documented, eventually, node_body, set_ready
from .test_lifecycle import delete_instance

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def service_body(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
    }


async def status(ccm: Ccm, token: str) -> dict[str, Any]:
    answered, text = await ccm.get("/statusz?format=json", token)
    assert answered == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


async def test_the_page_of_a_leader_and_of_a_standby(
    start_ccm: StartCcm, kube: KubeClient, cloud: Simulator, admin_token: str
):
    cloud.add_instance("worker")
    await kube.create(NODES, node_body("worker"))
    await kube.create(NODES, node_body("stranger"))
    await kube.create(SERVICES, service_body("web"))
    leader = start_ccm()
    await leader.leading()
    standby = start_ccm()

    async def seen() -> bool:
        found = await status(leader, admin_token)
        counts = {each["state"]: each["objects"] for each in found["nodes"] + found["services"]}
        return counts["has an address"] == 1 and counts["waits for initialisation"] == 1 and bool(found["unfinished"])

    await eventually(seen)
    found = await status(leader, admin_token)
    assert found["process"]["role"] == "leader"
    assert found["process"]["controllers"] == ["cloud-node", "cloud-node-lifecycle", "route", "service"]
    (stuck,) = found["unfinished"]
    assert (stuck["kind"], stuck["name"], stuck["state"]) == ("Node", "stranger", "failing")
    assert "stranger" in stuck["reason"] and stuck["tries"] >= 1
    assert {each["operation"] for each in found["clouds"][0]["calls"]} >= {"instances.list", "load_balancers.ensure"}
    assert {each["name"] for each in found["queues"]} == {"Nodes", "service"}
    page = (await leader.get("/statusz", admin_token))[1]
    assert page.startswith("<!DOCTYPE html>") and "stranger" in page and "<script" not in page

    async def follows() -> bool:
        return bool((await status(standby, admin_token))["process"]["leader"])

    await standby.until_logged("the cloud accepts the credentials")
    await eventually(follows)
    idle = await status(standby, admin_token)
    assert idle["process"]["role"] == "standby" and idle["process"]["leader"] == found["process"]["identity"]
    assert idle["process"]["controllers"] == [] and idle["queues"] == []
    assert f"{found['process']['identity']} leads" in (await standby.get("/statusz?format=text", admin_token))[1]


async def test_only_those_who_may_read_it(start_ccm: StartCcm, admin_token: str):
    ccm = start_ccm()
    await ccm.leading()
    assert (await ccm.get("/statusz"))[0] == 403
    assert (await ccm.get("/statusz", "invented"))[0] == 401
    assert (await ccm.get("/statusz?format=yaml", admin_token))[0] == 400


async def test_what_strangers_write_is_shown_as_text(
    start_ccm: StartCcm, kube: KubeClient, cloud: Simulator, admin_token: str
):
    """A user who may write a Node's providerID cannot put markup or control characters on the page."""
    await kube.create(NODES, node_body("evil", providerID=f"sim://north/{MARKUP}"))
    await kube.create(NODES, node_body("worse", providerID="sim://north/\x1b[31mred"))
    ccm = start_ccm()
    await ccm.leading()

    async def both() -> bool:
        return len((await status(ccm, admin_token))["unfinished"]) == 2

    await eventually(both)
    assert MARKUP in str((await status(ccm, admin_token))["unfinished"])
    page = (await ccm.get("/statusz", admin_token))[1]
    assert "<script>alert" not in page and "<img" not in page and "&lt;script&gt;alert(1)" in page
    for shown in (page, (await ccm.get("/statusz?format=text", admin_token))[1]):
        assert "\x1b" not in shown and "x1b[31mred" in shown


async def test_a_held_deletion_names_its_rule(
    start_ccm: StartCcm, kube: KubeClient, cloud: Simulator, admin_token: str
):
    gone = cloud.add_instance("gone")
    await kube.create(NODES, node_body("gone", tainted=False, providerID=f"sim://north/{gone.id}"))
    await set_ready(kube, "gone", "Unknown")
    ccm = start_ccm(node_monitor_period="1s")
    await ccm.leading()
    delete_instance(cloud, "gone")

    async def held() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await status(ccm, admin_token))["held"]
        return found

    (shown,) = await eventually(held)
    assert (shown["kind"], shown["name"]) == ("Node", "gone") and shown["message"]
    assert shown["rule"] in ("Unconfirmed", "TooYoung")
    await set_ready(kube, "gone", "True")

    async def released() -> bool:
        return (await status(ccm, admin_token))["heldInAll"] == 0

    await eventually(released)


async def test_the_command_prints_the_page_of_a_url(
    start_ccm: StartCcm, kube: KubeClient, cloud: Simulator, apiserver: ApiServer, admin_token: str
):
    """The command sends the kubeconfig's credentials; for this machine, it does not verify the certificate."""
    cloud.add_instance("worker")
    await kube.create(NODES, node_body("worker"))
    ccm = start_ccm()
    await ccm.leading()

    async def quiet() -> bool:
        found = await status(ccm, admin_token)
        return not found["process"]["problems"] and {"state": "ready", "objects": 0} in found["nodes"]

    await eventually(quiet)
    url, mine = f"--url=https://127.0.0.1:{ccm.port}", f"--kubeconfig={apiserver.kubeconfig()}"
    # The page's own command.
    _, shown, *_ = commands("docs/how-to/status.md")
    assert shown == "ccm status --url=https://127.0.0.1:10258"
    program, *arguments = shown.replace("10258", str(ccm.port)).split()
    answered, out, err = await ask(*arguments, mine)
    assert (program, answered, err) == ("ccm", 0, ""), out
    assert "leads: it holds the Lease kube-system/cloud-controller-manager" in out and "CLOUD CALLS" in out
    answered, out, _ = await ask("status", url, mine, "--output=json")
    found = json.loads(out)
    documented(found)
    assert (answered, found["answer"], found["unasked"]) == (0, "status", [])
    assert found["processes"][0]["process"]["role"] == "leader"
    answered, out, err = await ask("status", url, f"--kubeconfig={apiserver.kubeconfig('nobody', ())}")
    assert (answered, out) == (2, "") and "403" in err
    await ccm.stop()
    answered, out, err = await ask("status", url, mine)
    assert (answered, out) == (2, "") and f"127.0.0.1:{ccm.port}" in err and "Traceback" not in err

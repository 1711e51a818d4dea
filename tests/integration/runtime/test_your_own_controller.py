# SPDX-License-Identifier: Apache-2.0
"""Controllers of other packages in a real process: the example, installed as users install it, and broken ones."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tools.docs.commands import command

from ..cluster import ApiServer
from ..shell import shell
from .support import SERVICES, Ccm, eventually

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "runtime/examples/ccm-controller-acme"
PAGE = (ROOT / "docs/how-to/your-own-controller.md").read_text()
NAME = "idle-load-balancer-controller"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
CONFIG = """apiVersion: cloudcontrollermanager.config.k8s.io/v1alpha1
kind: CloudControllerManagerConfiguration
OutOfTree:
  controllers:
    idle-load-balancer-controller:
      patience: {patience}
"""

StartCcm = Callable[..., Ccm]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed example, a package that cannot be imported, and one with a built-in's name."""
    folder = tmp_path_factory.mktemp("packages")
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(EXAMPLE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    for name, point in (("broken", "broken-controller = nowhere:SPEC"), ("taken", "service-lb-controller = mine:SPEC")):
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[ccm.controllers]\n{point}\n")
    return folder


@pytest.fixture
def installed(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(packages))


def config(tmp_path: Path, patience: object) -> str:
    path = tmp_path / "ccm.yaml"
    path.write_text(CONFIG.format(patience=patience))
    return str(path)


class Event(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    involved_object: dict[str, Any] = {}


async def reported(kube: KubeClient) -> list[str]:
    """Return the names of the Services that the example reported."""
    found, _ = await kube.list("/api/v1/namespaces/default/events", Event)
    return [event.involved_object["name"] for event in found if event.reason == "IdleLoadBalancer"]


async def make_service(kube: KubeClient, name: str) -> None:
    ports = [{"name": "http", "port": 80}]
    spec = {"type": "LoadBalancer", "ports": ports, "selector": {"app": name}}
    await kube.create(SERVICES, {"metadata": {"name": name}, "spec": spec})


async def make_slice(kube: KubeClient, service: str) -> None:
    labels = {"kubernetes.io/service-name": service}
    endpoints = [{"addresses": ["10.244.0.9"], "conditions": {"ready": True}}]
    body = {"metadata": {"name": f"{service}-x", "labels": labels}, "addressType": "IPv4", "endpoints": endpoints}
    await kube.create(SLICES, body | {"ports": [{"name": "http", "port": 8080}]})


@pytest.mark.usefixtures("installed")
async def test_the_example_works_and_what_is_broken_is_named(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path, admin_token: str
):
    leader = start_ccm(controllers=f"*,{NAME},broken-controller", config=config(tmp_path, 1))
    await leader.leading()
    assert re.search(
        r"ERROR .*broken-controller is not started: .*broken 1\.0 \(nowhere:SPEC\) cannot be imported", leader.text
    )
    assert "controller 'service-lb-controller' of taken 1.0 (mine:SPEC) is not used" in leader.text
    await make_slice(kube, "busy")
    await make_service(kube, "busy")
    await make_service(kube, "idle")

    async def idle_is_reported() -> bool:
        return bool(await reported(kube))

    await eventually(idle_is_reported, what="an Event on the Service idle")
    await asyncio.sleep(1.5)
    assert await reported(kube) == ["idle"]

    async def is_counted() -> str:
        _, text = await leader.get("/metrics", admin_token)
        return text if "acme_idle_load_balancers 1.0" in text else ""

    metrics = await eventually(is_counted)
    await kube.delete(f"{SLICES}/busy-x")
    assert re.search(r'running_managed_controllers\{.*name="idle-load-balancer".*\} 1\.0', metrics)
    assert 'running_managed_controllers{manager="cloud-controller-manager",name="service"} 1.0' in metrics


@pytest.mark.usefixtures("installed")
async def test_a_standby_keeps_its_cache_warm(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm, tmp_path: Path, admin_token: str
):
    """A new leader must not report idle load balancers because its cache is empty."""
    await make_slice(kube, "warm")
    given: dict[str, Any] = {"controllers": f"*,{NAME}", "config": config(tmp_path, 0)}
    leader = start_ccm(**given)
    await leader.leading()
    standby = start_ccm(**given)
    await standby.until_logged("the cloud accepts the credentials")  # by then it serves

    async def is_ready() -> bool:
        return (await standby.get("/readyz/informers", admin_token))[0] == 200

    await eventually(is_ready)
    _, metrics = await standby.get("/metrics", admin_token)
    assert re.search(r'ccm_cached_objects\{name="endpointslices"\} [1-9]', metrics)
    await kube.delete(f"{SLICES}/warm-x")
    assert "leading; controllers" not in standby.text


@pytest.mark.usefixtures("installed")
async def test_wrong_options_of_it_are_refused_with_their_line(cloud: Simulator, start_ccm: StartCcm, tmp_path: Path):
    process = start_ccm(controllers=f"*,{NAME}", config=config(tmp_path, "soon\n      patients: 3"))
    assert await process.wait() != 0
    place = f"OutOfTree.controllers.{NAME}"
    assert f"line 6: {place}.patience: Expected `float`, got `str`" in process.text
    assert f"line 7: {place}.patients: unknown key; did you mean patience?" in process.text


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


def test_what_the_page_shows_stands_in_the_example() -> None:
    there = "\n".join((EXAMPLE / name).read_text() for name in ("acme_idle_load_balancers.py", "pyproject.toml"))
    assert blocks("python") and blocks("toml")
    for shown in [*blocks("python"), *blocks("toml")]:
        assert shown in there, shown
    (shown,) = blocks("yaml")
    assert shown == CONFIG.format(patience=600)


@pytest.mark.usefixtures("installed")
async def test_the_command_of_its_readme(
    apiserver: ApiServer, cloud: Simulator, kube: KubeClient, tmp_path: Path
) -> None:
    (tmp_path / "sim.conf").write_text(cloud.conf())
    start = command("runtime/examples/ccm-controller-acme/README.md", "ccm --cloud-provider=sim")
    led = "grep 'leading; controllers' ccm.log"
    wait = f"until {led}; do kill -0 $! || {{ cat ccm.log; exit 1; }}; sleep 0.1; done"
    script = f"{start} --secure-port=0 > ccm.log 2>&1 &\n{wait}\nkill $!"
    assert NAME in await shell(script, tmp_path, apiserver)


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    script = "set -euo pipefail\n" + "\n".join(blocks("sh"))
    run = subprocess.run(
        ["bash", "-c", f"cp -r {ROOT / 'runtime'} . && {script}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for shown in blocks("text"):
        assert shown.strip() in run.stdout, run.stdout

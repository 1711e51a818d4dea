# SPDX-License-Identifier: Apache-2.0
"""What commands that answer questions, such as `ccm explain`, print when they cannot answer, and the form of their
JSON.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from ccm.commands.asking.explanation import Explanation
from ccm.commands.doctor.diagnosis import Diagnosis
from ccm.commands.list_nodes import Match
from ccm.commands.plan import PlanAnswer
from ccm.engine.client import KubeClient
from ccm_simcloud.model import VolumeBody
from ccm_simcloud.testing import Simulator
from tests.ports import free_port

from ..cluster import ApiServer
from .support import CLUSTER_CIDR, NODES, SERVICES, VOLUMES, ask, documented, node_body
from .test_volumes import volume_body


@pytest.fixture
def conf(cloud: Simulator, kube: KubeClient, tmp_path: Path) -> Path:
    path = tmp_path / "cloud.conf"
    path.write_text(cloud.conf(request_timeout=60))
    return path


def flags(conf: Path, kubeconfig: Path) -> list[str]:
    return [
        "--cloud-provider=sim",
        f"--cloud-config={conf}",
        f"--kubeconfig={kubeconfig}",
        f"--cluster-cidr={CLUSTER_CIDR}",
    ]


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (("node", "worker-l"), "Node 'worker-l' does not exist: similar names: worker-1"),
        (("service", "default/wep"), "Service 'default/wep' does not exist: similar names: default/web"),
        (("svc", "wep"), "Service 'default/wep' does not exist: similar names: default/web"),
        (("pv", "disc"), "PersistentVolume 'disc' does not exist: similar names: disk"),
        (("node", "../services/x"), "Node '../services/x' does not exist: see kubectl get nodes"),
    ],
)
async def test_unknown_names(about: tuple[str, str], message: str, apiserver: ApiServer, kube: KubeClient):
    await kube.create(NODES, node_body("worker-1"))
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    await kube.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
    disk = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    await kube.create(VOLUMES, {"metadata": {"name": "disk"}, "spec": disk})
    assert await ask("explain", *about, f"--kubeconfig={apiserver.kubeconfig()}") == (2, "", f"ccm: {message}\n")


@pytest.mark.parametrize("command", ["plan", "doctor", "explain node worker-1"])
async def test_without_rights_each_missing_one_is_named(
    command: str, apiserver: ApiServer, kube: KubeClient, conf: Path
):
    await kube.create(NODES, node_body("worker-1"))
    nobody = apiserver.kubeconfig("nobody", ())
    status, out, err = await ask(*command.split(), *flags(conf, nobody))
    assert status == 2
    for resource in {"plan": ["nodes", "services"], "doctor": ["nodes", "pods", "daemonsets"]}.get(command, ["nodes"]):
        verb = "get" if command.startswith("explain") else "list"
        assert f'User "nobody" cannot {verb} resource "{resource}"' in out + err


async def test_ccm_nodes_without_rights_names_the_missing_one(apiserver: ApiServer, conf: Path):
    status, out, err = await ask("nodes", *flags(conf, apiserver.kubeconfig("nobody", ()))[:3])
    assert (status, out) == (1, "")
    assert 'User "nobody" cannot list resource "nodes"' in err and err.count("\n") == 1


async def test_an_api_server_that_does_not_answer(apiserver: ApiServer, conf: Path):
    away = apiserver.kubeconfig("away", (), server=f"https://127.0.0.1:{free_port()}")
    for command in (["plan"], ["doctor"], ["explain", "node", "worker-1"]):
        status, out, err = await ask(*command, *flags(conf, away))
        assert (status, out) == (2, "")
        assert "does not answer" in err and "Check --kubeconfig and the network" in err and err.count("\n") == 1


@pytest.mark.parametrize("fault", ["timeout", "hang_up", "truncate"])
async def test_a_cloud_that_does_not_answer(
    fault: str, apiserver: ApiServer, kube: KubeClient, cloud: Simulator, conf: Path
):
    await kube.create(NODES, node_body("worker-1"))
    # No call is answered, so none needs longer.
    await asyncio.to_thread(conf.write_text, cloud.conf(request_timeout=0.3))
    cloud.fault(action=fault)
    for command in (["plan"], ["doctor"], ["explain", "node", "worker-1"]):
        status, out, err = await ask(*command, *flags(conf, apiserver.kubeconfig()))
        assert (status, err) == (2, "") and "worker-1" in out and "unknown" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "--cloud-provider is required"),
        (["plan", "--cloud-provider=none"], "unknown cloud provider 'none'"),
        (["plan", "--cloud-provider=sim", "--cloud-config=/nowhere"], "cannot read --cloud-config /nowhere"),
        (["doctor", "--output=yaml"], "--output must be text or json, not 'yaml'"),
        (["doctor", "--service-account=ccm"], "'ccm' is not NAMESPACE/NAME"),
        (["explain", "pod", "x"], "invalid choice: 'pod'"),
        (["explain", "node", ""], "argument NAME: '' names no object"),
        (["explain", "service", "shop/"], "argument NAME: 'shop/' names no object"),
        (["explain", "node"], "the following arguments are required: NAME"),
        (["plan", "--cloud-provider=sim", "--what"], "unknown argument '--what'"),
    ],
)
async def test_flags_that_cannot_be_used(arguments: list[str], message: str, apiserver: ApiServer):
    status, out, err = await ask(*arguments, f"--kubeconfig={apiserver.kubeconfig()}")
    assert (status, out) == (2, "")
    assert message in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("plan", PlanAnswer),
        ("doctor", Diagnosis),
        ("explain node worker-1", Explanation),
        ("explain service default/web", Explanation),
        ("explain pv disk", Explanation),
        ("nodes", list[Match]),
    ],
)
async def test_json_is_as_documented(
    command: str, kind: type, apiserver: ApiServer, kube: KubeClient, cloud: Simulator, conf: Path
):
    cloud.add_instance("worker-1")
    await kube.create(NODES, node_body("worker-1", number=1))
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    await kube.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec})
    disk = cloud.project().create_volume(VolumeBody("disk", "north-b"))
    await kube.create(VOLUMES, volume_body("disk", disk.id))
    given = flags(conf, apiserver.kubeconfig())
    status, out, err = await ask(*command.split(), "--output=json", *(given[:3] if command == "nodes" else given))
    assert err == "" and status == (0 if command == "nodes" else 1), out
    answer = json.loads(out)
    documented(answer)
    assert msgspec.to_builtins(msgspec.convert(answer, kind, strict=True)) == answer


def test_the_schema_refuses_what_is_not_documented():
    with pytest.raises(jsonschema.ValidationError):
        documented({"answer": "plan", "server": 7})

# SPDX-License-Identifier: Apache-2.0
"""Each mistake leads to one message that names the thing and the fix, a non-zero exit status, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import Ccm


async def refused(process: Ccm, status: int, *parts: str) -> None:
    assert await process.wait() == status, process.text
    for part in parts:
        assert part in process.text
    assert "Traceback" not in process.text


async def test_unknown_provider(start_ccm: StartCcm):
    process = start_ccm(cloud_provider="nimbus", v="x")
    await refused(process, 2, "-v: ", "'nimbus'", "installed providers are ", "ccm.providers")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param("import vendorsdk\n", "ModuleNotFoundError: No module named 'vendorsdk'", id="lacks-its-library"),
        pytest.param("class NimbusCloud(\n", "SyntaxError: ", id="not-python"),
        pytest.param("", "AttributeError: module 'ccm_provider_nimbus' has no attribute 'NimbusCloud'", id="no-class"),
        pytest.param("raise SystemExit('bye')\n", "SystemExit: bye", id="ends-the-process"),
    ],
)
async def test_a_provider_package_that_does_not_import(
    start_ccm: StartCcm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
):
    """A process reports the reason, as does `check-provider`. The package is installed as pip does it."""
    packages = tmp_path / "site-packages"
    about = packages / "ccm_provider_nimbus-0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ccm-provider-nimbus\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[ccm.providers]\nnimbus = ccm_provider_nimbus:NimbusCloud\n")
    (packages / "ccm_provider_nimbus.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    message = f"cannot import cloud provider 'nimbus' (ccm_provider_nimbus:NimbusCloud): {reason}"
    await refused(start_ccm(cloud_provider="nimbus"), 1, message)
    await refused(Ccm(["check-provider", "nimbus"], tmp_path / "check.log", 0), 2, message)


async def test_no_provider(start_ccm: StartCcm):
    await refused(start_ccm(without=("cloud-provider",)), 2, "--cloud-provider is required", "sim")


async def test_unreadable_config(start_ccm: StartCcm, tmp_path: Path):
    missing = tmp_path / "nowhere.conf"
    await refused(start_ccm(cloud_config=missing), 1, f"cannot read --cloud-config {missing}", "No such file")


async def test_wrong_config_tells_all_problems_at_once(start_ccm: StartCcm):
    process = start_ccm(conf="endpoint: ftp://x\nproject: demo\ntoken: s3cret\ncolour: blue\n")
    await refused(process, 1, "endpoint", "colour")
    assert "s3cret" not in process.text


async def test_config_that_is_not_yaml(start_ccm: StartCcm):
    await refused(start_ccm(conf="endpoint: [unclosed"), 1, "cannot be used", "YAML")


async def test_wrong_token(start_ccm: StartCcm, cloud: Simulator):
    process = start_ccm(conf=cloud.conf(token="wr0ng-token"))
    await refused(process, 1, "the cloud rejects the credentials")
    assert "wr0ng-token" not in process.text


async def test_a_missing_right_is_named(
    start_ccm: StartCcm, apiserver: ApiServer, kube: KubeClient, cluster_role_without: object
):
    """The user has all rights that the runtime needs, except one. The error names it."""
    kubeconfig = apiserver.kubeconfig("ccm-without-delete", ())
    process = start_ccm(kubeconfig=kubeconfig)
    await refused(process, 1, "does not allow this identity to: delete nodes.", "ClusterRole")


async def test_no_rights_at_all(start_ccm: StartCcm, apiserver: ApiServer):
    process = start_ccm(kubeconfig=apiserver.kubeconfig("nobody-special", ()))
    await refused(
        process, 1, "list nodes", "watch services", "create leases.coordination.k8s.io in namespace kube-system"
    )


async def test_unreachable_api_server(start_ccm: StartCcm, apiserver: ApiServer):
    kubeconfig = apiserver.kubeconfig("far-away", ("system:masters",), server="https://127.0.0.1:9")
    process = start_ccm(kubeconfig=kubeconfig, kube_api_wait="2s")
    await refused(process, 1, "https://127.0.0.1:9", "did not answer within 2 s", "--kubeconfig")


async def test_a_kubeconfig_that_is_not_there(start_ccm: StartCcm, tmp_path: Path):
    await refused(start_ccm(kubeconfig=tmp_path / "none"), 1, str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"concurrent_node_syncs": 0}, ["--concurrent-node-syncs must be 1 or more, not 0"]),
        ({"controllers": "cloud-nodes"}, ["unknown controller 'cloud-nodes'", "cloud-node-controller (cloud-node)"]),
        ({"node_monitor_period": "5 parsecs"}, ["5 parsecs", "duration such as 10s"]),
        ({"nonsense": 1}, ["--nonsense=1"]),
        ({"cluster_cidr": "10.0.0.0/33"}, ["--cluster-cidr", "10.0.0.0/33"]),
        ({"leader_elect_renew_deadline": "10m"}, ["lease-duration > renew-deadline"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_unusable_flags(flags: dict[str, object], parts: list[str], start_ccm: StartCcm):
    await refused(start_ccm(**flags), 2, *parts)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ({"cloud_provider": "sim,sim"}, ["cloud 'sim' is named more than once in --cloud-provider"]),
        ({"cloud_provider": "sim,aws2"}, ["'aws2'", "installed providers are "]),
        ({"cloud_nodes": "metal=bm-*"}, ["Nodes bm-* are declared for 'metal'", "--cloud-provider names sim, static"]),
        ({"load_balancer_class": "a b=static"}, ["no class that a Service can have"]),
        ({"load_balancer_class": "metal=metal"}, ["names 'metal', which --cloud-provider does not name"]),
        ({"default_load_balancer_provider": "metal"}, ["names 'metal', which --cloud-provider does not name"]),
        ({"cloud_cluster_cidr": "static=10.0.0.0/8"}, ["--cloud-cluster-cidr requires --allocate-node-cidrs"]),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else "",
)
async def test_flags_that_several_clouds_cannot_have(flags: dict[str, str], parts: list[str], start_ccm: StartCcm):
    several = {"cloud_provider": "sim,static", "cloud_config": "sim=/sim.conf,static=/static.yaml"}
    await refused(start_ccm(**several | flags), 2, *parts)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ({"default_load_balancer_provider": "static"}, "--default-load-balancer-provider=static names 'static', which"),
        ({"load_balancer_class": "metal=static"}, "--load-balancer-class: metal=static names 'static', which"),
    ],
    ids=["default", "class"],
)
async def test_a_cloud_without_load_balancers_serves_no_services(
    flags: dict[str, str], part: str, start_ccm: StartCcm, cloud: Simulator, tmp_path: Path
):
    sim, static = tmp_path / "sim.conf", tmp_path / "static.yaml"
    sim.write_text(cloud.conf())
    static.write_text("cluster: cellar\nmachines: [{name: bm-1, addresses: [10.9.1.1]}]\n")
    several = {"cloud_provider": "sim,static", "cloud_config": f"sim={sim},static={static}"}
    await refused(start_ccm(**several | flags), 1, part, "has no load balancers as it is configured")


async def test_routes_without_a_cluster_cidr(start_ccm: StartCcm):
    await refused(start_ccm(without=("cluster-cidr",)), 1, "--cluster-cidr is empty", "--configure-cloud-routes=false")


async def test_a_taken_port(start_ccm: StartCcm, cloud: Simulator):
    port = int(cloud.url.rsplit(":", 1)[1])
    await refused(start_ccm(secure_port=port), 1, f"--secure-port {port}", "Free the port")

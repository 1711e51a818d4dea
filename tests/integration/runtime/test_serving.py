# SPDX-License-Identifier: Apache-2.0
"""C19 and C20 of docs/reference/parity.md, with a real API server: which paths are served, and who may read them."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from ..cluster import ApiServer
from .conftest import StartCcm
from .support import Ccm, eventually


async def as_user(apiserver: ApiServer, ccm: Ccm, folder: Path, path: str, user: str, *groups: str) -> int:
    """Return the HTTP status for a user with a client certificate of the cluster's CA."""
    cert, key = apiserver.authority.issue(user, groups)
    for name, data in (("crt", cert), ("key", key)):
        (folder / f"{user}.{name}").write_bytes(data)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(folder / f"{user}.crt", folder / f"{user}.key")
    url = f"https://127.0.0.1:{ccm.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
        await answer.read()
        return answer.status


async def test_C19_no_api_server_is_known(start_ccm: StartCcm):
    ccm = start_ccm(without=("kubeconfig",))
    assert await ccm.wait() == 1
    assert "no API server is configured" in ccm.text and "--kubeconfig" in ccm.text


async def test_C19_who_may_read_what(
    start_ccm: StartCcm, apiserver: ApiServer, admin_token: str, tmp_path: Path, kube: KubeClient
):
    ccm = start_ccm()
    await ccm.leading()

    async def ready() -> bool:
        return (await ccm.get("/readyz"))[0] == 200

    await eventually(ready)
    for path in ("/healthz", "/livez"):
        assert (await ccm.get(path))[0] == 200
    for path in ("/metrics", "/metrics/slis", "/configz", "/healthz/ping", "/nowhere"):
        assert (await ccm.get(path))[0] == 403, path
    assert (await ccm.get("/metrics", "no-such-token"))[0] == 401
    assert (await ccm.get("/metrics", admin_token))[0] == 200
    assert (await ccm.get("/healthz/ping", admin_token)) == (200, "ok")
    assert (await ccm.get("/nowhere", admin_token))[0] == 404
    # The cluster's CA comes from the ConfigMap that kube-apiserver publishes.
    assert await as_user(apiserver, ccm, tmp_path, "/metrics", "root", "system:masters") == 200
    assert await as_user(apiserver, ccm, tmp_path, "/metrics", "jane") == 403
    assert await as_user(apiserver, ccm, tmp_path, "/metrics", "scraper", "system:monitoring") == 200


async def test_C19_paths_that_are_always_allowed(start_ccm: StartCcm):
    ccm = start_ccm(authorization_always_allow_paths="/metrics")
    await ccm.leading()
    assert (await ccm.get("/metrics"))[0] == 200
    # Upstream answers 403 here. Our runtime asks the API server, whose default roles allow everybody to read /healthz.
    assert (await ccm.get("/healthz"))[0] == 200


async def test_C19_broken_authorisation(start_ccm: StartCcm, apiserver: ApiServer, admin_token: str):
    """Without a way to authorise, /healthz still answers 200, and /metrics answers an anonymous request with 500."""
    broken = apiserver.kubeconfig("elsewhere", ("system:masters",), server="https://127.0.0.1:9")
    ccm = start_ccm(authorization_kubeconfig=broken)
    await ccm.leading()
    assert (await ccm.get("/healthz"))[0] == 200
    assert (await ccm.get("/metrics", "some-token"))[0] == 401
    status, text = await ccm.get("/metrics")
    assert (status, "cannot query the API server" in text) == (500, True)


async def test_C19_broken_authentication(start_ccm: StartCcm, apiserver: ApiServer, admin_token: str, tmp_path: Path):
    """The process does not start, unless a flag tolerates the failure; then it does not know the cluster's CA."""
    broken = apiserver.kubeconfig("elsewhere", ("system:masters",), server="https://127.0.0.1:9")
    ccm = start_ccm(authentication_kubeconfig=broken)
    assert await ccm.wait() == 1
    assert "--authentication-tolerate-lookup-failure" in ccm.text and "Traceback" not in ccm.text
    ccm = start_ccm(authentication_kubeconfig=broken, authentication_tolerate_lookup_failure=True)
    await ccm.leading()
    assert (await ccm.get("/healthz"))[0] == 200
    assert (await ccm.get("/metrics", admin_token))[0] == 500
    with pytest.raises(aiohttp.ClientError):
        await as_user(apiserver, ccm, tmp_path, "/metrics", "root", "system:masters")


async def test_a_client_ca_of_ones_own(start_ccm: StartCcm, apiserver: ApiServer, tmp_path: Path):
    ccm = start_ccm(authentication_skip_lookup=True, client_ca_file=apiserver.ca_file)
    await ccm.leading()
    assert await as_user(apiserver, ccm, tmp_path, "/metrics", "root", "system:masters") == 200


async def test_C20_configz_and_a_file_made_from_it(start_ccm: StartCcm, admin_token: str, tmp_path: Path):
    ccm = start_ccm(concurrent_node_syncs=7, node_deletion_cap="5", v=0)
    await ccm.leading()
    shown = json.loads((await ccm.get("/configz", admin_token))[1])["cloudcontrollermanager.config.k8s.io"]
    assert shown["NodeController"]["ConcurrentNodeSyncs"] == 7
    assert shown["OutOfTree"]["node-deletion-cap"] == "5"
    assert admin_token not in json.dumps(shown) and "demo-token" not in json.dumps(shown)
    await ccm.stop()
    file = tmp_path / "ccm.yaml"
    file.write_text(yaml.safe_dump(shown))
    again = Ccm([f"--config={file}", "--concurrent-node-syncs=9"], tmp_path / "again.log", ccm.port)
    try:
        await again.leading()
        told = json.loads((await again.get("/configz", admin_token))[1])["cloudcontrollermanager.config.k8s.io"]
        assert told == shown | {"NodeController": {"ConcurrentNodeSyncs": 9, "ConcurrentNodeStatusUpdates": 0}}
    finally:
        await again.stop()


async def test_a_wrong_file_is_one_message(start_ccm: StartCcm, tmp_path: Path):
    file = tmp_path / "ccm.yaml"
    file.write_text("kind: CloudControllerManagerConfiguration\nGeneric:\n  Prot: 1\n  Port: x\n")
    ccm = start_ccm(config=file, concurrent_node_syncs=0)
    assert await ccm.wait() == 2
    for part in ("apiVersion: expected", "line 3: Generic.Prot: unknown key; did you mean Port?", "line 4: Generic."):
        assert part in ccm.text
    assert "--concurrent-node-syncs must be 1 or more" in ccm.text and "Traceback" not in ccm.text


#: Metrics that our runtime always has: upstream's under the same names, and some of its own (`ccm_…`).
METRICS = (
    "kubernetes_build_info",
    'kubernetes_feature_enabled{name="CloudControllerManagerWebhook",stage="ALPHA"} 0.0',
    'running_managed_controllers{manager="cloud-controller-manager",name="service"} 1.0',
    'leader_election_master_status{name="cloud-controller-manager"} 1.0',
    "leader_election_slowpath_total",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds_bucket",
    "rest_client_rate_limiter_duration_seconds",
    "rest_client_request_retries_total",
    "rest_client_request_size_bytes_bucket",
    "rest_client_response_size_bytes_bucket",
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "node_controller_initial_node_sync_delay_seconds",
    "service_controller_loadbalancer_sync_total",
    "service_controller_nodesync_error_total",
    "service_controller_nodesync_latency_seconds",
    "service_controller_update_loadbalancer_host_latency_seconds",
    "route_controller_route_sync_total",
    "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
    "cloud_node_lifecycle_controller_cloud_provider_calls_total",
    "cloud_provider_webhook_request_total",
    "cloud_provider_webhook_request_duration_seconds",
    *(f"workqueue_{name}" for name in ("depth", "adds_total", "queue_duration_seconds", "work_duration_seconds")),
    *(
        f"workqueue_{name}"
        for name in ("unfinished_work_seconds", "longest_running_processor_seconds", "retries_total")
    ),
    "process_resident_memory_bytes",
    "ccm_cloud_requests_total",
    "ccm_event_loop_lag_seconds_count",
)


async def test_metrics_are_upstreams_by_name(start_ccm: StartCcm, admin_token: str, cloud: Simulator):
    ccm = start_ccm()
    await ccm.leading()
    text = (await ccm.get("/metrics", admin_token))[1]
    assert [name for name in METRICS if name not in text] == []
    assert (
        'kubernetes_healthcheck{name="ping",type="healthz"}'
        in (await ccm.get("/healthz"))[1] + (await ccm.get("/metrics/slis", admin_token))[1]
    )

# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus finds and scrapes a real process with the settings of docs/how-to/monitoring.md, and alerts.

The settings differ from the page's in what a machine without a cluster needs: where the API server and the token are,
the port, and the pace. The alerts are those of ccm_runtime, but wait for a second only (`for`), instead of minutes.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator
from tests.ports import free_port

from ..integration.cluster import ApiServer
from ..integration.runtime.conftest import StartCcm
from ..integration.runtime.support import NODES, Ccm, eventually, node_body, set_ready

ROOT = Path(__file__).parents[2]
RULES = ROOT / "roles/ccm_runtime/files/monitoring/rules.yml"
PODS = "/api/v1/namespaces/kube-system/pods"


def blocks_of_the_page() -> list[str]:
    """Return the blocks of YAML in docs/how-to/monitoring.md."""
    text = (ROOT / "docs/how-to/monitoring.md").read_text()
    found = re.findall(r"^( *)```yaml\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


class Prometheus:
    """A Prometheus process on loopback."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "prometheus.log"
        with self._log.open("w") as output:
            self.process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=output,
                stderr=output,
            )

    async def ask(self, what: str, **parameters: str) -> Any:
        """Return the data of an answer of Prometheus' API; None while Prometheus does not listen yet."""
        assert self.process.poll() is None, self._log.read_text()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/api/v1/{what}", params=parameters) as answer,
            ):
                return (await answer.json())["data"]
        except aiohttp.ClientError:
            return None

    async def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.ask("targets") or {}).get("activeTargets", [])
        return found

    async def rules(self) -> dict[str, dict[str, Any]]:
        groups = (await self.ask("rules") or {}).get("groups", [])
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    async def becomes(self, alert: str, state: str) -> dict[str, Any]:
        async def is_so() -> dict[str, Any] | None:
            rule = (await self.rules()).get(alert)
            return rule if rule is not None and rule["state"] == state else None

        return await eventually(is_so, 60, f"{alert} is {state}")


@pytest.fixture
async def ccm(start_ccm: StartCcm, kube: KubeClient, cloud: Simulator) -> AsyncIterator[Ccm]:
    """Yield a leader, and create a Pod object for it. Only the Pod's label and address matter."""
    cloud.add_instance("worker")
    await kube.create(NODES, node_body("worker"))
    await set_ready(kube, "worker", "True")
    started = start_ccm(node_status_update_frequency="1s")
    await started.leading()
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ccm-a", "labels": {"app.kubernetes.io/name": "cloud-controller-manager"}},
        "spec": {
            "nodeName": "worker",
            "containers": [{"name": "ccm", "image": "ccm"}],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
        },
    }
    await kube.create(PODS, body)
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    await kube.patch(f"{PODS}/ccm-a/status", {"status": status}, strategic=True)
    yield started
    await kube.delete(f"{PODS}/ccm-a")


@pytest.fixture
async def scraping(ccm: Ccm, prometheus: Path, apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[Prometheus]:
    """Yield Prometheus with the page's job and the token of the page's ServiceAccount, which has no rights yet."""
    apiserver.kubectl("create", "namespace", "monitoring")
    apiserver.kubectl("-n", "monitoring", "create", "serviceaccount", "prometheus")
    token = tmp_path / "token"
    token.write_text(apiserver.kubectl("-n", "monitoring", "create", "token", "prometheus").strip())
    (shown,) = (each for each in blocks_of_the_page() if each.startswith("scrape_configs:"))
    for theirs, ours in (
        ("/var/run/secrets/kubernetes.io/serviceaccount/token", str(token)),
        ("{role: pod,", f"{{role: pod, kubeconfig_file: {apiserver.kubeconfig()},"),
        ("$1:10258", f"$1:{ccm.port}"),
    ):
        assert shown.count(theirs) == 1, theirs
        shown = shown.replace(theirs, ours)
    rules = re.sub(r"(?m)^( +for: ).*$", r"\g<1>1s", RULES.read_text())
    (tmp_path / "rules.yml").write_text(rules)
    pace = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    given = {"global": pace, "rule_files": [str(tmp_path / "rules.yml")], **yaml.safe_load(shown)}
    (tmp_path / "prometheus.yml").write_text(json.dumps(given))
    started = Prometheus(prometheus, tmp_path)
    yield started
    started.process.terminate()
    await asyncio.to_thread(started.process.wait, 20)
    apiserver.kubectl("delete", "namespace", "monitoring", "--wait=false")


async def test_it_scrapes_with_the_rights_of_the_page_and_alerts_while_the_cloud_is_away(
    scraping: Prometheus, ccm: Ccm, cloud: Simulator, apiserver: ApiServer
):
    async def target(health: str) -> dict[str, Any] | None:
        found = await scraping.targets()
        assert len(found) < 2
        return found[0] if found and found[0]["health"] == health else None

    refused = await eventually(lambda: target("down"), 60)
    assert refused["scrapeUrl"] == f"https://127.0.0.1:{ccm.port}/metrics" and "403" in refused["lastError"]
    (role,) = (each for each in blocks_of_the_page() if "name: prometheus-read-metrics" in each)
    apiserver.kubectl("apply", "-f", "-", input=role)
    try:
        # The process caches a refusal for ten seconds.
        await eventually(lambda: target("up"), 60)
        await scraping.becomes("CcmNotRunning", "inactive")
        await scraping.becomes("CcmCloudBreakerOpen", "inactive")

        cloud.fault(action="hang_up")
        firing = await scraping.becomes("CcmCloudBreakerOpen", "firing")
        (alert,) = firing["alerts"]
        assert alert["labels"]["group"] == "instances" and alert["labels"]["severity"] == "warning"
        assert alert["annotations"]["summary"] == "Calls of the group instances are not made, because the cloud fails."
        await scraping.becomes("CcmCloudCallsFail", "firing")
        cloud.clear_faults()
        await scraping.becomes("CcmCloudBreakerOpen", "inactive")

        rules = await scraping.rules()
        assert len(rules) > 20
        assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
        assert {name for name, rule in rules.items() if rule["state"] == "firing"} <= {"CcmCloudCallsFail"}
        await ccm.stop()
        await scraping.becomes("CcmNotRunning", "firing")
    finally:
        apiserver.kubectl("delete", "clusterrole/read-metrics", "clusterrolebinding/prometheus-read-metrics")

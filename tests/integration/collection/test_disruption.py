# SPDX-License-Identifier: Apache-2.0
"""The disruption of a URL of the operator: it is measured while the playbook runs, and reported however the run
ends."""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.listening import listening

from .test_layouts import HOSTS, Cluster, cluster
from .test_runs import CHANGE, LOOK, REFUSE, plays, run

__all__ = ["cluster"]

pytestmark = pytest.mark.timeout(900)  # several plays in each test; each takes seconds on an idle machine

WORKER = HOSTS["kubeadm-worker"]
END = plays("site", "Verify and summarise")
END[0]["tasks"] = END[0]["tasks"][0]["always"]


class Shop:
    """The server behind the URL. It serves all requests except those whose numbers are in `lost`."""

    def __init__(self) -> None:
        self.asked, self.lost, self.url = 0, range(0), ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(status=503 if self.asked in self.lost else 200)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    running = Shop()
    async with listening(web.get("/", running.answer)) as url:
        running.url = f"{url}/"
        yield running


@pytest.fixture
def hosts(cluster: Cluster) -> Cluster:
    cluster.add("kubeadm-cp", HOSTS["kubeadm-cp"])
    for name in ("w-1", "w-2"):
        cluster.add(name, WORKER)
    return cluster


def patient(books: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the plays with a probe that waits a minute for an answer, so that a busy machine is no disruption."""
    defaults = {"outoftree.ccm.ccm_disruption_probe": {"request_timeout": 60.0}}
    return [play | {"module_defaults": defaults} for play in books]


def disruption(hosts: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((hosts.folder / "summary.json").read_text())["disruption"]
    return found


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary folder of this test alone, so that `processes` sees none of the probes of other tests."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def processes() -> list[str]:
    return glob.glob(os.path.join(tempfile.gettempdir(), "outoftree-ccm-probe-*"))


async def test_the_summary_says_how_many_requests_failed_and_for_how_long(hosts: Cluster, shop: Shop):
    before, shop.lost = processes(), range(5, 9)
    done = await run(hosts, patient(LOOK + plays("site", REFUSE) + CHANGE + END), ccm_install_probe_url=shop.url)
    assert done.status == 0, done.output[-3000:]
    result = disruption(hosts)
    # The result does not count the first request, which the run made before its first change.
    assert result["errors"] == {"http 503": 4} and result["requests"] == shop.asked - 1
    assert result["gap_count"] == 1 and result["disrupted_ms"] == result["longest_ms"] > 0 and result["answers_now"]
    shown = "\n".join(str(item.get("msg")) for item in done)
    assert f"{shop.url}: {result['answered']} of {result['requests']} requests answered" in shown
    assert f"Disrupted for {result['disrupted_ms']} ms (4 http 503): 1 gap(s)" in shown
    report = json.loads((hosts.folder / "report.json").read_text())
    assert any(line.startswith(shop.url) for line in report["outcome"]["lines"])
    asked = shop.asked
    assert processes() == before and asked == shop.asked


async def test_a_run_that_stops_says_it_too(hosts: Cluster, shop: Shop):
    before = processes()
    hosts.machines["w-2"].refuse("restart")
    books = patient(LOOK + plays("site", REFUSE) + CHANGE)
    stopped = await run(hosts, books, ccm_install_probe_url=shop.url, ccm_install_worker_serial=1)
    assert stopped.status != 0 and "The run was stopped: w-2 failed" in stopped.failures[-1]
    assert disruption(hosts)["gap_count"] == 0 and disruption(hosts)["requests"] == shop.asked - 1 > 0
    assert processes() == before


async def test_a_url_that_does_not_answer_is_refused_before_the_first_change(hosts: Cluster, shop: Shop):
    files = hosts.machines["w-1"].files()
    shop.lost = range(1, 1000)
    refused = await run(hosts, LOOK + plays("site", REFUSE) + CHANGE, ccm_install_probe_url=shop.url)
    assert refused.status != 0 and "Traceback" not in refused.output
    assert refused.failures == [f"{shop.url} does not answer (http 503), so its disruption could not be measured."]
    secret = await run(hosts, LOOK + plays("site", REFUSE), ccm_install_probe_url="http://alice:secret@shop/")
    assert "must not have a password" in secret.failures[0]
    assert hosts.machines["w-1"].files() == files
    leases = hosts.apiserver.kubectl("-n", "kube-system", "get", "lease", "outoftree-ccm-run", "--ignore-not-found")
    assert leases == ""


async def test_check_mode_asks_once_and_starts_nothing(hosts: Cluster, shop: Shop):
    before = processes()
    values = {"ccm_install_probe_url": shop.url}
    books = json.dumps(LOOK + plays("site", REFUSE) + END)
    foretold = await hosts.play("/dev/stdin", "--check", stdin=books, **values)
    assert foretold.status == 0, foretold.output[-3000:]
    assert shop.asked == 1 and processes() == before

# SPDX-License-Identifier: Apache-2.0
"""The stand-in for Compute Engine as the conformance kit's world, and a provider that runs on it."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ccm.cloud import ProviderConfig
from ccm.conformance import NotRun, Subject, Trouble, World
from ccm.providers.gce import GceCloud
from tests.kit import PATIENT

from .face import PEM, Face, Fault, running
from .project import ZONES, Project

#: Rows in a page of a listing, so that there are several pages.
PAGE = 3
ONE_ID = "a providerID contains zone and name of its instance, so a new one with both has the same providerID"
PEM_LINES = tuple(PEM.splitlines()[1:-1])
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"kind": "status", "status": 503},
    Trouble.PROXY_PAGE: {"kind": "html", "status": 404},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.LATER_PAGE: {"kind": "status", "status": 503, "later": True},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"kind": "status", "status": 401, "reason": "authError"},
    Trouble.RATE_LIMITED: {
        "kind": "status",
        "status": 429,
        "reason": "rateLimitExceeded",
        "headers": {"Retry-After": str(int(World.RETRY_AFTER))},
    },
}


class GceWorld(World):
    def __init__(self, face: Face) -> None:
        self._face, self._project = face, face.project
        self._gone: set[str] = set()

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        if kind is Trouble.SHORT_LISTING:  # the cloud reports which zone does not answer
            zones = sorted({zone for zone, _ in self._project.rows})
            self._project.doubts = dict.fromkeys(zones[len(zones) // 2 :], "UNREACHABLE")
            try:
                yield
            finally:
                self._project.doubts = {}
            return
        with self._face.fault(Fault(**FAULTS[kind])):
            yield

    async def create_instance(self, name: str) -> None:
        if name in self._gone:
            raise NotRun(ONE_ID)
        self._project.add(name, self._project.free_zone(name))

    async def delete_instance(self, provider_id: str) -> None:
        *_, zone, name = provider_id.split("/")
        if self._project.rows.pop((zone, name), None) is not None:
            self._gone.add(name)

    async def stop_instance(self, provider_id: str) -> None:
        self._row(provider_id)["status"] = "TERMINATED"

    async def untag_instance(self, provider_id: str) -> None:
        row = self._row(provider_id)
        del row["labels"]
        row["tags"] = {"fingerprint": "42WmSpB8rSM="}

    def _row(self, provider_id: str) -> Any:
        *_, zone, name = provider_id.split("/")
        return self._project.rows[zone, name]


CONF = """\
[global]
project-id = {project}
local-zone = europe-west1-b
multizone = true
token-url = nil
node-tags = kube
network-name = kube
api-endpoint = {url}/compute/v1/
[Runtime]
credentials-file = {key}
request-timeout = {patient}s
calls-per-second = 10000
burst = 1000
page-size = {page}
"""


def config(face: Face, folder: Path, *, page: int = 500, conf: str = CONF, **environment: str) -> ProviderConfig:
    """Return a gce.conf with the key of a service account in a file."""
    key = folder / "key.json"
    if not key.exists():
        key.write_text(face.key_file())
    text = conf.format(project="kube-project", url=face.url, key=key, page=page, patient=PATIENT)
    return ProviderConfig(text, "gce.conf", {"GCE_METADATA_HOST": face.host, **environment})


@contextlib.asynccontextmanager
async def gce(instances: int = 5, **more: Any) -> AsyncIterator[tuple[Face, GceCloud]]:
    """Yield a project with instances worker-0, worker-1, ... in the zones of a region, and a started provider."""
    project = Project()
    for number in range(instances):
        project.add(f"worker-{number}", ZONES[number % 3])
    with tempfile.TemporaryDirectory() as folder:
        async with running(project) as face:
            cloud = GceCloud(config(face, Path(folder), **more))
            try:
                await cloud.start()
                yield face, cloud
            finally:
                await cloud.close()


@contextlib.asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Yield the conformance kit's subject: the provider, its configuration, and a world that can break its cloud."""
    project = Project()
    for number in range(5):
        project.add(f"worker-{number}", ZONES[number % 3])
    with tempfile.TemporaryDirectory() as folder:
        async with running(project) as face:
            given = config(face, Path(folder), page=PAGE)
            yield Subject("gce", GceCloud, given, allow_writes=True, world=GceWorld(face), secrets=PEM_LINES)

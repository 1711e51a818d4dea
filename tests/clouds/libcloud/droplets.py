# SPDX-License-Identifier: Apache-2.0
"""A DigitalOcean-shaped API over HTTP, for the kit: droplets in the form of the answers that libcloud recorded, and
pages."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ccm.cloud import ProviderConfig
from ccm.conformance import Subject, Trouble, World
from ccm.providers.libcloud import LibcloudCloud
from tests.clouds import stand_in
from tests.clouds.stand_in import Exchange, StandIn, answered
from tests.kit import PATIENT
from tests.listening import listening

TOKEN = "dop_v1_0123456789abcdef"
#: Droplets in a page, so that there are several pages.
PAGE = 3
#: Lines of the configuration. The time limits of an answer and of a listing are below the conformance kit's own.
TIMEOUTS = f"request_timeout: {PATIENT}s\nlisting_timeout: {3 * PATIENT}s\ncalls_per_second: 1000\nburst: 1000\n"


FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"kind": "status"},
    Trouble.PROXY_PAGE: {"kind": "html", "status": 404},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.SHORT_LISTING: {"kind": "half"},
    Trouble.LATER_PAGE: {"kind": "status", "later": True},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"kind": "status", "status": 401, "code": "unauthorized"},
    Trouble.RATE_LIMITED: {
        "kind": "status",
        "status": 429,
        "code": "too_many_requests",
        "message": "API rate limit exceeded",
        "headers": {"Retry-After": "7"},
    },
}


@dataclass
class Fault(stand_in.Fault):
    status: int = 503
    code: str = "server_error"
    message: str = f"the token {TOKEN} could not be looked up"
    headers: dict[str, str] = field(default_factory=dict)


class Droplets(StandIn[Fault, Exchange]):
    """An account with droplets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, dict[str, Any]] = {}
        self._ids = itertools.count(3164444)

    def add(self, name: str) -> int:
        number = next(self._ids)
        self.rows[number] = {
            "id": number,
            "name": name,
            "status": "active",
            "created_at": "2026-01-02T03:04:05Z",
            "tags": ["kubernetes"],
            "size_slug": "s-1vcpu-1gb",
            "region": {"slug": "sfo3", "name": "San Francisco 3"},
            "image": None,
            "networks": {
                "v4": [
                    {"ip_address": f"10.124.0.{number % 250 + 1}", "type": "private"},
                    {"ip_address": f"128.199.13.{number % 250 + 1}", "type": "public"},
                ],
                "v6": [],
            },
        }
        return number

    async def answer(self, request: web.Request) -> web.StreamResponse:
        page = int(request.query.get("page", 1))
        fault = self.fault_for(lambda each: each.due("", request.path, first_page=page == 1))
        answer = await self._answer(request, page, fault)
        self.exchanges.append(Exchange("GET", request.path, dict(request.query), answer.status, None))
        return answer

    async def _answer(self, request: web.Request, page: int, fault: Fault | None) -> web.Response:
        if fault is not None and fault.kind == "status":
            return _error(fault)
        if fault is not None and (answer := await stand_in.instead(fault, fault.status, request)) is not None:
            return answer
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(Fault("status", 401, "unauthorized", "Unable to authenticate you"))
        rows = list(self.rows.values())
        shown = rows[: len(rows) // 2] if fault is not None and fault.kind == "half" else rows
        pages = max(1, -(-len(shown) // PAGE))
        links = {"pages": {"last": f"https://api.digitalocean.com/v2/droplets?page={pages}"}} if pages > 1 else {}
        body = {"droplets": shown[(page - 1) * PAGE : page * PAGE], "links": links, "meta": {"total": len(rows)}}
        return answered(body, fault)


def _error(fault: Fault) -> web.Response:
    return web.json_response({"id": fault.code, "message": fault.message}, status=fault.status, headers=fault.headers)


class DropletWorld(World):
    asking = frozenset({"instances"})

    def __init__(self, droplets: Droplets) -> None:
        self._droplets = droplets

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        with self._droplets.fault(Fault(**FAULTS[kind])):
            yield

    async def create_instance(self, name: str) -> None:
        self._droplets.add(name)

    async def delete_instance(self, provider_id: str) -> None:
        self._droplets.rows.pop(_number(provider_id), None)

    async def stop_instance(self, provider_id: str) -> None:
        self._droplets.rows[_number(provider_id)]["status"] = "off"

    async def untag_instance(self, provider_id: str) -> None:
        self._droplets.rows[_number(provider_id)]["tags"] = []


def _number(provider_id: str) -> int:
    return int(provider_id.rpartition("/")[2])


@contextlib.asynccontextmanager
async def running(count: int = 5) -> AsyncIterator[tuple[Droplets, str]]:
    """Yield the API with droplets worker-0, worker-1, ..., and its URL."""
    droplets = Droplets()
    for number in range(count):
        droplets.add(f"worker-{number}")
    async with listening(web.get("/v2/droplets", droplets.answer)) as url:
        yield droplets, url


def config(url: str, token: str = TOKEN) -> ProviderConfig:
    return ProviderConfig(f"driver: digitalocean\nurl: {url}\ntoken: {token}\n{TIMEOUTS}", "libcloud.yaml", {})


@contextlib.asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Yield what the conformance kit examines: the provider, its configuration, and a world that can break its
    cloud.
    """
    async with running() as (droplets, url):
        yield Subject("libcloud", LibcloudCloud, config(url), allow_writes=True, world=DropletWorld(droplets))

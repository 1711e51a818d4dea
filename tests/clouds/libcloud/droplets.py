# SPDX-License-Identifier: Apache-2.0
"""A DigitalOcean-shaped API over HTTP, for the kit: droplets in the form of the answers that libcloud recorded, pages,
and the failures of `Trouble`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from ccm.cloud import ProviderConfig
from ccm.conformance import Subject, Trouble, World
from ccm.providers.libcloud import LibcloudCloud
from tests.kit import PATIENT

TOKEN = "dop_v1_0123456789abcdef"
#: Droplets in a page, so that there are several pages.
PAGE = 3
#: Seconds for one answer and for a listing, below the kit's patience.
TIMEOUTS = f"request_timeout: {PATIENT}s\nlisting_timeout: {3 * PATIENT}s\ncalls_per_second: 1000\nburst: 1000\n"


class Droplets:
    """An account with droplets. `calls` counts requests."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.trouble: Trouble | None = None
        self.calls = 0
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
        self.calls += 1
        page = int(request.query.get("page", 1))
        if (failed := await self._failure(page)) is not None:
            return failed
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "unauthorized", "Unable to authenticate you")
        rows = list(self.rows.values())
        shown = rows[: len(rows) // 2] if self.trouble is Trouble.SHORT_LISTING else rows
        pages = max(1, -(-len(shown) // PAGE))
        links = {"pages": {"last": f"https://api.digitalocean.com/v2/droplets?page={pages}"}} if pages > 1 else {}
        body = {"droplets": shown[(page - 1) * PAGE : page * PAGE], "links": links, "meta": {"total": len(rows)}}
        text = json.dumps(body)
        if self.trouble is Trouble.CUT_ANSWER:
            text = text[: len(text) // 2]
        return web.Response(text=text, content_type="application/json")

    async def _failure(self, page: int) -> web.Response | None:
        if self.trouble is Trouble.HANG:
            await asyncio.sleep(3600)
        if self.trouble is Trouble.PROXY_PAGE:
            return web.Response(status=404, text="<html>not here</html>", content_type="text/html")
        if self.trouble is Trouble.UNAUTHORIZED:
            return _error(401, "unauthorized", f"Unable to authenticate {TOKEN}")
        if self.trouble is Trouble.RATE_LIMITED:
            answer = _error(429, "too_many_requests", "API rate limit exceeded")
            answer.headers["Retry-After"] = "7"
            return answer
        if self.trouble is Trouble.SERVER_ERROR or (self.trouble is Trouble.LATER_PAGE and page > 1):
            return _error(503, "server_error", f"the token {TOKEN} could not be looked up")
        return None


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"id": code, "message": message}, status=status)


class DropletWorld(World):
    asking = frozenset({"instances"})

    def __init__(self, droplets: Droplets) -> None:
        self._droplets = droplets

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        self._droplets.trouble = kind
        try:
            yield
        finally:
            self._droplets.trouble = None

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
    app = web.Application()
    app.router.add_get("/v2/droplets", droplets.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield droplets, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def config(url: str, token: str = TOKEN) -> ProviderConfig:
    return ProviderConfig(f"driver: digitalocean\nurl: {url}\ntoken: {token}\n{TIMEOUTS}", "libcloud.yaml", {})


@contextlib.asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Yield all that the kit needs."""
    async with running() as (droplets, url):
        yield Subject("libcloud", LibcloudCloud, config(url), allow_writes=True, world=DropletWorld(droplets))

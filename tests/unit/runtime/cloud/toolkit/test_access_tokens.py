# SPDX-License-Identifier: Apache-2.0
"""When a token is fetched, and what a service's answer about it means."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from ccm.cloud import CloudError, RateLimited, Transient, Unauthorized
from ccm.cloud.toolkit.access_tokens import AGAIN, AccessToken, AccessTokens, TokenRequests, token_in
from tests.listening import listening


class Service:
    """Hands out the tokens `1`, `2`, ..., each valid for `lifetime` seconds of a clock that the test moves."""

    def __init__(self, lifetime: float = 3600.0) -> None:
        self.now, self.count, self.lifetime = 1000.0, 0, lifetime
        self.error: CloudError | None = None
        self.tokens = AccessTokens(self._fetch, lambda: self.now)

    async def _fetch(self) -> AccessToken:
        await asyncio.sleep(0)
        self.count += 1
        if self.error is not None:
            raise self.error
        return AccessToken(str(self.count), self.lifetime)


async def test_one_token_serves_all_until_five_minutes_before_its_end() -> None:
    service = Service()
    assert await asyncio.gather(*(service.tokens.get() for _ in range(50))) == ["1"] * 50
    service.now += 3299
    assert await service.tokens.get() == "1"
    service.now += 2
    assert await asyncio.gather(*(service.tokens.get() for _ in range(50))) == ["2"] * 50
    assert service.count == 2


async def test_a_short_token_is_renewed_in_the_middle_of_its_life() -> None:
    service = Service(lifetime=60)
    await service.tokens.get()
    service.now += 31
    assert await service.tokens.get() == "2"


async def test_a_refused_token_is_renewed_once_for_all_that_were_refused() -> None:
    service = Service()
    await service.tokens.get()
    service.now += 60
    assert await asyncio.gather(*(service.tokens.get(True) for _ in range(50))) == ["2"] * 50


async def test_while_the_service_fails_the_present_token_serves_until_its_end() -> None:
    service = Service()
    await service.tokens.get()
    service.error = Transient("down")
    service.now += 3400
    assert await service.tokens.get() == "1" and service.count == 2
    service.now += AGAIN - 1
    assert await service.tokens.get() == "1" and service.count == 2
    service.now += 2
    assert await service.tokens.get() == "1" and service.count == 3
    with pytest.raises(Transient):
        await service.tokens.get(True)
    service.now += 600
    with pytest.raises(Transient):
        await service.tokens.get()
    service.error = None
    assert await service.tokens.get() == "6"


async def test_a_cancelled_caller_leaves_the_others_their_token() -> None:
    service = Service()
    first, second = asyncio.create_task(service.tokens.get()), asyncio.create_task(service.tokens.get())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "1" and first.cancelled()


@pytest.mark.parametrize(
    "answer",
    [{}, {"access_token": "a"}, {"access_token": "a b", "expires_in": 1}, {"access_token": "a", "expires_in": "soon"}],
)
def test_an_answer_without_a_token(answer: dict[str, Any]) -> None:
    with pytest.raises(Transient, match="has no access token"):
        token_in(answer, "POST /token")


def test_a_lifetime_may_be_text() -> None:
    found = token_in({"access_token": "hush-token", "expires_in": "3599"}, "")
    assert found.lifetime == 3599 and "hush" not in repr(found)


@contextlib.asynccontextmanager
async def serving(
    answer: Callable[[web.Request], web.Response] | None, patience: float = 60.0
) -> AsyncIterator[tuple[TokenRequests, str]]:
    """Serve token requests on loopback. Without `answer`, requests hang. Yields the client and the URL."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        return answer(request) if answer else await asyncio.Future()


    async with listening(web.route("*", "/{path:.*}", handle)) as url:
        requests = TokenRequests("key.json", patience, "patience")
        await requests.open()
        try:
            yield requests, f"{url}/token"
        finally:
            await requests.close()


def refused(status: int, **more: Any) -> Callable[[web.Request], web.Response]:
    return lambda request: web.json_response(
        {"error": "invalid_client", "error_description": "it is hush-secret, Bearer hush-header"}, status=status, **more
    )


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused(400), Unauthorized),
        (refused(401), Unauthorized),
        (refused(403), Unauthorized),
        (refused(429, headers={"Retry-After": "9"}), RateLimited),
        (refused(500), Transient),
        (lambda request: web.Response(status=404, text="<html>"), Transient),
        (lambda request: web.Response(status=200, text="<html>"), Transient),
        (lambda request: web.Response(status=200, text="[]"), Transient),
        (lambda request: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), Transient),
        (lambda request: web.Response(status=200, text="x" * (2 << 20)), Transient),
    ],
)
async def test_answers(answer: Callable[[web.Request], web.Response], kind: type[CloudError]) -> None:
    async with serving(answer) as (requests, url):
        with pytest.raises(kind) as raised:
            headers = {"Authorization": "Bearer hush-header"}
            await requests.ask("POST", url, form={"client_secret": "hush-secret"}, headers=headers)
        assert type(raised.value) is kind and "hush" not in str(raised.value)
        assert raised.value.retry_after == (9 if kind is RateLimited else None)


async def test_no_answer_in_time_says_how_long_that_was_and_which_key_sets_it() -> None:
    async with serving(None, 0.2) as (requests, url):
        with pytest.raises(Transient, match=rf"^GET {url}: no answer within 0\.2 s \(set by patience\)$"):
            await requests.ask("GET", url)


async def test_no_connection_and_no_start_are_transient() -> None:
    requests = TokenRequests("key.json", 60.0)
    with pytest.raises(Transient, match="not started"):
        await requests.ask("GET", "http://127.0.0.1:1/")
    await requests.open()
    with pytest.raises(Transient, match=r"127\.0\.0\.1:1"):
        await requests.ask("GET", "http://127.0.0.1:1/")
    await requests.close()

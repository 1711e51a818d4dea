# SPDX-License-Identifier: Apache-2.0
"""JsonApi against an HTTP server on loopback: what it sends, and what each answer means."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gc
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.cloud.toolkit import json_api
from ccm.cloud.toolkit.json_api import READINGS, Dialect, Failure, JsonApi
from tests.listening import listening

DIALECT = Dialect(
    failure=lambda answer: Failure(answer["error"]["code"], answer["error"]["message"]),
    total=lambda answer: answer.get("total"),
    codes={"limit_reached": QuotaExceeded, "locked": RetryAfter, "gone_for_good": NotFound},
)
SECRET = "s3cret-token"


class Server:
    """Answers with what `answer` returns. `asked`: method, path with query, Authorization and JSON of each request."""

    def __init__(self) -> None:
        self.answer: Callable[[web.Request], Any] = lambda request: web.json_response({"ok": True})
        self.asked: list[tuple[str, str, str, Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.content_type == "application/json" else None
        self.asked.append((request.method, request.path_qs, request.headers.get("Authorization", ""), body))
        found = self.answer(request)
        return await found if asyncio.iscoroutine(found) else found


@contextlib.asynccontextmanager
async def serving(
    dialect: Dialect = DIALECT, tls: ssl.SSLContext | None = None, **more: Any
) -> AsyncIterator[tuple[Server, JsonApi]]:
    server, renewals = Server(), []

    async def authorise(renew: bool) -> dict[str, str]:
        renewals.extend([1] if renew else [])
        return {"Authorization": f"Bearer {SECRET}-{len(renewals)}"}

    options = {"source": "cloud.conf", "timeout": 60.0, **more}
    async with listening(web.route("*", "/{path:.*}", server.handle), tls=tls, cancels=True) as url:
        api = JsonApi(f"{url}/v1/", dialect, authorise, **options)
        await api.open()
        try:
            yield server, api
        finally:
            await api.close()


def refusal(status: int, code: str = "some_code", message: str = "why", **headers: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": message}}, status=status, headers=headers)


async def test_a_call_is_one_request_with_its_credentials() -> None:
    async with serving() as (server, api):
        assert await api.call("PUT", "/things/1", query=[("a", "b c")], body={"x": 1}) == {"ok": True}
        assert server.asked == [("PUT", "/v1/things/1?a=b+c", f"Bearer {SECRET}-0", {"x": 1})]


async def test_an_answer_without_a_body_is_none() -> None:
    async with serving() as (server, api):
        server.answer = lambda request: web.Response(status=204)
        assert await api.call("DELETE", "/things/1") is None


@pytest.mark.parametrize(
    ("method", "status", "code", "missing", "kind"),
    [
        ("GET", 404, "not_found", "not_found", NotFound),
        ("GET", 404, "not_found", "", Transient),
        ("GET", 404, "not_found", {"not_found", "no_parent"}, NotFound),
        ("GET", 404, "not_found", {"no_parent"}, Transient),
        ("GET", 404, "gone_for_good", {"gone_for_good"}, NotFound),
        ("GET", 404, "", "", Transient),
        ("GET", 404, "no_such_project", "not_found", Transient),
        ("GET", 403, "denied", "", Unauthorized),
        ("POST", 403, "denied", "", Forbidden),
        ("POST", 403, "quota_used_up", "", QuotaExceeded),
        ("POST", 403, "limit_reached", "", QuotaExceeded),
        ("POST", 409, "taken", "", Conflict),
        ("POST", 409, "locked", "", RetryAfter),
        ("POST", 423, "busy", "", RetryAfter),
        ("POST", 400, "bad", "", Invalid),
        ("POST", 422, "bad", "", Invalid),
        ("GET", 429, "slow_down", "", RateLimited),
        ("GET", 500, "oops", "", Transient),
        ("GET", 503, "oops", "", Transient),
        ("GET", 300, "choose", "", Transient),
        ("GET", 302, "elsewhere", "", Transient),
        ("GET", 410, "gone_for_good", "", Transient),
        ("GET", 410, "gone_for_good", "not_found", Transient),
        ("GET", 410, "gone_for_good", "gone_for_good", NotFound),
    ],
)
async def test_what_the_clouds_own_error_means(
    method: str, status: int, code: str, missing: str | set[str], kind: type[CloudError]
) -> None:
    async with serving() as (server, api):
        server.answer = lambda request: refusal(status, code)
        with pytest.raises(CloudError) as caught:
            await api.call(method, "/things/1", missing=missing)
        assert type(caught.value) is kind
        assert f"{status} {code}" in str(caught.value) and "why" in str(caught.value)
        assert SECRET not in str(caught.value)
        assert len(server.asked) == 1


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@pytest.mark.parametrize(("status", "scope"), [(402, "object"), (404, "object"), (412, "object"), (424, "object")])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_unknown_refusal_of_the_cloud_itself_concerns_one_object(method, status, scope):
    async with serving() as (server, api):
        server.answer = lambda request: refusal(status, "resource_unavailable")
        with pytest.raises(Transient) as caught:
            await api.call(method, "/things/1")
        assert caught.value.scope == scope


@pytest.mark.parametrize("answer", [refusal(408), refusal(500), web.Response(status=412, text="<html>a proxy</html>")])
async def test_what_may_be_an_outage_concerns_all(answer):
    async with serving() as (server, api):
        server.answer = lambda request: answer
        with pytest.raises(Transient) as caught:
            await api.call("POST", "/things/1")
        assert caught.value.scope == "all"


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 502])
@pytest.mark.parametrize("body", ["<html>404</html>", '{"message": "no error of this cloud"}', "[]", "", '"error"'])
async def test_an_error_that_is_not_the_clouds_own_says_nothing(status: int, body: str) -> None:
    async with serving() as (server, api):
        server.answer = lambda request: web.Response(status=status, text=body)
        with pytest.raises(Transient, match="proxy"):
            await api.call("GET", "/things/1", missing="not_found")


async def test_a_token_that_is_refused_is_renewed_once() -> None:
    async with serving() as (server, api):
        server.answer = lambda request: (
            web.json_response(1) if request.headers["Authorization"].endswith("-1") else refusal(401)
        )
        assert await api.call("GET", "/things") == 1
        server.answer = lambda request: refusal(401, "expired")
        with pytest.raises(Unauthorized, match=r"cloud\.conf"):
            await api.call("GET", "/things")
        assert [token[-1] for _, _, token, _ in server.asked] == ["0", "1", "1", "2"]


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("", None), ("soon", None)])
async def test_a_rate_limit_says_when_to_come_back(header: str, seconds: float | None) -> None:
    for grouped, scope in ((False, "all"), (True, "group")):
        dialect = Dialect(DIALECT.failure, rate_limit_group=grouped)
        async with serving(dialect) as (server, api):
            server.answer = lambda request: refusal(429, **({"Retry-After": header} if header else {}))
            with pytest.raises(RateLimited) as caught:
                await api.call("GET", "/things")
            assert (caught.value.retry_after, caught.value.scope) == (seconds, scope)


async def test_a_clouds_own_header_counts_where_retry_after_is_missing() -> None:
    dialect = Dialect(DIALECT.failure, pause=lambda headers, now: float(headers["Left"]) if now > 1e9 else None)
    async with serving(dialect) as (server, api):
        for headers, seconds in (({"Left": "5"}, 5.0), ({"Left": "5", "Retry-After": "7"}, 7.0)):
            server.answer = lambda request, headers=headers: refusal(429, **headers)
            with pytest.raises(RateLimited) as caught:
                await api.call("GET", "/things")
            assert caught.value.retry_after == seconds


async def test_what_is_busy_is_asked_again_when_the_cloud_says() -> None:
    async with serving() as (server, api):
        for status, code in ((409, "locked"), (423, "busy")):
            for headers, seconds in (({"Retry-After": "9"}, 9.0), ({}, json_api.BUSY)):
                answer = refusal(status, code, **headers)
                server.answer = lambda request, answer=answer: answer
                with pytest.raises(RetryAfter) as caught:
                    await api.call("POST", "/things")
                assert caught.value.retry_after == seconds


@pytest.mark.parametrize("body", ['{"ok": tr', "<html>", "[" * 100_000])
async def test_an_answer_that_cannot_be_read_is_transient(body: str) -> None:
    async with serving() as (server, api):
        server.answer = lambda request: web.Response(text=body)
        with pytest.raises(Transient, match="not JSON"):
            await api.call("GET", "/things")


async def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_api, "LARGEST", 1000)
    async with serving() as (server, api):
        server.answer = lambda request: web.json_response("x" * 998)
        assert len(await api.call("GET", "/things")) == 998
        server.answer = lambda request: web.json_response("x" * 999)
        with pytest.raises(Transient, match="more than 1000 bytes"):
            await api.call("GET", "/things")


async def test_nobody_who_answers_is_transient_and_a_redirect_is_not_followed() -> None:
    async with serving(timeout=0.2, set_by="patience") as (server, api):
        server.answer = lambda request: asyncio.sleep(30)
        with pytest.raises(Transient, match=r"^GET /things: http://.*: no answer within 0\.2 s \(set by patience\)$"):
            await api.call("GET", "/things")
    async with serving() as (server, api):
        server.answer = lambda request: web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"})
        with pytest.raises(Transient, match="307"):
            await api.call("GET", "/things")


async def test_before_the_start_and_after_the_end_no_call_is_made() -> None:
    async with serving() as (server, api):
        await api.close()
        await api.close()
        with pytest.raises(Transient, match="not started"):
            await api.call("GET", "/things")
        assert server.asked == []
        await api.open()
        assert await api.call("GET", "/things") == {"ok": True}
    with pytest.raises(Transient):
        await api.call("GET", "/things")


async def test_certificates_that_cannot_be_read_are_a_config_error() -> None:
    async def authorise(renew: bool) -> dict[str, str]:
        return {}

    api = JsonApi("https://127.0.0.1", DIALECT, authorise, source="cloud.conf", ca_file="/nowhere/ca.pem")
    with pytest.raises(ConfigError, match=r"cloud\.conf: certificates /nowhere/ca\.pem: No such file"):
        await api.open()
    assert repr(api) == "JsonApi(https://127.0.0.1)"


def _certificate(folder: Path) -> ssl.SSLContext:
    """Return a server's TLS context for 127.0.0.1 and write its self-signed certificate to `ca.pem` in the folder."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cloud")])
    now, address = datetime.datetime.now(datetime.UTC), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, secrecy = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "ca.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, secrecy))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return tls


async def test_a_certificate_is_verified_with_the_authorities_that_are_configured(tmp_path: Path) -> None:
    tls = _certificate(tmp_path)
    async with serving(tls=tls) as (server, api):
        with pytest.raises(Transient, match="certificate verify failed"):
            await api.call("GET", "/things")
        assert server.asked == []
    async with serving(tls=tls, ca_file=str(tmp_path / "ca.pem")) as (_, api):
        assert await api.call("GET", "/things") == {"ok": True}


async def test_calls_are_sent_side_by_side() -> None:
    async with serving() as (server, api):
        both = asyncio.Barrier(2)

        async def answer() -> web.Response:
            await both.wait()
            return web.json_response("together")

        server.answer = lambda request: answer()
        assert await asyncio.gather(api.call("GET", "/a"), api.call("GET", "/b")) == ["together"] * 2


async def test_a_second_start_leaves_no_connection_of_the_first() -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    async with serving() as (_, api):
        await api.call("GET", "/things")
        await api.open()
        gc.collect()
        assert await api.call("GET", "/things") == {"ok": True}
    assert complaints == []


def paged(pages: dict[str, Any]) -> Callable[[web.Request], web.Response]:
    return lambda request: web.json_response(pages[request.query.get("page", "")])


async def test_all_pages_come_in_order() -> None:
    async with serving() as (server, api):
        server.answer = paged({"": {"rows": [1], "next": "b", "total": 3}, "b": {"rows": [2, 3], "next": None}})
        assert await api.rows("/things", "rows", query=[("q", "x")]) == [1, 2, 3]
        assert [path for _, path, _, _ in server.asked] == ["/v1/things?q=x", "/v1/things?q=x&page=b"]
        assert await api.page("/things", "rows", None) == ([1], "b", 3)
        server.answer = paged({"": {"rows": [1], "next": "b", "total": 2}, "b": {"rows": [2], "total": 2}})
        assert await api.rows("/things", "rows") == [1, 2]


@pytest.mark.parametrize(
    ("pages", "why"),
    [
        ({"": {"rows": [1], "next": None, "total": 2}}, "1 of 2"),
        ({"": {"rows": [1], "next": "b"}, "b": {"rows": [], "next": "b"}}, "refers to itself"),
        ({"": {"rows": [], "next": "b"}, "b": {"rows": [], "next": "c"}, "c": {"rows": [], "next": "b"}}, "page twice"),
        ({"": {"row": []}}, "no list of rows"),
        ({"": {"rows": {"1": 1}}}, "no list of rows"),
        ({"": []}, "no list of rows"),
        ({"": None}, "no list of rows"),
    ],
)
async def test_a_listing_that_is_cut_short_or_odd_is_transient(pages: dict[str, Any], why: str) -> None:
    async with serving() as (server, api):
        server.answer = paged(pages)
        with pytest.raises(Transient, match=why):
            await api.rows("/things", "rows")


class Shrinking:
    """Rows 1 to 5, two on a page. In the first `times` listings, a row is deleted before page 2 is read."""

    def __init__(self, times: int) -> None:
        self.rows, self.left = [1, 2, 3, 4, 5], times

    def __call__(self, request: web.Request) -> web.Response:
        number = int(request.query.get("page", "1"))
        if number == 2 and self.left:
            self.left -= 1
            del self.rows[0]
        more = str(number + 1) if number * 2 < len(self.rows) else None
        rows = self.rows[number * 2 - 2 : number * 2]
        return web.json_response({"rows": rows, "next": more, "total": len(self.rows)})


@pytest.mark.parametrize(("times", "rows"), [(0, [1, 2, 3, 4, 5]), (1, [2, 3, 4, 5]), (2, [3, 4, 5])])
async def test_no_row_is_missed_if_another_one_goes_meanwhile(times: int, rows: list[int]) -> None:
    async with serving() as (server, api):
        server.answer = Shrinking(times)
        assert await api.rows("/things", "rows") == rows


async def test_a_listing_that_always_shrinks_is_transient() -> None:
    async with serving() as (server, api):
        server.answer = Shrinking(READINGS)
        with pytest.raises(Transient, match="rows disappeared each time"):
            await api.rows("/things", "rows")
        assert len(server.asked) <= 3 * READINGS


async def test_what_the_cloud_says_is_quoted_short_and_on_one_line() -> None:
    async with serving() as (server, api):
        server.answer = lambda request: refusal(409, "taken", "a\nb\x1b[31m" + "x" * 10_000)
        with pytest.raises(Conflict) as caught:
            await api.call("POST", "/things")
        assert str(caught.value).isprintable() and len(str(caught.value)) < 500


async def test_an_error_that_quotes_the_request_has_no_credential() -> None:
    async with serving() as (server, api):
        server.answer = lambda request: refusal(500, message=f"{'x' * 280} {request.headers['Authorization']}")
        with pytest.raises(Transient, match=r"x Bearer \*\*\*") as caught:
            await api.call("GET", "/things")
        assert SECRET[:5] not in str(caught.value)


async def test_a_form_is_sent_as_one_and_its_secret_fields_are_quoted_nowhere() -> None:
    """Secret fields are hidden in every spelling: a cloud may quote them decoded or URL-encoded."""
    dialect = Dialect(failure=DIALECT.failure, secret_fields=frozenset({"signature"}))
    signature = "q1+Zk/9w8=="

    async def refuse(request: web.Request) -> web.Response:
        fields = dict(await request.post())
        return refusal(500, message=f"{fields} {signature} q1%2BZk%2F9w8%3D%3D q1%2BZk/9w8%3D%3D")

    async with serving(dialect) as (server, api):
        server.answer = refuse
        with pytest.raises(Transient) as caught:
            await api.call("POST", "", form=[("command", "listThings"), ("signature", signature)], name="listThings")
        assert str(caught.value).startswith("listThings: 500 ") and "'command': 'listThings'" in str(caught.value)
        assert "9w8" not in str(caught.value) and "***" in str(caught.value)


async def test_secrets_of_calls_side_by_side_are_not_mixed_up() -> None:
    dialect = Dialect(failure=DIALECT.failure, secret_fields=frozenset({"signature"}))

    async def refuse(request: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return refusal(500, message=f"you sent {request.query['signature']}")

    async with serving(dialect) as (server, api):
        server.answer = refuse
        calls = (api.call("GET", "/things", query=[("signature", f"signature-{each}")]) for each in range(5))
        for error in await asyncio.gather(*calls, return_exceptions=True):
            assert "you sent ***" in str(error)


async def test_a_certificate_is_not_verified_where_the_configuration_says_so(tmp_path: Path) -> None:
    tls = _certificate(tmp_path)
    async with serving(tls=tls, verify=False) as (_, api):
        assert await api.call("GET", "/things") == {"ok": True}
    async with serving(tls=tls) as (_, api):
        with pytest.raises(Transient, match="certificate"):
            await api.call("GET", "/things")

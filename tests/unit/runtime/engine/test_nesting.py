# SPDX-License-Identifier: Apache-2.0
"""JSON that is nested too deeply for the decoder: what is cut off, and how long that takes."""

import asyncio
import json
import time

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from ccm.engine.api_credentials import Access
from ccm.engine.client import KubeClient
from ccm.engine.informer import Informer
from ccm.engine.nesting import DEEPEST, decode, shallow
from ccm.engine.objects import Service, decoder

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")

#: The API server serves at most 10,000 levels.
LEVELS = 9990


def deep(levels=LEVELS):
    """Return a deeply nested fieldsV1, as anybody may write it."""
    return '{"f:a":' * levels + "{}" + "}" * levels


def service(name, version=1, fields="{}"):
    return (
        f'{{"metadata":{{"name":"{name}","namespace":"d","uid":"{name}","resourceVersion":"{version}",'
        f'"managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"type":"LoadBalancer"}}}}'
    )


def levels_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


def cut(value, deepest):
    """Cut off what is nested too deeply, recursively: the reference with which `shallow` is compared."""
    if not isinstance(value, dict | list):
        return value
    if deepest == 0:
        return None
    if isinstance(value, list):
        return [cut(each, deepest - 1) for each in value]
    return {key: cut(each, deepest - 1) for key, each in value.items()}


TEXT = st.text(st.sampled_from('ab"\\{}[],:\n\u2028\x00'), max_size=5)
VALUES = st.recursive(
    st.none() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=20,
)


@given(VALUES, st.integers(1, 4), st.booleans())
def test_only_what_is_too_deep_becomes_null(value, deepest, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert json.loads(shallow(data, deepest)) == cut(value, deepest)
    assert levels_of(cut(value, deepest)) <= deepest


@given(st.binary(max_size=50) | st.text('"\\{}[]a', max_size=50).map(str.encode))
def test_what_is_no_json_raises_nothing(data):
    assert isinstance(shallow(data, 2), bytes)


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b"a" * 3_000_000,
        b'"a",' * 800_000,
        b'"\\"\\' * 800_000,
        b"[" * 1_000_000,
        b"]" * 1_000_000,
        b'{"a":' * 300_000,
        deep().encode() * 20,
    ],
    ids=["open-string", "strings", "escapes", "openers", "closers", "open-objects", "deep"],
)
def test_the_time_is_linear(data):
    """The inputs are as large as the API server accepts in one request; quadratic time would be minutes."""
    started = time.thread_time()
    shallow(data)
    assert time.thread_time() - started < 3.0


async def test_an_object_within_the_decoders_reach_is_left_as_it_is():
    decoded = await decode(decoder(Service), service("a", fields=deep(DEEPEST + 10)).encode())
    assert decoded.metadata.name == "a"


async def test_what_no_decoder_understands_stays_an_error():
    with pytest.raises(msgspec.MsgspecError):
        await decode(decoder(Service), deep().encode() + b"}")


async def test_a_deeply_nested_service_keeps_no_other_away():
    """LIST and WATCH succeed. Otherwise the list would fail for ever and block every controller of the cluster."""

    async def api(request):
        if "watch" not in request.query:
            items = ",".join([service("healthy"), service("hostile", fields=deep())])
            return web.Response(
                text=f'{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}', content_type="application/json"
            )
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for version, (name, fields) in enumerate([("hostile", deep()), ("late", "{}")], 6):
            line = f'{{"type":"MODIFIED","object":{service(name, version, fields)}}}\n'
            await answer.write(line.encode())
        await asyncio.Event().wait()
        return answer

    app = web.Application()
    app.router.add_get("/api/v1/services", api)
    async with TestServer(app) as server:
        client = KubeClient(Access(str(server.make_url("")).rstrip("/")))
        informer: Informer[Service] = Informer(client, "/api/v1/services", Service, name="nested")
        task = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(60):
                await informer.wait_synced()
                while informer.get("d/late") is None:
                    await asyncio.sleep(0.01)
        finally:
            task.cancel()
            await asyncio.wait({task})
            await client.close()
    assert informer.last_error == ""
    hostile = informer.get("d/hostile")
    assert hostile is not None and hostile.metadata.resource_version == "6" and hostile.spec.type == "LoadBalancer"

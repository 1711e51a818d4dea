# SPDX-License-Identifier: Apache-2.0
"""Login, discovery of services, and what each kind of failure means."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from keystoneauth1.exceptions import ConnectTimeout

from ccm.cloud import (
    CloudError,
    ConfigError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotImplementedByCloud,
    ProviderConfig,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
    VolumeRef,
)
from ccm.cloud.toolkit.retry_after import retry_after
from ccm.gateway.breaker import BREAKER_THRESHOLD
from ccm.gateway.gateway import Gateway
from ccm.providers.openstack import OpenStackCloud, credentials, errors
from ccm.providers.openstack.api import COMPUTE, LOAD_BALANCER, NETWORK
from ccm.providers.openstack.errors import error_of

from .fake_cloud import CONFIG, PROJECT, FakeCloud, running, serving

ID = "8966d986-aa0d-4eb6-998f-b8d154778e3c"


def nova(kind: str, message: str) -> str:
    return json.dumps({kind: {"code": 0, "message": message}})


def neutron(kind: str, message: str) -> str:
    return json.dumps({"NeutronError": {"type": kind, "message": message, "detail": ""}})


def octavia(message: str) -> str:
    return json.dumps({"faultcode": "Client", "faultstring": message, "debuginfo": None})


@pytest.mark.parametrize(
    ("status", "body", "expected", "message"),
    [
        (404, nova("itemNotFound", f"Instance {ID} could not be found."), NotFound, ID),
        (404, neutron("PortNotFound", f"Port {ID} could not be found."), NotFound, ID),
        (404, octavia(f"Load Balancer {ID} not found."), NotFound, ID),
        (404, nova("itemNotFound", "The resource could not be found."), Transient, "resource"),
        (404, neutron("SubnetNotFound", "Subnet other could not be found."), Transient, "other"),
        (404, "<html>nginx</html>", Transient, "not from network itself"),
        (404, "", Transient, "no reason"),
        (401, nova("error", "expired"), Unauthorized, "refused the token"),
        (403, octavia("Policy does not allow this request to be performed."), Unauthorized, "is missing a role"),
        (403, octavia("Quota has been met for resources: Load Balancer"), QuotaExceeded, "Quota"),
        (403, nova("forbidden", "Quota exceeded for instances"), QuotaExceeded, "Quota"),
        (403, "<html>WAF</html>", Transient, "not from network itself"),
        (409, neutron("OverQuota", "Quota exceeded for resources: ['port']."), QuotaExceeded, "Quota"),
        (409, neutron("IpAddressGenerationFailure", "No more IP addresses available"), QuotaExceeded, "No more"),
        (409, octavia(f"Load Balancer {ID} is immutable and cannot be updated."), RetryAfter, "immutable"),
        (409, octavia(f"Invalid state PENDING_UPDATE of loadbalancer resource {ID}"), RetryAfter, "PENDING_UPDATE"),
        (409, neutron("PortInUse", "in use"), Conflict, "in use"),
        (412, neutron("RevisionNumberConstraintFailed", "Constrained to 1, but is 2"), RetryAfter, "same time"),
        (400, neutron("InvalidRoutes", "Invalid format for routes"), Invalid, "Invalid format"),
        (422, octavia("Validation failure"), Invalid, "Validation"),
        (429, "slow down", RateLimited, "slow"),
        (413, nova("overLimit", "This request was rate-limited."), RateLimited, "rate-limited"),
        (501, octavia("Provider 'ovn' does not support a requested option: flavor"), Invalid, "does not support"),
        (501, "<html>proxy</html>", Transient, "not from network itself"),
        (500, nova("computeFault", "Unexpected API Error."), Transient, "Unexpected"),
        (503, "<html>no backend</html>", Transient, "503"),
        (302, "", Transient, "302"),
    ],
)
def test_what_an_answer_means(status: int, body: str, expected: type[CloudError], message: str) -> None:
    error = error_of("GET network /x", "network", status, {}, body.encode(), ID)
    assert type(error) is expected
    assert message in str(error) and str(error).startswith("GET network /x: ")


def test_a_missing_role_is_named() -> None:
    error = error_of("POST load-balancer /lbaas", "load-balancer", 403, {}, octavia("Policy does not allow").encode())
    assert "load-balancer_member" in str(error)


async def test_a_service_that_policy_refuses_holds_back_no_other() -> None:
    """For example, only administrators may choose a new floating IP's address, which this loadBalancerIP would need."""
    gate = Gateway(
        OpenStackCloud(ProviderConfig(CONFIG.format(url="http://k", project=PROJECT, more=""), "cloud.conf"))
    )
    refusal = neutron("PolicyNotAuthorized", "disallowed by policy").encode()

    async def refused() -> None:
        raise error_of("POST network /floatingips", NETWORK, 403, {}, refusal)

    async def served() -> None:
        return None

    for _ in range(2 * BREAKER_THRESHOLD):
        with pytest.raises(Forbidden, match="is missing a role"):
            await gate.call("group.ensure", refused)
    await gate.call("group.other", served)
    assert gate.failing_since is None
    await gate.close()


def test_a_404_is_nothing_where_no_thing_was_asked_for() -> None:
    body = nova("itemNotFound", f"Instance {ID} could not be found.").encode()
    assert type(error_of("GET compute /x", "compute", 404, {}, body)) is Transient


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("7", b"", 7.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", b"", 90.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", b"", 0.0),
        ("soon", b"", None),
        ("", b'{"overLimit": {"retryAfter": "57"}}', 57.0),
        ("", b"", None),
    ],
)
def test_when_to_come_back(header: str, body: bytes, expected: float | None) -> None:
    assert retry_after({"Retry-After": header}, body, 10.0) == expected


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff", b'{"a": 1}', b'{"error": "x"}', b'{"x": {"y": 1}}'])
def test_what_is_no_error_of_a_service(body: bytes) -> None:
    assert errors.service_error(body) is None


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (octavia("no"), "Client", "no"),
        (json.dumps({"faultstring": "no"}), "", "no"),
        (nova("itemNotFound", "no"), "itemNotFound", "no"),
        (neutron("PortNotFound", "no"), "PortNotFound", "no"),
        (json.dumps({"NeutronError": "no"}), "NeutronError", "no"),
    ],
)
def test_the_kind_and_the_message_of_a_services_error(body: str, kind: str, message: str) -> None:
    assert errors.service_error(body.encode()) == (kind, message)


def test_an_exception_of_the_operating_system_is_quoted_and_one_of_the_library_is_not() -> None:
    refused = errors.translated(OSError("refused\n" + "x" * 500), "cloud.conf", 60.0)
    assert type(refused) is Transient and str(refused).startswith("cloud.conf: refused x")
    assert len(str(refused)) == len("cloud.conf: ") + 400
    bug = errors.translated(KeyError("very-secret"), "cloud.conf", 60.0)
    assert type(bug) is Transient and str(bug) == "cloud.conf: the client library failed with KeyError"


def test_a_request_without_an_answer_says_how_long_it_waited_and_which_key_sets_that() -> None:
    """keystoneauth raises ConnectTimeout if no connection is made in time, and also if no answer comes in time."""
    late = errors.translated(ConnectTimeout("Request to https://nova timed out"), "cloud.conf", 60.0)
    assert type(late) is Transient
    assert str(late) == (
        "cloud.conf: Request to https://nova timed out: no answer within 60 s (set by request-timeout of [Metadata])"
    )


async def test_one_login_serves_all_calls_and_a_refused_token_is_renewed_once() -> None:
    async with running() as (cloud, provider):
        await provider.instances.list_page(None)
        assert cloud.logins == 1
        cloud.tokens += 1  # the provider's token is no longer valid
        await provider.instances.list_page(None)
        assert cloud.logins == 2
        assert cloud.calls == ["GET compute /servers/detail"] * 3


def quoting(request: web.Request, body: str = "", status: int = 503) -> web.Response:
    """Answer with the whole request, including headers and body, as some gateways do."""
    heads = " ".join(f"{name}: {text}" for name, text in request.headers.items())
    return web.json_response({"error": {"code": status, "message": f"overloaded: {heads} {body}"}}, status=status)


@pytest.mark.parametrize("is_own", [True, False], ids=["the-service", "a-proxy"])
async def test_a_token_that_a_service_quotes_is_in_no_error_and_no_log(
    is_own: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cloud = FakeCloud()
    cloud.tokens = 10**6
    async with running(cloud) as (_, provider):
        await provider.instances.list_page(None)
        token = f"token-{cloud.tokens}"
        cloud.answer["GET compute .*"] = lambda request: (
            quoting(request) if is_own else web.Response(status=502, text=request.headers["X-Auth-Token"])
        )
        with pytest.raises(Transient, match=r"\*\*\*") as caught:
            await provider.instances.list_page(None)
    assert token not in str(caught.value) and token not in caplog.text
    assert "/servers/detail" in caplog.text, "the log has the requests"


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
async def test_a_password_that_keystone_quotes_is_in_no_error_and_no_log(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cloud = FakeCloud()

    async def quote(request: web.Request) -> web.Response:
        return quoting(request, await request.text(), status)

    cloud.answer["login"] = quote
    with pytest.raises(CloudError) as caught:
        async with running(cloud):
            pass
    assert cloud.logins == 1
    assert "very-secret" not in f"{caught.value} {caught.value!r} {caplog.text}"


async def test_credentials_that_are_no_longer_good() -> None:
    async with running() as (cloud, provider):
        refused = {"error": {"code": 401, "message": "The request you have made requires authentication."}}
        cloud.tokens += 1
        cloud.answer["login"] = lambda _: web.json_response(refused, status=401)
        with pytest.raises(Unauthorized, match=r"cloud.conf.*does not accept the credentials of \[Global\]") as caught:
            await provider.instances.list_page(None)
        assert "very-secret" not in str(caught.value)
        assert cloud.logins == 2


async def test_a_token_that_is_refused_again_and_again_ends_after_one_new_one() -> None:
    async with running() as (cloud, provider):
        cloud.answer["GET compute .*"] = lambda _: web.json_response({"error": {"message": "no"}}, status=401)
        with pytest.raises(Unauthorized):
            await provider.instances.list_page(None)
        assert cloud.logins == 2 and len(cloud.calls) == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ConfigError),
        (401, Unauthorized),
        (403, Unauthorized),
        (409, Transient),
        (429, RateLimited),
        (500, Transient),
        (503, Transient),
    ],
)
async def test_a_start_that_is_refused(status: int, expected: type[CloudError]) -> None:
    cloud = FakeCloud()
    body = {"error": {"code": status, "message": "no"}}
    cloud.answer["login"] = lambda _: web.json_response(body, status=status, headers={"Retry-After": "7"})
    with pytest.raises(expected) as caught:
        async with running(cloud):
            pass
    assert "very-secret" not in str(caught.value)
    if expected is RateLimited:
        assert caught.value.retry_after == 7


async def test_nobody_is_there() -> None:
    text = CONFIG.format(url="http://127.0.0.1:9", project=PROJECT, more="")
    provider = OpenStackCloud(ProviderConfig(text, "cloud.conf"))
    with pytest.raises(Transient, match=r"cloud.conf"):
        await provider.start()
    await provider.close()


async def test_services_that_the_catalogue_lacks_are_told_together() -> None:
    cloud = FakeCloud()
    cloud.services = ["compute"]
    with pytest.raises(
        ConfigError, match=r"no public endpoint of network, load-balancer in region 'north'.*enabled=false"
    ):
        async with running(cloud):
            pass
    cloud.services = ["compute", "network"]
    async with running(cloud, more="[LoadBalancer]\nenabled=false") as (_, provider):
        assert provider.load_balancers is None


async def test_a_region_that_is_not_there() -> None:
    cloud = FakeCloud()
    async with serving(cloud):
        text = CONFIG.format(url=cloud.url, project=PROJECT, more="").replace("north", "south")
        provider = OpenStackCloud(ProviderConfig(text, "cloud.conf"))
        with pytest.raises(ConfigError, match="in region 'south'"):
            await provider.start()
        await provider.close()


async def test_clouds_yaml(tmp_path: Path) -> None:
    cloud = FakeCloud()
    async with serving(cloud):
        path = tmp_path / "clouds.yaml"
        auth = {
            "auth_url": f"{cloud.url}/identity/v3",
            "username": "ccm",
            "password": "very-secret",
            "project_id": PROJECT,
            "user_domain_name": "Default",
        }
        path.write_text(json.dumps({"clouds": {"mine": {"auth": auth, "region_name": "north"}}}))
        text = f"[Global]\nuse-clouds = true\nclouds-file = {path}\ncloud = mine\n[Runtime]\nregional = true\n"
        provider = OpenStackCloud(ProviderConfig(text, "cloud.conf"))
        await provider.start()
        machine = cloud.add_server("n")
        assert provider.instances.canonical(f"/{machine['id']}") == f"openstack://north/{machine['id']}"
        await provider.close()
        for wrong, told in (
            (text.replace("= mine", "= other"), "'other'"),
            (text.replace(str(path), "/no"), "file /no does not exist"),
        ):
            provider = OpenStackCloud(ProviderConfig(wrong, "cloud.conf"))
            with pytest.raises(ConfigError, match=told) as caught:
                await provider.start()
            assert "very-secret" not in str(caught.value)
            await provider.close()
        path.write_text("clouds: {mine: [very-secret")
        provider = OpenStackCloud(ProviderConfig(text, "cloud.conf"))
        with pytest.raises(ConfigError) as caught:
            await provider.start()
        assert "very-secret" not in str(caught.value)
        await provider.close()


async def test_files_that_are_not_there_are_told_together_with_their_lines(tmp_path: Path) -> None:
    """`start` reports the files, because the constructor does not read them."""
    key = tmp_path / "key.pem"
    key.touch()
    more = f"ca-file = {tmp_path}/ca.pem\ncert-file = {tmp_path}\nkey-file = {key}"
    provider = OpenStackCloud(ProviderConfig(CONFIG.format(url="http://k", project=PROJECT, more=more), "cloud.conf"))
    with pytest.raises(ConfigError) as caught:
        await provider.start()
    assert caught.value.problems == [
        f"cloud.conf: line 8: [Global] ca-file: file {tmp_path}/ca.pem does not exist or is not readable",
        f"cloud.conf: line 9: [Global] cert-file: file {tmp_path} does not exist or is not readable",
    ]
    await provider.close()


def test_changes_of_files_that_cloud_conf_names_are_noticed() -> None:
    """A CA can be renewed without a change of cloud.conf."""
    more = "ca-file = /etc/config/ca.crt\ncert-file = /etc/config/tls.crt\nkey-file = /etc/config/tls.key"
    watched = OpenStackCloud(ProviderConfig(CONFIG.format(url="http://k", project=PROJECT, more=more))).watched_files
    assert sorted(watched) == ["/etc/config/ca.crt", "/etc/config/tls.crt", "/etc/config/tls.key"]
    assert not OpenStackCloud(ProviderConfig(CONFIG.format(url="http://k", project=PROJECT, more=""))).watched_files


def test_the_sdk_is_imported_by_a_start_only() -> None:
    """The SDK takes longer to import than everything else, and users of other providers need not install it."""
    text = CONFIG.format(url="http://127.0.0.1:9", project=PROJECT, more="")
    code = (
        "import sys; from ccm.cloud import ProviderConfig; from ccm.providers.openstack import OpenStackCloud\n"
        f"OpenStackCloud(ProviderConfig({text!r}, 'cloud.conf'))\n"
        "print({'openstack', 'keystoneauth1'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "set()\n"


async def test_as_many_connections_as_threads(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (cloud, provider):
        machine = cloud.add_server("n", "10.0.0.1")

        async def slow(_: web.Request) -> web.Response:
            await asyncio.sleep(0.2)
            return web.json_response({"server": machine})

        cloud.answer["GET compute /servers/.*"] = slow
        path = f"/servers/{machine['id']}"
        for _ in range(2):
            await asyncio.gather(*(provider._api.call("GET", COMPUTE, path) for _ in range(20)))
    assert "pool is full" not in caplog.text


async def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD", "OS_REGION_NAME", "OS_CLOUD", "OS_PROJECT_ID"):
        monkeypatch.setenv(name, "nonsense")
    async with running() as (cloud, _):
        assert cloud.logins == 1


@pytest.mark.parametrize(
    "answer",
    [
        web.json_response({"other": []}),
        web.json_response([]),
        web.json_response({"servers": [{"name": "no id"}]}),
        web.Response(text="{"),
        web.Response(text=""),
    ],
    ids=["other", "list", "no id", "cut", "nothing"],
)
async def test_a_listing_in_another_shape_is_none(answer: web.Response) -> None:
    async with running() as (cloud, provider):
        text, status = answer.text, answer.status
        cloud.answer["GET compute /servers/detail"] = lambda _: web.Response(text=text, status=status)
        with pytest.raises(Transient):
            await provider.instances.list_page(None)


async def test_an_answer_cut_short_is_none() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"servers": []}')
        assert request.transport is not None
        request.transport.close()
        return response

    async with running() as (cloud, provider):
        cloud.answer["GET compute /servers/detail"] = cut
        with pytest.raises(Transient):
            await provider.instances.list_page(None)
        del cloud.answer["GET compute /servers/detail"]
        await provider.instances.list_page(None)


async def test_a_page_that_names_itself_as_the_next_ends() -> None:
    def same(_: web.Request) -> web.Response:
        return web.json_response({"ports": [{"id": "a"}], "ports_links": [{"rel": "next", "href": "x"}]})

    async with running() as (cloud, provider):
        cloud.answer["GET network /ports"] = same
        with pytest.raises(Transient, match="starts again at marker"):
            await provider._api.pages(NETWORK, "/ports", "ports")


@pytest.mark.parametrize("status", [404, 503])
async def test_versions_that_cannot_be_read_now_are_asked_for_again(status: int) -> None:
    """A failed first request does not mean that Octavia is old or missing: the next call reads versions again."""
    cloud = FakeCloud()
    told, failing = cloud._versions, [True]

    async def versions(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="<html></html>") if failing else await told(request)

    cloud._versions = versions  # type: ignore[method-assign]
    async with running(cloud) as (_, provider):
        api = provider.load_balancers._api  # type: ignore[union-attr]
        cloud.answer[".*"] = lambda request: web.Response(status=status, text="<html></html>")
        with pytest.raises(Transient, match=r"load-balancer.*version"):
            await api.version(LOAD_BALANCER)
        failing.clear()
        cloud.answer.clear()
        assert await api.version(LOAD_BALANCER) == (2, 27)


async def test_volumes_have_zone_and_region() -> None:
    async with running() as (cloud, provider):
        cloud.volumes[ID] = {"id": ID, "availability_zone": "zone b"}
        found = await provider.volumes.labels(VolumeRef("cinder.csi.openstack.org", ID))
        assert found == {"topology.kubernetes.io/zone": "zone-b", "topology.kubernetes.io/region": "north"}
        assert await provider.volumes.labels(VolumeRef("kubernetes.io/cinder", ID.upper())) == found
        with pytest.raises(NotFound):
            await provider.volumes.labels(VolumeRef("kubernetes.io/cinder", ID.replace("8", "9")))
        with pytest.raises(Invalid):
            await provider.volumes.labels(VolumeRef("kubernetes.io/cinder", "../servers"))
        with pytest.raises(NotImplementedByCloud):
            await provider.volumes.labels(VolumeRef("ebs.csi.aws.com", ID))
    async with running(more="[BlockStorage]\nignore-volume-az=true") as (cloud, provider):
        cloud.volumes[ID] = {"id": ID, "availability_zone": "b"}
        found = await provider.volumes.labels(VolumeRef("kubernetes.io/cinder", ID))
        assert found == {"topology.kubernetes.io/region": "north"}


async def test_a_cloud_without_cinder_has_no_volumes() -> None:
    cloud = FakeCloud()
    cloud.services.remove("block-storage")
    async with running(cloud) as (_, provider):
        with pytest.raises(NotImplementedByCloud, match="block-storage"):
            await provider.volumes.labels(VolumeRef("kubernetes.io/cinder", ID))


def test_the_sdk_is_asked_for_only_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        return None

    monkeypatch.setattr(credentials.importlib.util, "find_spec", nothing)
    with pytest.raises(ConfigError, match=r"pip install 'outoftree-ccm\[openstack\]'"):
        OpenStackCloud(ProviderConfig(CONFIG, "cloud.conf"))

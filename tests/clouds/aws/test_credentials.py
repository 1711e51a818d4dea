# SPDX-License-Identifier: Apache-2.0
"""Credentials of an assumed role and of a web identity, instance metadata, and errors about missing settings."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from ccm.cloud import ConfigError, ProviderConfig, Transient, Unauthorized
from ccm.providers.aws import AwsCloud

from .account import CLUSTER, KEYS, REGION, Account
from .proxy import Fault, Proxy
from .world import config

ROLE = "arn:aws:iam::123456789012:role/kube"


class Metadata(http.server.BaseHTTPRequestHandler):
    """The metadata service of one instance: IMDSv2 only, as in a hardened account."""

    answers: ClassVar[dict[str, str]] = {}
    seen: ClassVar[list[tuple[str, bool]]] = []

    def do_PUT(self) -> None:
        self._send(200, "a-token")

    def do_GET(self) -> None:
        has_token = self.headers.get("x-aws-ec2-metadata-token") == "a-token"
        self.seen.append((self.path, has_token))
        found = self.answers.get(self.path)
        self._send(401 if not has_token else 200 if found else 404, found or "")

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Log nothing: tests read `seen`."""


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Metadata]]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    Metadata.answers, Metadata.seen = {}, []
    yield Metadata
    server.shutdown()
    thread.join(5)
    server.server_close()


def environment(proxy: Proxy) -> dict[str, str]:
    """Return environment variables with keys, the endpoint, and the metadata service."""
    variable = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    return {**KEYS, "AWS_ENDPOINT_URL": proxy.url, variable: os.environ[variable]}


async def test_all_calls_assume_the_role_of_cloud_conf(account: Account, proxy: Proxy, connect) -> None:
    source = "arn:aws:eks:eu-central-1:123456789012:cluster/kube"
    cloud = await connect(config(account, proxy, f"RoleARN = {ROLE}\nSourceARN = {source}"))
    await cloud.instances.list_page(None)
    assert proxy.calls == ["AssumeRole", "DescribeAvailabilityZones", "DescribeInstances"]
    assert proxy.headers("AssumeRole")["x-amz-source-arn"] == source
    assert proxy.headers("AssumeRole")["x-amz-source-account"] == "123456789012"
    assert KEYS["AWS_ACCESS_KEY_ID"] in proxy.headers("AssumeRole")["authorization"]
    assert KEYS["AWS_ACCESS_KEY_ID"] not in proxy.headers("DescribeInstances")["authorization"]


async def test_a_role_that_may_not_be_assumed_is_unauthorized(account: Account, proxy: Proxy) -> None:
    cloud = AwsCloud(config(account, proxy, f"RoleARN = {ROLE}"))
    with (
        proxy.broken(Fault("status", call="AssumeRole", status=403, code="AccessDenied")),
        pytest.raises(Unauthorized, match="AssumeRole"),
    ):
        await cloud.start()
    await cloud.close()


async def test_a_role_is_asked_for_once_because_the_framework_tries_again(account: Account, proxy: Proxy) -> None:
    cloud = AwsCloud(config(account, proxy, f"RoleARN = {ROLE}"))
    with proxy.broken(Fault("status", call="AssumeRole", status=500)), pytest.raises(Transient):
        await cloud.start()
    assert proxy.calls == ["AssumeRole"]
    await cloud.close()


@pytest.fixture
def of_service_account(
    account: Account, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProviderConfig:
    """Return the configuration of a Pod that has a role by its ServiceAccount's token."""
    token = tmp_path / "token"
    token.write_text("a.web.token")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    given = config(account, proxy)
    return ProviderConfig(given.text, given.source, {"AWS_ENDPOINT_URL": proxy.url})


async def test_a_pod_has_the_identity_of_its_service_account(proxy, connect, of_service_account) -> None:
    cloud = await connect(of_service_account)
    await cloud.instances.list_page(None)
    assert proxy.calls == ["AssumeRoleWithWebIdentity", "DescribeAvailabilityZones", "DescribeInstances"]


async def test_an_identity_is_asked_for_once_because_the_framework_tries_again(proxy, of_service_account) -> None:
    cloud = AwsCloud(of_service_account)
    with proxy.broken(Fault("status", call="AssumeRoleWithWebIdentity", status=500)), pytest.raises(Transient):
        await cloud.start()
    assert proxy.calls == ["AssumeRoleWithWebIdentity"]
    await cloud.close()


async def test_without_a_file_metadata_says_what_is_needed(account, proxy, connect, metadata) -> None:
    own = account.run()["InstanceId"]
    metadata.answers = {"/latest/meta-data/placement/region": REGION, "/latest/meta-data/instance-id": own}
    cloud = await connect(ProviderConfig("", "(none)", environment(proxy)))
    (found,) = (await cloud.instances.list_page(None)).instances
    assert found.provider_id.endswith(own)
    assert (cloud._api.cluster, cloud._api.vpc, cloud._api.subnet) == (
        CLUSTER,
        account.vpc,
        account.subnets["public-a"],
    )
    assert metadata.seen
    assert all(has_token for _, has_token in metadata.seen)


async def test_elsewhere_the_region_and_the_vpc_must_be_configured(account, proxy, metadata) -> None:
    variables = environment(proxy)
    for text, given, said in (
        ("", variables, "the region is unknown"),
        ("[Global]\nKubernetesClusterID = kube", {**variables, "AWS_REGION": REGION}, "the VPC is unknown"),
    ):
        cloud = AwsCloud(ProviderConfig(text, "cloud.conf", given))
        with pytest.raises(ConfigError, match=f"cloud.conf: {said}"):
            await cloud.start()
        await cloud.close()


async def test_no_credentials_are_unauthorized(account, proxy, metadata, monkeypatch, tmp_path) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    given = config(account, proxy)
    cloud = AwsCloud(ProviderConfig(given.text, given.source, {"AWS_ENDPOINT_URL": proxy.url}))
    with pytest.raises(Unauthorized, match="no credentials can be used"):
        await cloud.start()
    await cloud.close()

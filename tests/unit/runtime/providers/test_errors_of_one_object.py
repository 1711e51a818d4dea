# SPDX-License-Identifier: Apache-2.0
"""Which errors of a cloud concern only one object, so that they open no breaker for other objects."""

from __future__ import annotations

import json

import pytest

from ccm.cloud import Invalid, RetryAfter, Transient, Unauthorized
from ccm.providers.aws.errors import translated
from ccm.providers.cloudstack import api as cloudstack_api
from ccm.providers.openstack.errors import error_of

pytestmark = pytest.mark.threat("tenant-cannot-stop-the-controller")


class AwsError(Exception):
    def __init__(self, operation: str, code: str, status: int) -> None:
        self.operation_name = operation
        self.response = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("operation", "code", "status", "kind", "scope"),
    [
        ("CreateListener", "UnsupportedCertificate", 400, Transient, "object"),
        ("CreateLoadBalancer", "InsufficientFreeAddressesInSubnet", 400, Transient, "object"),
        ("CreateLoadBalancer", "InvalidAllocationID.NotFound", 400, Transient, "object"),
        ("ModifyLoadBalancerAttributes", "S3AccessDenied", 403, Transient, "object"),
        ("CreateLoadBalancer", "SomethingNew", 409, Transient, "object"),
        ("CreateLoadBalancer", "InternalError", 500, Transient, "all"),
        ("DescribeInstances", "ServiceUnavailable", 503, Transient, "all"),
        ("CreateLoadBalancer", "404", 404, Transient, "all"),  # a proxy's page
        ("CreateLoadBalancer", "", 502, Transient, "all"),
        ("CreateLoadBalancer", "AccessDenied", 403, Unauthorized, "object"),
        ("DescribeInstances", "UnauthorizedOperation", 403, Unauthorized, "all"),
        ("CreateLoadBalancer", "ExpiredToken", 403, Unauthorized, "all"),
    ],
)
def test_aws(operation: str, code: str, status: int, kind: type, scope: str) -> None:
    found = translated(AwsError(operation, code, status), 10.0)
    assert type(found) is kind and isinstance(found, Transient | Unauthorized) and found.scope == scope


FAULT = json.dumps({"faultcode": "Server", "faultstring": "Provider 'x' reports error: no"}).encode()


@pytest.mark.parametrize(
    ("what", "status", "content", "scope"),
    [
        ("POST /v2/lbaas/loadbalancers", 500, FAULT, "object"),
        ("POST /v2/lbaas/loadbalancers", 418, FAULT, "object"),
        ("GET /v2/lbaas/loadbalancers", 500, FAULT, "all"),
        ("POST /v2/lbaas/loadbalancers", 500, b"<html>", "all"),
        ("POST /v2/lbaas/loadbalancers", 503, b"", "all"),
    ],
)
def test_octavia(what: str, status: int, content: bytes, scope: str) -> None:
    found = error_of(what, "load-balancer", status, {}, content)
    assert isinstance(found, Transient) and found.scope == scope


@pytest.mark.parametrize("code", [530, 534, 599, "?"])
def test_a_failed_job_of_cloudstack(code: object) -> None:
    found = cloudstack_api.failed("the creation", {"errorcode": code, "errortext": "no"}, 1.0)
    assert isinstance(found, Transient) and found.scope == "object"
    assert isinstance(cloudstack_api.failed("the creation", {"errorcode": 431}, 1.0), Invalid)
    assert isinstance(cloudstack_api.failed("the creation", {"errorcode": 536}, 1.0), RetryAfter)


@pytest.mark.parametrize(("command", "scope"), [("createLoadBalancerRule", "object"), ("listLoadBalancerRules", "all")])
async def test_a_write_that_cloudstack_fails(command: str, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(cloudstack_api.Api):
        async def call(self, *args: object, **more: object) -> object:
            raise Transient(f"{command}: 530 530 Internal error executing command")

    api = object.__new__(Failing)
    monkeypatch.setattr(cloudstack_api, "signed", lambda *args: {})
    api.settings = type("S", (), {"common": type("C", (), {"api_key": "k"})})()
    api._secret = "s"
    with pytest.raises(Transient) as error:
        await api.ask(command)
    assert error.value.scope == scope

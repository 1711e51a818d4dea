# SPDX-License-Identifier: Apache-2.0
"""Errors of AWS and botocore become errors of the contract."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from ccm.cloud import (
    CloudError,
    Conflict,
    Invalid,
    NotFound,
    QuotaExceeded,
    RateLimited,
    RetryAfter,
    Transient,
    Unauthorized,
)
from ccm.providers.aws import errors as api_errors

LATE = "AWS: no answer within 10 s (set by RequestTimeout of [Runtime])"


def translated(error: Exception) -> CloudError:
    return api_errors.translated(error, 10.0)


def answered(code: str, status: int = 400, operation: str = "DescribeInstances", **headers: str) -> ClientError:
    response = {
        "Error": {"Code": code, "Message": "so it is"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return ClientError(response, operation)


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("RequestLimitExceeded", 503, RateLimited),
        ("Throttling", 400, RateLimited),
        ("SomethingNew", 429, RateLimited),
        ("UnauthorizedOperation", 403, Unauthorized),
        ("ExpiredToken", 400, Unauthorized),
        ("403", 403, Unauthorized),
        ("DependencyViolation", 400, RetryAfter),
        ("ResourceInUse", 400, Conflict),
        ("OperationNotPermitted", 400, Conflict),
        ("TargetGroupAssociationLimit", 400, Conflict),
        ("InvalidPermission.Duplicate", 400, RetryAfter),
        ("InvalidTarget", 400, api_errors.UnfitInstance),
        ("InvalidInstance", 400, api_errors.UnfitInstance),
        ("InvalidInstanceID.Malformed", 400, Invalid),
        ("DependencyThrottle", 400, RateLimited),
        ("DuplicateTargetGroupName", 400, Conflict),
        ("InvalidSubnet", 400, Invalid),
        ("RulesPerSecurityGroupLimitExceeded", 400, QuotaExceeded),
        ("TooManyTargets", 400, QuotaExceeded),
        ("InvalidInstanceID.NotFound", 400, Transient),
        ("404", 404, Transient),
        ("InternalError", 500, Transient),
    ],
)
def test_a_code_decides(code, status, expected):
    found = translated(answered(code, status))
    assert type(found) is expected
    assert "DescribeInstances" in str(found)
    assert code in str(found)


def test_a_target_group_is_in_use_until_its_load_balancer_is_gone():
    found = translated(answered("ResourceInUse", operation="DeleteTargetGroup"))
    assert isinstance(found, RetryAfter)


def test_a_rate_limit_is_of_a_group_and_says_when():
    found = translated(answered("Throttling", 400, **{"retry-after": "7"}))
    assert isinstance(found, RateLimited)
    assert (found.retry_after, found.scope) == (7.0, "group")


def test_a_refusal_names_the_call_that_the_policy_must_allow():
    assert "their policy allows DescribeInstances" in str(translated(answered("AccessDenied", 403)))


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (NoCredentialsError(), Unauthorized, "no credentials can be used (NoCredentialsError)"),
        (ReadTimeoutError(endpoint_url="https://ec2"), Transient, LATE),
        (ConnectTimeoutError(endpoint_url="https://ec2"), Transient, LATE),
        (TimeoutError(), Transient, LATE),
        (EndpointConnectionError(endpoint_url="https://ec2"), Transient, "EndpointConnectionError"),
        (ValueError("odd"), Transient, "ValueError: odd"),
    ],
)
def test_errors_of_the_library(error, expected, message):
    found = translated(error)
    assert type(found) is expected
    assert message in str(found)


def test_an_error_of_the_contract_stays_as_it_is():
    error = Conflict("mine")
    assert translated(error) is error


def test_only_the_codes_that_are_asked_for_say_that_something_is_missing():
    error = answered("LoadBalancerNotFound")
    assert api_errors.is_missing(error, "TargetGroupNotFound", "LoadBalancerNotFound")
    assert not api_errors.is_missing(error, "TargetGroupNotFound")
    assert not api_errors.is_missing(ValueError(), "TargetGroupNotFound")
    found = api_errors.not_found(error, "load balancer a1")
    assert isinstance(found, NotFound)
    assert str(found) == "load balancer a1 does not exist (LoadBalancerNotFound)"

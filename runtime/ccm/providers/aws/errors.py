# SPDX-License-Identifier: Apache-2.0
"""Converts errors of botocore and of AWS to errors of the contract. Pure; it does not import botocore."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

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
from ccm.cloud.toolkit.retry_after import retry_after
from ccm.cloud.toolkit.untrusted_text import printable, shorten

#: How long to wait before the next attempt if something is BUSY, in seconds.
SOON = 5.0
#: The key that sets `request_timeout`, for messages.
TIMEOUT = "RequestTimeout of [Runtime]"

THROTTLED = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "RequestThrottled",
    "RequestThrottledException",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "BandwidthLimitExceeded",
    "DependencyThrottle",
}
REFUSED = {
    "AuthFailure",
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "InvalidClientTokenId",
    "UnrecognizedClientException",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "OptInRequired",
    "PendingVerification",
    "Blocked",
}
#: The codes of REFUSED that mean that the credentials are valid but do not allow this call.
NOT_ALLOWED = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
#: Another resource still uses the object, or AWS does not show a write everywhere yet.
BUSY = {
    "DependencyViolation",
    "IncorrectState",
    "IncorrectInstanceState",
    "DuplicateLoadBalancerName",
    "InvalidPermission.Duplicate",
}
#: Operations for which ResourceInUse is temporary: a load balancer that was deleted just now still uses its target
#: groups. For other operations the error stays, for example while an Elastic IP address is in use, or while an endpoint
#: service needs the load balancer.
RELEASED = {"DeleteTargetGroup"}
TAKEN = {
    "DuplicateListener",
    "DuplicateTargetGroupName",
    "RouteAlreadyExists",
    "InvalidGroup.Duplicate",
    "InvalidGroup.NotFound",
    "OperationNotPermitted",
    "ResourceInUse",
    "TargetGroupAssociationLimit",
}
WRONG = {
    "ValidationError",
    "InvalidParameterValue",
    "InvalidParameterCombination",
    "InvalidParameter",
    "InvalidConfigurationRequest",
    "InvalidSubnet",
    "InvalidSubnetID.NotFound",
    "SubnetNotFound",
    "CertificateNotFound",
    "SSLPolicyNotFound",
    "UnsupportedProtocol",
    "UnsupportedOperation",
    "IncompatibleProtocols",
    "InvalidScheme",
    "InvalidInstanceID.Malformed",
    "InvalidLoadBalancerAction",
    "AllocationIdNotFound",
    "AvailabilityZoneNotSupported",
    "InvalidSecurityGroup",
    "InvalidPermission.Malformed",
}
#: Codes that mean: an instance named in the request is not running or is gone, so AWS did nothing for the other
#: instances either.
UNFIT = {"InvalidTarget", "InvalidInstance"}
#: Errors of botocore about credentials, by the names of their classes.
NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "RefreshWithMFAUnsupportedError",
    "MetadataRetrievalError",
    "ProfileNotFound",
    "InvalidConfigError",
    "UnauthorizedSSOTokenError",
    "SSOTokenLoadError",
    "TokenRetrievalError",
}


class UnfitInstance(Invalid):
    """An instance named in the request is not running, or is gone."""


def code_of(error: BaseException) -> str:
    """Return the error code of an answer of AWS; "" for an error that is not such an answer."""
    response = getattr(error, "response", None)
    code = (response.get("Error") or {}).get("Code") if isinstance(response, dict) else None
    return str(code or "")


def translated(error: Exception, timeout: float) -> CloudError:
    """Return the contract's error for an error of botocore or AWS. Codes for a missing object do not come here, because
    `Api.call` handles them. `timeout`: the timeout of the request, in seconds."""
    if isinstance(error, CloudError):
        return error
    if isinstance(getattr(error, "response", None), dict):
        return _of_answer(error)
    name = type(error).__name__
    if name in NO_CREDENTIALS:
        # A message of botocore names profiles and files, never a key.
        return Unauthorized(f"AWS: no credentials can be used ({name}): {_short(str(error))}")
    if name in ("ReadTimeoutError", "ConnectTimeoutError") or isinstance(error, TimeoutError):
        return Transient.late("AWS", timeout, TIMEOUT)
    return Transient(f"AWS: {name}: {_short(str(error))}")


def _of_answer(error: Any) -> CloudError:
    response: Mapping[str, Any] = error.response
    code, metadata = code_of(error), response.get("ResponseMetadata") or {}
    status = int(metadata.get("HTTPStatusCode") or 0)
    headers = {str(key).title(): str(value) for key, value in (metadata.get("HTTPHeaders") or {}).items()}
    wait = retry_after(headers, b"", time.time())
    message = _short(str((response.get("Error") or {}).get("Message") or ""))
    operation = str(getattr(error, "operation_name", "") or "a call")
    text = f"AWS: {operation}: {code}{': ' if message else ''}{message}"
    if code in THROTTLED or status == 429:
        return RateLimited(text, retry_after=wait, scope="group")
    if code in REFUSED or (status in (401, 403) and code in ("", str(status))):
        # A refused read concerns all objects. A refused write may concern only one object, for example because of the
        # bucket that it names for logs.
        scope: Literal["all", "object"] = "object" if code in NOT_ALLOWED and not _reads(operation) else "all"
        return Unauthorized(f"{text}: check the credentials, and that their policy allows {operation}", scope=scope)
    if code in BUSY or (code == "ResourceInUse" and operation in RELEASED):
        return RetryAfter(text, SOON)
    if code in TAKEN:
        return Conflict(text)
    if code in UNFIT:
        return UnfitInstance(text)
    if code in WRONG:
        return Invalid(text)
    if code.endswith("LimitExceeded") or code.startswith("TooMany"):
        return QuotaExceeded(text)
    # Any other code: AWS refuses something that this call names. Calls for other objects may succeed.
    is_refusal = bool(code) and code != str(status) and 400 <= status < 500
    return Transient(text, retry_after=wait, scope="object" if is_refusal else "all")


def _reads(operation: str) -> bool:
    return operation.startswith(("Describe", "Get", "List"))


def is_missing(error: BaseException, *codes: str) -> bool:
    """Return whether the error has one of these codes, with which AWS reports that the object of the call does not
    exist."""
    return code_of(error) in codes


def not_found(error: Exception, what: str) -> NotFound:
    return NotFound(f"{what} does not exist ({code_of(error)})")


def _short(text: str) -> str:
    return shorten(printable(text), 300)

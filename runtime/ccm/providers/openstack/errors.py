# SPDX-License-Identifier: Apache-2.0
"""Maps responses of the cloud's services, and exceptions of the SDK, to errors of the contract. No I/O."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping

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
from ccm.cloud.toolkit.retry_after import retry_after
from ccm.cloud.toolkit.untrusted_text import concealed

#: Service -> the role that the user is missing if the service refuses a call, in a cloud with default policies.
ROLES = {
    "load-balancer": "member (load-balancer_member with older policies of Octavia)",
}
#: Seconds until the next request about an object that the cloud is still changing.
BUSY = 3.0
#: The key that sets `request_timeout`, for messages.
TIMEOUT = "request-timeout of [Metadata]"
#: The maximum number of characters quoted from an error that did not come from the service itself.
QUOTED = 200


def error_of(
    what: str,
    service: str,
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    missing: str = "",
    secrets: Iterable[str] = (),
) -> CloudError:
    """Return the contract's error for a failed request. Only the service's own 404 that names `missing` is NotFound.
    `secrets`: texts of the request that the error must not contain, although a service or a proxy may quote them."""
    own = service_error(content)
    kind, message = own or ("", content.decode("utf-8", "replace"))
    message = " ".join(concealed(message, secrets, shortest=1).split()) or "no reason given"
    message = message if own else message[:QUOTED]
    text = f"{what}: {status} {message if own else f'the response is not from {service} itself: {message!r}'}"
    match status:
        case 404 if own and missing and missing in message:
            return NotFound(text)
        case 401:
            return Unauthorized(f"{text}: the service refused the token, and also a new token for the same credentials")
        case 403 if own and "quota" in message.lower():
            return QuotaExceeded(text)
        case 403 if own:
            text = f"{text}: the user is missing a role for this call: {ROLES.get(service, 'member')}"
            # Reads need the same role for all Services. A write concerns one Service, so only that Service is refused.
            return Unauthorized(text) if what.startswith("GET ") else Forbidden(text)
        case 409 if (
            kind == "OverQuota" or kind.endswith("IpAddressGenerationFailure") or kind == "ExternalIpAddressExhausted"
        ):
            return QuotaExceeded(text)
        case 409 if "immutable" in message or "Invalid state PENDING_" in message:  # octavia, on changes and deletions
            return RetryAfter(text, BUSY)
        case 409 if own:
            return Conflict(text)
        case 412 if own:
            return RetryAfter(f"{text}: another client changed it at the same time", BUSY)
        case 413 | 429:
            return RateLimited(text, retry_after=retry_after(headers, content, time.time()))
        case 400 | 422 | 501 if own:  # 501 from octavia: its provider lacks an option; not an outage
            return Invalid(text)
        case _ if own and (400 <= status < 500 or not what.startswith("GET ")):
            # The service answered in its own format, so it is up. Only the request for one object failed, as when
            # octavia answers "Provider 'x' reports error". Calls for other objects continue.
            return Transient(text, retry_after=retry_after(headers, b"", time.time()), scope="object")
    return Transient(text, retry_after=retry_after(headers, b"", time.time()))


def service_error(content: bytes) -> tuple[str, str] | None:
    """Return type and message of an error in a service's own format, None for any other response.

    keystone {"error": {"message"}}, nova and cinder {"itemNotFound": {"message", "code"}}, neutron {"NeutronError":
    {"type", "message"}}, octavia {"faultcode", "faultstring"}.
    """
    try:
        answer = json.loads(content)
    except ValueError:
        return None
    if not isinstance(answer, dict):
        return None
    if isinstance(answer.get("faultstring"), str):
        return str(answer.get("faultcode") or ""), answer["faultstring"]
    for kind, inner in answer.items():
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner.get("type") or kind), inner["message"]
        if kind == "NeutronError" and isinstance(inner, str):
            return kind, inner
    return None


def translated(error: Exception, source: str, timeout: float, secrets: Collection[str] = ()) -> CloudError:
    """Return the contract's error for an exception of the SDK or keystoneauth: a failed login, a service that is
    missing from the catalog, or a failed connection.

    `timeout`: the timeout of the request, in seconds. `secrets`: as in `error_of`.
    """
    from keystoneauth1 import exceptions as failures
    from openstack.exceptions import ConfigException

    text = f"{source}: {plain(error, secrets)}"
    if isinstance(error, failures.Unauthorized):
        return Unauthorized(f"{text}: keystone does not accept the credentials of [Global]")
    if isinstance(error, failures.Forbidden):
        return Unauthorized(f"{text}: keystone refuses the login; is the user enabled, with a role in the project?")
    if isinstance(error, failures.HttpError):
        headers = getattr(error.response, "headers", {})
        content = getattr(error.response, "content", b"")
        what = f"{error.method or ''} {error.url or 'keystone'}".strip()
        reported = error_of(what, "identity", error.http_status, headers, content, secrets=secrets)
        if isinstance(reported, (RateLimited, Transient)):
            return reported
        return (
            ConfigError([f"{reported}; check [Global] of {source}"])
            if isinstance(reported, Invalid)
            else Transient(str(reported))
        )
    if isinstance(error, (failures.EndpointNotFound, failures.CatalogException)):
        return ConfigError([f"{text}; check region and os-endpoint-type in [Global] of {source}"])
    if isinstance(error, failures.ConnectTimeout):  # keystoneauth also raises it if the answer does not come in time
        return Transient.late(text, timeout, TIMEOUT)
    if isinstance(error, (failures.SSLError, failures.ConnectFailure, failures.DiscoveryFailure)):
        return Transient(text)
    if isinstance(error, (ConfigException, failures.MissingRequiredOptions, failures.NoMatchingPlugin)):
        return ConfigError([text])
    if isinstance(error, (failures.ClientException, OSError)):
        return Transient(text)
    return Transient(f"{source}: the client library failed with {type(error).__name__}")


def plain(error: Exception, secrets: Iterable[str] = ()) -> str:
    """Return the text of a library's error in one line of limited length, without `secrets`, which a service may quote.
    Return the name of the error's class if there is no text."""
    return " ".join(concealed(str(error), secrets, shortest=1).split())[:400] or type(error).__name__

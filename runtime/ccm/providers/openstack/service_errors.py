# SPDX-License-Identifier: Apache-2.0
"""What an answer of one of the cloud's services means, and what the SDK raises. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

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

#: Service -> the role that is missing when it refuses a call, in a cloud with the usual policies.
ROLES = {
    "load-balancer": "member, with the older ones of Octavia's policies load-balancer_member",
}
#: When to ask again about what the cloud is at work on, in seconds.
BUSY = 3.0
#: How much of an error that is not the service's own is quoted.
QUOTED = 200


def error_of(
    what: str, service: str, status: int, headers: Mapping[str, str], content: bytes, missing: str = ""
) -> CloudError:
    """The contract's error for an answer that is none. Only the service's own 404 that names `missing` is NotFound."""
    own = service_error(content)
    kind, message = own or ("", content[:QUOTED].decode("utf-8", "replace").strip())
    message = " ".join(message.split()) or "no reason given"
    text = f"{what}: {status} {message if own else f'that is not {service} itself: {message!r}'}"
    match status:
        case 404 if own and missing and missing in message:
            return NotFound(text)
        case 401:
            return Unauthorized(f"{text}: the credentials are not accepted, nor was a new token of theirs")
        case 403 if own and "quota" in message.lower():
            return QuotaExceeded(text)
        case 403 if own:
            text = f"{text}: the user lacks a role for this call: {ROLES.get(service, 'member')}"
            # What is read is the same for all Services. What is written, one of them chose: it alone is refused.
            return Unauthorized(text) if what.startswith("GET ") else Forbidden(text)
        case 409 if (
            kind == "OverQuota" or kind.endswith("IpAddressGenerationFailure") or kind == "ExternalIpAddressExhausted"
        ):
            return QuotaExceeded(text)
        case 409 if "immutable" in message or "Invalid state PENDING_" in message:  # octavia: to change, to delete
            return RetryAfter(text, BUSY)
        case 409 if own:
            return Conflict(text)
        case 412 if own:
            return RetryAfter(f"{text}: somebody else changed it at the same moment", BUSY)
        case 413 | 429:
            return RateLimited(text, retry_after=retry_after(headers, content, time.time()))
        case 400 | 422 | 501 if own:  # 501 of octavia: its provider has no such option; no outage
            return Invalid(text)
    return Transient(text, retry_after=retry_after(headers, b"", time.time()))


def service_error(content: bytes) -> tuple[str, str] | None:
    """Type and message of an error as one of the services writes it, None when it is nobody's of them.

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


def translated(error: Exception, source: str) -> CloudError:
    """The contract's error for what the SDK and keystoneauth raise: about logging in, services, and connections."""
    from keystoneauth1 import exceptions as failures
    from openstack.exceptions import ConfigException

    text = f"{source}: {plain(error)}"
    if isinstance(error, failures.Unauthorized):
        return Unauthorized(f"{text}: keystone does not accept the credentials of [Global]")
    if isinstance(error, failures.Forbidden):
        return Unauthorized(f"{text}: keystone refuses to log us in; is the user enabled, with a role in the project?")
    if isinstance(error, failures.HttpError):
        headers = getattr(error.response, "headers", {})
        content = getattr(error.response, "content", b"")
        what = f"{error.method or ''} {error.url or 'keystone'}".strip()
        told = error_of(what, "identity", error.http_status, headers, content)
        if isinstance(told, (RateLimited, Transient)):
            return told
        return (
            ConfigError([f"{told}; check [Global] of {source}"]) if isinstance(told, Invalid) else Transient(str(told))
        )
    if isinstance(error, (failures.EndpointNotFound, failures.CatalogException)):
        return ConfigError([f"{text}; check region and os-endpoint-type in [Global] of {source}"])
    if isinstance(error, (failures.SSLError, failures.ConnectFailure, failures.DiscoveryFailure)):
        return Transient(text)
    if isinstance(error, (ConfigException, failures.MissingRequiredOptions, failures.NoMatchingPlugin)):
        return ConfigError([text])
    if isinstance(error, (failures.ClientException, OSError)):
        return Transient(text)
    return Transient(f"{source}: the client library failed with {type(error).__name__}")


def plain(error: Exception) -> str:
    """The text of a library's error in one line, not without end."""
    return " ".join(str(error).split())[:400] or type(error).__name__

# SPDX-License-Identifier: Apache-2.0
"""Validated URLs of API servers and proxies; their credentials stay out of messages and representations."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field

from yarl import URL

from .api_errors import KubeConfigError


@dataclass(frozen=True)
class Proxy:
    """A proxy, and the Proxy-Authorization value for the credentials in its URL; "" if the URL has none."""

    url: str
    authorization: str = field(default="", repr=False)


def server_url(text: str, where: str) -> str:
    """Return the URL of an API server. `where`: for messages. Raises KubeConfigError for any other text, and for a URL
    with credentials."""
    parts = _url(text if "://" in text else f"http://{text}" if text else "")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise KubeConfigError(
            f"{where}: {without_credentials(text)!r} is not the URL of an API server, such as https://10.0.0.1:6443"
        )
    if "@" in parts.netloc:
        raise KubeConfigError(
            f"{where}: {without_credentials(text)!r} contains credentials: use a token or a client certificate instead"
        )
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def proxy_of(text: str | None, where: str) -> Proxy | None:
    """Return the proxy with this URL, None for none. Without a scheme it is http, as in Go. Raises KubeConfigError for
    any other text."""
    if not text:
        return None
    parts = _url(text if "://" in text else f"http://{text}")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise KubeConfigError(
            f"{where} is {without_credentials(text)!r}: only http:// and https:// proxies are supported"
        )
    url = urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))
    if parts.username is None:
        return Proxy(url)
    pair = ":".join(urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
    return Proxy(url, f"Basic {base64.b64encode(pair.encode()).decode()}")


def without_credentials(text: str) -> str:
    """Return a URL without credentials, for messages. The URL may be invalid."""
    credentials, at, rest = text.rpartition("@")
    scheme, separator, _ = credentials.partition("://")
    return f"{scheme}{separator}***@{rest}" if at and separator else f"***@{rest}" if at else text


def _url(text: str) -> urllib.parse.SplitResult | None:
    """Return the parts of a URL with a valid host and port, None for any other text."""
    try:
        URL(text)  # as aiohttp parses it
        parts = urllib.parse.urlsplit(text)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def environment_proxy(server: str, getproxies: Callable[[], dict[str, str]] = urllib.request.getproxies) -> str | None:
    """Return the proxy that HTTPS_PROXY/HTTP_PROXY set for this server, None if there is none or NO_PROXY or loopback
    exempts the server.

    NO_PROXY entries may be host names, domain suffixes, addresses and CIDRs, as in Go (Python does not support CIDRs).
    """
    proxies = getproxies()
    parts = urllib.parse.urlsplit(server)
    host = (parts.hostname or "").lower()
    proxy = proxies.get(parts.scheme)
    if not proxy or host == "localhost":
        return None
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return None
    for entry in (part.strip().lower() for part in proxies.get("no", "").split(",")):
        if entry == "*":
            return None
        if address is not None:
            with contextlib.suppress(ValueError):
                if address in ipaddress.ip_network(entry, strict=False):
                    return None
        elif entry and (host == entry.lstrip(".") or host.endswith("." + entry.lstrip("."))):
            return None
    return proxy

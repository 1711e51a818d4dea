# SPDX-License-Identifier: Apache-2.0
"""Calls to Azure Resource Manager: credentials, errors, and pages, whose URLs are in the answers."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ccm.cloud import QuotaExceeded, RateLimited, Transient, Unauthorized
from ccm.cloud.toolkit.access_tokens import AccessTokens
from ccm.cloud.toolkit.json_api import Dialect, Failure, JsonApi, Query

from . import resource_ids
from .settings import TIMEOUT, Settings
from .tokens import EntraTokens

#: The versions of the APIs for compute, for network, and for network resources of scale sets. The last API has only
#: this version.
COMPUTE, NETWORK, SCALE_SET_NETWORK = "2024-07-01", "2024-05-01", "2018-10-01"
#: The code of a 404 about the resource itself. A 404 about the group or the subscription has another code.
MISSING = "ResourceNotFound"
#: The codes of a 404 about a scale set, its machines or their parts. They differ, because several services answer.
MISSING_IN_SET = frozenset({MISSING, "NotFound", "InstanceNotFound", "ParentResourceNotFound"})
CODES = {
    "TooManyRequests": RateLimited,
    "SubscriptionRequestsThrottled": RateLimited,
    "ResourceRequestsThrottled": RateLimited,
    "AuthorizationFailed": Unauthorized,
    "ExpiredAuthenticationToken": Unauthorized,
    "InvalidAuthenticationToken": Unauthorized,
    "InvalidAuthenticationTokenTenant": Unauthorized,
    "QuotaExceeded": QuotaExceeded,
}
#: The maximum number of pages of a listing.
PAGES = 1000


def failure(answer: Any) -> Failure:
    error = answer["error"]
    return Failure(str(error["code"]), str(error["message"]))


DIALECT = Dialect(failure=failure, codes=CODES)


class Api(JsonApi):
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._entra = EntraTokens(settings)
        self._tokens = AccessTokens(self._entra.fetch)
        self._manager = settings.endpoints.manager
        super().__init__(
            self._manager,
            DIALECT,
            self._headers,
            source=self._entra.source,
            timeout=settings.runtime.request_timeout,
            set_by=TIMEOUT,
        )
        common = settings.common
        #: The path of the resource group, up to the name of a resource provider.
        self.group = resource_ids.group_path(common.subscription_id, common.resource_group)

    async def _headers(self, renew: bool) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._tokens.get(renew)}", "User-Agent": "outoftree-ccm"}

    async def open(self) -> None:
        """Check with one call that machines may be listed. Raises ConfigError, or the CloudError of the call."""
        await super().open()
        await self._entra.open()
        await self.call("GET", f"{self.group}/Microsoft.Compute/virtualMachines", query=version(COMPUTE))

    async def close(self) -> None:
        await super().close()
        await self._entra.close()

    async def rows_of(self, path: str, query: Query, missing: str | Set[str] = "") -> list[Any]:
        """Return the rows of all pages of a listing. Raises CloudError; NotFound only for the codes `missing`, as
        `call` does."""
        every: list[Any] = []
        links: set[str] = set()
        at, page_query = path, query
        while len(links) < PAGES:
            answer = await self.call("GET", at, query=page_query, missing=missing)
            rows = answer.get("value") if isinstance(answer, dict) else None
            if not isinstance(rows, list):
                raise Transient(f"GET {path}: the answer has no list of values")
            every += rows
            following = answer.get("nextLink")
            if not following:
                return every
            if not isinstance(following, str) or following in links:
                raise Transient(f"GET {path}: the listing repeats a page")
            links.add(following)
            at, page_query = self._place(path, following)
        raise Transient(f"GET {path}: the listing has more than {PAGES} pages")

    def _place(self, path: str, link: str) -> tuple[str, Query]:
        """Return path and query of the next page. Raises Transient for another host, because the token would be sent
        there."""
        parts = urlsplit(link)
        if _origin(link) != _origin(self._manager):
            raise Transient(f"GET {path}: the next page is on another host")
        return parts.path, parse_qsl(parts.query, keep_blank_values=True)


def _origin(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of a URL, None for an invalid port. Without a port, return the default port, because
    Azure writes the port 443 in its links."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return None
    return parts.scheme, parts.hostname or "", port or {"https": 443, "http": 80}.get(parts.scheme)


def version(api: str, **more: str) -> Query:
    return [("api-version", api), *((f"${name}", value) for name, value in more.items())]

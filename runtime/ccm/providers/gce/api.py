# SPDX-License-Identifier: Apache-2.0
"""Calls to the Compute Engine API: credentials, errors, and the project and zones that are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm.cloud import ConfigError, RateLimited, Transient, Unauthorized
from ccm.cloud.toolkit.access_tokens import AccessTokens
from ccm.cloud.toolkit.json_api import Dialect, JsonApi, Query

from . import instance_rules
from .instance_rules import Listing, Scope
from .settings import TIMEOUT, Settings
from .tokens import GoogleTokens

#: What the API's error reasons mean, whatever their HTTP status is. This provider only reads, so an exceeded quota is
#: one for reads.
CODES = {
    "rateLimitExceeded": RateLimited,
    "userRateLimitExceeded": RateLimited,
    "concurrentLimitExceeded": RateLimited,
    "dailyLimitExceeded": RateLimited,
    "quotaExceeded": RateLimited,
    "accessNotConfigured": Unauthorized,
    "backendError": Transient,
    "internalError": Transient,
}
DIALECT = Dialect(failure=instance_rules.failure, codes=CODES)


class Api(JsonApi):
    """The client of the Compute Engine API. `scope`: the project and zones; known after `open`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.scope = Scope("")
        self._google = GoogleTokens(settings)
        self._tokens = AccessTokens(self._google.fetch)
        super().__init__(
            settings.common.api_endpoint,
            DIALECT,
            self._headers,
            source=self._google.source,
            timeout=settings.runtime.request_timeout,
            set_by=TIMEOUT,
        )

    async def _headers(self, renew: bool) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self._tokens.get(renew)}", "User-Agent": "outoftree-ccm"}

    async def open(self) -> None:
        """Find the project and the zone, and check with one call that instances may be listed. Raises Unauthorized,
        Transient, ConfigError."""
        await super().open()
        await self._google.open()
        self.scope = await self._find_scope()
        await self.instances(None, size=1)

    async def close(self) -> None:
        await super().close()
        await self._google.close()

    async def instances(self, token: str | None, query: Query = (), *, size: int = 0) -> Listing:
        """Return one page of the instances in all zones of the project. Raises CloudError."""
        path = f"/projects/{self.scope.project}/aggregated/instances"
        # Without partial success, a zone that does not answer makes the whole listing fail.
        parameters = [
            *query,
            ("maxResults", str(size or self.settings.runtime.page_size)),
            ("returnPartialSuccess", "true"),
        ]
        if token is not None:
            parameters.append(("pageToken", token))
        listing = instance_rules.listing(await self.call("GET", path, query=parameters))
        if listing.next is not None and listing.next == token:
            raise Transient(f"GET {path}: a page refers to itself as the next")
        return listing

    async def _find_scope(self) -> Scope:
        common = self.settings.common
        project, zone = common.project_id or self._google.project, common.local_zone
        if not project:
            project = await self._of_this_machine("project/project-id", "project-id")
        if not zone and not self.settings.credentials_file:
            zone = (await self._of_this_machine("instance/zone", "local-zone")).rpartition("/")[2]
        if project.isdigit():
            answer: Any = await self.call("GET", f"/projects/{project}")
            project = str(answer.get("name") or "") if isinstance(answer, dict) else ""
            if not project:
                raise Transient("GET /projects: the answer has no name of the project")
        return Scope(project, zone, common.multizone or common.regional)

    async def _of_this_machine(self, path: str, key: str) -> str:
        try:
            text = await self._google.metadata(path)
        except Transient as error:
            problem = f"{self.settings.source}: {key} is not set, and the metadata server does not say it: {error}"
            # The metadata server may start later than this process, so this is not a ConfigError.
            raise Transient(problem) from None
        if not text:
            raise ConfigError([f"{self.settings.source}: set {key}: the metadata server has no value"])
        return text

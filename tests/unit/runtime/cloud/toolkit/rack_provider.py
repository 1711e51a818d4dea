# SPDX-License-Identifier: Apache-2.0
"""A complete provider over a JSON API: configuration, mappings and calls. The toolkit does the rest.

The cloud is `rack_cloud`, a stand-in for the API of a machine rental company.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ccm import cloud
from ccm.cloud import Address, AddressType, ConfigError, Conflict, Instance, InstanceRef, InstanceState, NotFound, Page
from ccm.cloud.toolkit.gcfg_sections import GcfgSections
from ccm.cloud.toolkit.json_api import Dialect, Failure, JsonApi
from ccm.cloud.toolkit.setting_kinds import duration, key

PROVIDER_ID = re.compile(r"rack://(?P<number>[1-9][0-9]{0,8})")

# Configuration.


@dataclass(frozen=True)
class Rack:
    """The section [Rack]. Without `token`, $RACK_TOKEN has the token."""

    url: str = key("", "where the API is")
    token: str = key("", "who we are", secret=True)
    timeout: float = key(10.0, "for one request", duration)


def settings(config: cloud.ProviderConfig) -> Rack:
    """Return the settings in a configuration. Raises ConfigError with all problems."""
    reader = GcfgSections(config.text, {"Rack": Rack})
    found: Rack = reader.section("Rack")
    if not re.fullmatch(r"https?://[^\s/@]+", found.url):
        reader.problem("Rack", "url", "url: expected https://HOST, without credentials")
    if not (found.token or config.environment.get("RACK_TOKEN")):
        reader.missing("Rack", "token", "token: is missing, here and as $RACK_TOKEN")
    if problems := list(reader.report()):
        raise ConfigError([f"{config.source}: {problem}" for problem in problems])
    return found


DIALECT = Dialect(
    failure=lambda answer: Failure(answer["error"]["code"], answer["error"]["message"]),
    next_page=lambda answer: answer["meta"]["next"],
    total=lambda answer: answer["meta"]["total"],
    page_query=lambda token: [("per_page", "3"), *([("page", token)] if token else [])],
)

# Mappings.


def instance(row: Mapping[str, Any]) -> Instance:
    return Instance(
        provider_id=f"rack://{row['number']}",
        name=row["hostname"],
        type=row["plan"],
        zone=row["room"],
        region=row["site"],
        addresses=(
            *(Address(AddressType.INTERNAL_IP, ip) for ip in row["private_ips"]),
            *(Address(AddressType.EXTERNAL_IP, ip) for ip in row["public_ips"]),
            Address(AddressType.HOSTNAME, row["hostname"]),
        ),
        state=InstanceState.RUNNING if row["power"] == "on" else InstanceState.SHUTDOWN,
        aliases=(f"{row['hostname']}.rack.internal",),
        warnings=() if row["agent"] else ("its agent does not answer, so its power state may be old",),
    )


# Calls.


class RackInstances:
    def __init__(self, api: JsonApi) -> None:
        self._api = api

    async def list_page(self, token: str | None) -> Page:
        page = await self._api.page("/machines", "machines", token)
        return Page([instance(row) for row in page.rows], page.next, page.total)

    async def get(self, ref: InstanceRef) -> Instance:
        if ref.provider_id:
            if (match := PROVIDER_ID.fullmatch(ref.provider_id)) is None:
                raise Conflict(f"providerID {ref.provider_id!r} is not of the form rack://NUMBER")
            return instance(await self._api.call("GET", f"/machines/{match['number']}", missing="no_such_machine"))
        name = ref.node_name.removesuffix(".rack.internal")
        rows = await self._api.rows("/machines", "machines", query=[("hostname", name)])
        named = [found for found in map(instance, rows) if found.is_named(ref.node_name)]
        if len(named) > 1:
            raise Conflict(f"{len(named)} machines are named {ref.node_name!r}")
        if not named:
            raise NotFound(f"no machine is named {ref.node_name!r}")
        return named[0]

    def owns(self, provider_id: str) -> bool:
        return PROVIDER_ID.fullmatch(provider_id) is not None


class RackCloud(cloud.Cloud):
    name: ClassVar[str] = "rack"

    def __init__(self, config: cloud.ProviderConfig) -> None:
        super().__init__(config)
        given = settings(config)
        headers = {"X-Rack-Token": given.token or config.environment["RACK_TOKEN"]}

        async def authorise(renew: bool) -> Mapping[str, str]:
            return headers

        self._api = JsonApi(given.url, DIALECT, authorise, source=config.source, timeout=given.timeout)
        self.instances = RackInstances(self._api)

    async def start(self) -> None:
        await self._api.open()
        await self._api.call("GET", "/account")

    async def close(self) -> None:
        await self._api.close()

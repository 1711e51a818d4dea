# SPDX-License-Identifier: Apache-2.0
"""Instances: the machines that the driver lists, with one listing for each zone. Listings run concurrently.

Each driver reads one machine in its own way, and few distinguish "there is none" from other failures. So this provider
lists all machines to read one. Concurrent reads share one listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from ccm.cloud import BlockingCalls, CloudError, ConfigError, Conflict, Instance, InstanceRef, NotFound, Page, Transient
from ccm.cloud.toolkit.shared_reads import Shared

from . import drivers, instance_rules
from .api import DriverCalls, library_class
from .settings import LISTING_TIMEOUT, Settings

#: The number of threads, and so of concurrent listings.
THREADS = 4


class LibcloudInstances:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._driver = settings.driver
        self._calls = DriverCalls(settings, {})
        self._threads = BlockingCalls(
            "libcloud", threads=THREADS, deadline=settings.listing_timeout, set_by=LISTING_TIMEOUT
        )
        self._shared: Shared[Page] = Shared(self._read)

    async def start(self) -> None:
        """Read the files of secrets, and list once. Raises ConfigError, Unauthorized, Transient."""
        secrets = await asyncio.to_thread(_read_files, self._settings.files)
        await asyncio.to_thread(library_class, self._driver)
        self._calls = DriverCalls(self._settings, secrets)
        await self._read()

    async def close(self) -> None:
        self._threads.close()

    async def list_page(self, token: str | None) -> Page:
        """Return all machines on one page. If a zone does not answer, its machines are unknown, and the page says
        so."""
        return await self._read()

    async def get(self, ref: InstanceRef) -> Instance:
        page = await self._shared.get()
        if ref.provider_id:
            canonical_id = self.canonical(ref.provider_id)
            instances = [instance for instance in page.instances if instance.provider_id == canonical_id]
            what = f"has the providerID {ref.provider_id}"
        else:
            instances = [instance for instance in page.instances if instance.is_named(ref.node_name)]
            what = f"is named {ref.node_name!r}"
        if len(instances) > 1:
            ids = ", ".join(sorted(each.provider_id for each in instances))
            raise Conflict(f"{len(instances)} machines are named {ref.node_name!r} ({ids}): rename all but one")
        if instances and (ref.provider_id or not page.unreachable):
            return instances[0]
        if page.unreachable:
            raise Transient(f"it is unknown whether one machine {what}: {page.unreachable}")
        raise NotFound(f"no machine {what}")

    def owns(self, provider_id: str) -> bool:
        return drivers.owned(self._driver, provider_id)

    def canonical(self, provider_id: str) -> str | None:
        return self._driver.canonical(provider_id) if self.owns(provider_id) else None

    async def _read(self) -> Page:
        zones = self._settings.zones or ("",)
        outcomes = await asyncio.gather(*map(self._read_zone, zones), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if len(failed) == len(outcomes) or not all(isinstance(each, CloudError) for each in failed):
            raise failed[0]
        pages = [outcome for outcome in outcomes if isinstance(outcome, Page)]
        silent = [
            f"zone {zone}: {each}" for zone, each in zip(zones, outcomes, strict=True) if isinstance(each, CloudError)
        ]
        unreachable = "; ".join([*silent, *(each.unreachable for each in pages if each.unreachable)])
        return Page([instance for page in pages for instance in page.instances], unreachable=unreachable)

    async def _read_zone(self, zone: str) -> Page:
        listing = await self._threads.run(self._calls.list_machines, zone)
        instances = instance_rules.instances(self._driver, listing, self._calls.arguments, self._calls.secrets)
        return Page(instances, unreachable=instance_rules.unreachable(self._driver, listing.answers))


def _read_files(files: Mapping[str, str]) -> dict[str, str]:
    texts, problems = {}, []
    for name, path in files.items():
        try:
            texts[name] = Path(path).read_text().strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            problems.append(f"{name}_file: cannot read {path}: {reason}")
            continue
        if not texts[name] or not texts[name].isascii():
            problems.append(f"{name}_file: {path} contains no {name}")
    if problems:
        raise ConfigError(problems)
    return texts

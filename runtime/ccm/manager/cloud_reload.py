# SPDX-License-Identifier: Apache-2.0
"""Creates and starts the cloud from `--cloud-config`, and replaces it when the file changes (upstream never does).

A rotated credential needs no restart. A changed file cannot change the provider or take a capability away, because the
running controllers depend on them. A file that cannot be used changes nothing and is reported once: in the log, as an
Event and in a metric.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from ccm.base.cloud_metrics import CloudCounter
from ccm.base.start_error import StartError
from ccm.cloud import Cloud, CloudError, ConfigError, Conflict, ProviderConfig, Unauthorized, registry
from ccm.gateway.candidate_listing import Listing
from ccm.gateway.gateway import Gateway
from ccm.gateway.instance_snapshot import Snapshot

from .readiness_rules import Standing

log = logging.getLogger(__name__)

RELOADS = CloudCounter(
    "ccm_cloud_config_reloads",
    "Changes of the file --cloud-config, by result: success, invalid, unreadable, refused (by the cloud, or "
    "because it shares machines with another cloud of the process), unavailable (the cloud did not answer; will be "
    "retried).",
    ["result"],
)
RESULTS = ("success", "invalid", "unreadable", "refused", "unavailable")

#: Seconds between reads of the file. The content is compared, because a Secret's volume swaps symbolic links.
EVERY = 3.0
#: The longest pause between attempts, in seconds. A cloud that does not answer may request a longer one.
PATIENCE = 30.0
#: A cloud that has not answered for this long, in seconds, does not work (`readiness_rules`).
SILENT_AFTER = 300.0

#: (type, reason, message) of an Event.
Notice = Callable[[str, str, str], None]


class CloudSettings(msgspec.Struct, frozen=True):
    """How to create and name a cloud. `file`: the path of the cloud's configuration, "" for none. `allow_untagged`: the
    provider need not have a cluster ID. `name`: the cloud's name if the process has several clouds, otherwise ""."""

    provider: str
    file: str = ""
    allow_untagged: bool = False
    name: str = ""

    @property
    def subject(self) -> str:
        """How a sentence names the cloud."""
        return f"cloud {self.name}" if self.name else "the cloud"


class CloudReloader:
    """Keeps the cloud of one gateway running and up to date. `notice` receives Events about its configuration."""

    def __init__(
        self,
        settings: CloudSettings,
        *,
        notice: Notice = lambda *_: None,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files and create the cloud; no other I/O. Raises StartError if the configuration cannot be used."""
        self._settings, self._every, self._clock = settings, every, clock
        self.notice = notice
        try:
            text = read(settings)
        except ConfigError as error:
            raise StartError(str(error)) from None
        try:
            cloud = build(settings, text)
        except ConfigError as error:
            raise StartError(_problems(settings, error)) from None
        self.gateway = Gateway(cloud, clock=clock, name=settings.name)
        #: Returns why this cloud, with these instances, cannot be served beside the others of the process, "" if it
        #: can. None if there are no others.
        self.beside: Callable[[Snapshot], str] | None = None
        #: The instances of this cloud that `beside` accepted last, None if it has accepted none.
        self.compared: Snapshot | None = None
        #: Whether the cloud has accepted the credentials.
        self._accepted = False
        #: Whether an attempt to start with this configuration failed, and not because the cloud did not answer.
        self._was_refused = False
        #: Set when the cloud has accepted the credentials for the first time.
        self.started = asyncio.Event()
        #: `_done`: the digest of the content that needs no more attempts. `_tried`: the digest at the last attempt.
        #: `_again_at`: the time of the next attempt. `_delay`: the seconds between attempts.
        self._done, self._tried, self._again_at, self._delay = self._digest(text), "", 0.0, every
        #: Why the cloud has not started, "" once it has; and whether that is because a call got no answer.
        self._waiting, self._is_silent = f"{settings.subject} has not answered yet", False
        self._reloads = RELOADS.of(settings.name)
        for result in RESULTS:
            self._reloads.labels(result)

    def standing(self) -> Standing:
        """Return the cloud's standing. A cloud works if it has accepted the credentials, and has not failed for too
        long."""
        if self._waiting:
            return Standing(self._waiting, self._is_silent)
        since = self.gateway.failing_since
        if since is None or (silence := self._clock() - since) < SILENT_AFTER:
            return Standing()
        reason = f"{self._settings.subject} has not answered for {silence:.0f} s: {self.gateway.last_error}"
        return Standing(reason, is_silent=True)

    async def start(self) -> None:
        """Verify the credentials, and compare the cloud with those that have started. Waits while the cloud does not
        answer.

        Raises StartError if the cloud rejects the credentials, the configuration cannot be used, or the cloud cannot be
        served beside the others.
        """
        delay = 1.0
        problem = None
        while problem is None:
            try:
                if not self._accepted:
                    await self.gateway.call("cloud.start", self.gateway.cloud.start)
                    self._accepted = True
                instances = self.gateway.instances
                problem = await self._overlap(partial(instances.list, not_before=math.inf)) if instances else ""
            except Unauthorized as error:
                source = self._settings.file or "the provider"
                raise StartError(f"{self._settings.subject} rejects the credentials of {source}: {error}") from None
            except ConfigError as error:
                raise StartError(_problems(self._settings, error)) from None
            except CloudError as error:
                self._waiting, self._is_silent = str(error), not self._was_refused
                wait = max(delay, error.retry_after or 0.0)
                log.warning("%s does not answer, trying again in %.0f s: %s", self._settings.subject, wait, error)
                # A wrong address in the file may be the cause.
                await self._reloaded_within(wait)
                delay = min(PATIENCE, delay * 2)
        if problem:
            raise StartError(problem)
        self._waiting = ""
        self.started.set()
        log.info("%s accepts the credentials", self._settings.subject)

    async def _overlap(self, listing: Listing) -> str:
        """Return why a cloud with these instances cannot be served beside the others, "" if it can.

        Raises CloudError if the instances cannot be listed now.
        """
        if self.beside is None:
            return ""
        compared = await listing()
        if not (problem := self.beside(compared)):
            self.compared = compared
        return problem

    async def start_beside_others(self) -> None:
        """Like `start`, for one of several clouds: a rejection does not affect the others, so the start is tried again.

        Only the controllers of this cloud wait meanwhile.
        """
        while True:
            try:
                return await self.start()
            except StartError as error:
                if self._waiting != str(error):
                    log.error("%s", error)
                    self.notice("Warning", "CloudConfigRefused", str(error))
                self._waiting, self._is_silent, self._was_refused = str(error), False, True
            await self._reloaded_within(PATIENCE)

    async def watch(self) -> None:
        """Follow the file, and the files that the cloud watches (`Cloud.watched_files`), until cancelled. Return if
        there are none."""
        while self._settings.file or self.gateway.cloud.watched_files:
            await asyncio.sleep(self._every)
            if (text := self._due()) is not None:
                await self._reload(text)

    async def _reloaded_within(self, seconds: float) -> bool:
        """Wait for `seconds` at most. Return whether the file changed and is now in use."""
        until = self._clock() + seconds
        while (left := until - self._clock()) > 0:
            await asyncio.sleep(min(left, self._every))
            if (text := self._due()) is not None and await self._reload(text):
                return True
        return False

    def _due(self) -> str | None:
        """Return the text of the file if it is not in use and must be tried now, otherwise None. A file that cannot be
        read gives None, and is reported once."""
        try:
            text = read(self._settings)
        except ConfigError as error:
            if self._done:
                self._done = ""
                self._refused("unreadable", error)
            return None
        digest = self._digest(text)
        if digest == self._done or (digest == self._tried and self._clock() < self._again_at):
            return None
        return text

    async def _reload(self, text: str) -> bool:
        """Use the new text. Return whether it is in use.

        A text that the cloud rejects is tried again, because a new key may not have reached the cloud yet. So is one
        that makes the cloud overlap with another one, whose file may change as well.
        """
        source = self._settings.file or "a file that the provider watches"
        digest = self._digest(text)
        first = digest != self._tried
        self._delay = self._every if first else min(PATIENCE, self._delay * 2)
        self._tried = digest
        try:
            cloud = build(self._settings, text)
            # Taken before the cloud reads its files, so that a change during or after that is noticed.
            in_force = _digest(text, cloud.watched_files)
            await self.gateway.replace(cloud, self._overlap if self.started.is_set() else None)
        except ConfigError as error:
            self._done = digest
            self._refused("invalid", error)
            return False
        except (Unauthorized, Conflict) as error:
            if first:
                self._refused("refused", error)
            self._again_at = self._clock() + self._delay
            return False
        except CloudError as error:
            self._reloads.labels("unavailable").inc()
            log.warning("%s changed, but the cloud does not answer with it; trying again: %s", source, error)
            self._again_at = self._clock() + self._delay
            return False
        self._done, self._tried, self._accepted, self._was_refused = in_force, "", True, False
        self._reloads.labels("success").inc()
        log.info("%s changed: the new cloud configuration is in use", source)
        self.notice("Normal", "CloudConfigReloaded", f"the changed cloud configuration {source} is in use")
        return True

    def _digest(self, text: str) -> str:
        return _digest(text, self.gateway.cloud.watched_files)

    def _refused(self, result: str, error: CloudError) -> None:
        self._reloads.labels(result).inc()
        source = self._settings.file or "a file that the provider watches"
        log.error("%s changed but cannot be used; the previous version stays in use: %s", source, error)
        self.notice("Warning", "CloudConfigRefused", f"the previous cloud configuration stays in use: {error}")


def read(settings: CloudSettings) -> str:
    """Return the text of `--cloud-config`, "" if the flag is not set. Raises ConfigError."""
    if not settings.file:
        return ""
    try:
        return Path(settings.file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([f"cannot read --cloud-config {settings.file}: {reason}"]) from None


def build(settings: CloudSettings, text: str) -> Cloud:
    """Create the provider from the text of its configuration. Raises ConfigError."""
    source = settings.file or "(no --cloud-config)"
    cloud = registry.create(settings.provider, ProviderConfig(text, source))
    if not cloud.has_cluster_id and not settings.allow_untagged:
        raise ConfigError(
            [
                f"provider {settings.provider!r} cannot tell this cluster's resources from others: configure its "
                "cluster ID, or accept the risk with --allow-untagged-cloud"
            ]
        )
    if not cloud.has_cluster_id:
        log.warning(
            "the provider has no cluster ID (--allow-untagged-cloud): it may treat resources of other clusters as ours"
        )
    return cloud


def _problems(settings: CloudSettings, error: ConfigError) -> str:
    return "\n  - ".join([f"provider {settings.provider!r} cannot be used:", *error.problems])


def _digest(text: str, files: Iterable[str]) -> str:
    """Return a digest of the configuration and all watched files. An unreadable file counts as empty, so that its
    appearance is noticed."""
    parts = [text.encode()]
    for path in files:
        try:
            parts.append(Path(path).read_bytes())
        except OSError:
            parts.append(b"")
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()

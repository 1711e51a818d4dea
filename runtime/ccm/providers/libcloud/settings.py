# SPDX-License-Identifier: Apache-2.0
"""The configuration of the provider `libcloud`: YAML that names a driver and has its arguments. Pure.

Problems are reported together, each with file and line. No problem quotes a value, because it may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm.cloud import ConfigError, ProviderConfig
from ccm.cloud.toolkit.located_yaml import Located, Problems, read
from ccm.cloud.toolkit.setting_kinds import count, duration, number, path, url

from .drivers import DRIVERS, Driver

ZONE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Key:
    """A key that every driver has; for `url`, see `known_keys`. docs/providers/libcloud.md is generated from these."""

    kind: Callable[[str], Any]
    default: Any
    help: str


#: The key that limits the time of a whole listing, for messages.
LISTING_TIMEOUT = "listing_timeout"
KEYS: Mapping[str, Key] = {
    "url": Key(url, "", "the API's URL, instead of the address that the driver knows"),
    "ca_file": Key(path, "", "a file with the certificates of the authority; if not set, the system's are used"),
    "request_timeout": Key(duration, 30.0, "how long to wait for one answer"),
    LISTING_TIMEOUT: Key(duration, 60.0, "how long one listing of all machines may take, with all its requests"),
    "calls_per_second": Key(number, 1.0, "how many listings start in a second, on average"),
    "burst": Key(count, 5, "how many listings may start at once after a pause"),
}


@dataclass(frozen=True)
class Settings:
    """The configuration, parsed. `name`: the driver's name in the configuration. `arguments`: the driver's arguments by
    their keys. `files`: argument -> the file that contains it. `zones`: the zones to list, () if one listing has
    all."""

    name: str
    driver: Driver
    arguments: Mapping[str, str] = field(repr=False)
    files: Mapping[str, str]
    zones: tuple[str, ...]
    url: str
    ca_file: str
    request_timeout: float
    listing_timeout: float
    calls_per_second: float
    burst: int

    @property
    def endpoint(self) -> str:
        """The URL of the API; "" for the driver's own. Without `url`, the argument `api_url` is used: CloudStack's
        driver gets it, too, but would ignore its scheme."""
        return self.url or self.arguments.get("api_url", "") or self.driver.endpoint

    def prefix(self, zone: str) -> str:
        """Return the prefix of each request's path: the path of the configured URL, or the driver's part for the
        zone."""
        if self.url:
            path = re.sub(r"https?://[^/]+", "", self.url, count=1)
            return path.replace("{zone}", zone)
        return (self.driver.zoned or "").replace("{zone}", zone)

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with all problems. If the driver is unknown, only with those that do not need it."""
        problems = Problems(config.source)
        top = read(config.text, problems)
        if not isinstance(top.value, dict):
            if not problems.reported:
                problems.add(top, f"expected keys and values, with `driver`: one of {', '.join(DRIVERS)}")
            problems.raise_any()
            raise ConfigError([f"{config.source}: it cannot be read"])
        values: dict[str, Located] = top.value
        taken = _Taker(values, problems)
        name = taken.text("driver") or ""
        if "driver" not in values:
            problems.add(top, f"driver: it is missing: set it to one of {', '.join(DRIVERS)}")
        elif name not in DRIVERS:
            hint = difflib.get_close_matches(name, DRIVERS, 1)
            meant = f"did you mean {hint[0]}?" if hint else f"known are {', '.join(DRIVERS)}"
            problems.add(values["driver"], f"driver: there is no such driver; {meant}")
        common = {key: taken.of_kind(key, each.kind, each.default) for key, each in KEYS.items()}
        driver = DRIVERS.get(name)
        if driver is None:
            problems.raise_any()
            raise ConfigError([f"{config.source}: it names no driver"])
        arguments, files = taken.arguments(top, driver)
        zones = taken.zones(top, driver)
        taken.unknown(known_keys(driver))
        problems.raise_any()
        return cls(name, driver, arguments, files, zones, **common)


def known_keys(driver: Driver) -> set[str]:
    """Return all keys that a configuration for this driver may have. `url` is not one of them if the driver has an
    argument for its URL."""
    files = {f"{name}_file" for name, each in driver.arguments.items() if each.secret}
    known = {"driver", *KEYS, *driver.arguments, *files} | ({"zones"} if driver.zoned else set())
    return known - {"url"} if any(name.endswith("_url") for name in driver.arguments) else known


class _Taker:
    """Takes values out of the document and notes problems."""

    def __init__(self, values: dict[str, Located], problems: Problems) -> None:
        self._values, self._problems = values, problems

    def text(self, key: str) -> str | None:
        """Return the value as text; None if it is not set or has another shape."""
        if (value := self._values.get(key)) is None:
            return None
        if not value.text:
            self._problems.add(value, f"{key}: expected a text")
            return None
        return value.text

    def of_kind(self, key: str, kind: Callable[[str], Any], default: Any) -> Any:
        if (raw := self.text(key)) is None:
            return default
        try:
            return kind(raw)
        except ValueError as error:
            self._problems.add(self._values[key], f"{key}: {error}")
            return default

    def arguments(self, top: Located, driver: Driver) -> tuple[dict[str, str], dict[str, str]]:
        values: dict[str, str] = {}
        files: dict[str, str] = {}
        for name, argument in driver.arguments.items():
            key = f"{name}_file"
            if argument.secret and key in self._values:
                if name in self._values:
                    self._problems.add(self._values[key], f"{key}: {name} is set, too: remove one of them")
                files[name] = self.of_kind(key, path, "")
            elif (text := self.text(name)) is not None:
                values[name] = self.of_kind(name, url, "") if name.endswith("_url") else text
                if not text.isascii() or (argument.to != "key" and "\n" in text.strip()):
                    self._problems.add(self._values[name], f"{name}: expected one line of ASCII")
            elif name not in self._values and argument.required:
                choice = f" or {key}" if argument.secret else ""
                self._problems.add(top, f"{name}{choice}: it is missing: {argument.help}")
        return values, files

    def zones(self, top: Located, driver: Driver) -> tuple[str, ...]:
        if not driver.zoned:
            return ()
        zones = self._values.get("zones")
        if zones is None:
            self._problems.add(top, f"zones: it is missing: the zones of {driver.cloud} to list, such as [fr-par-1]")
            return ()
        entries = zones.value if isinstance(zones.value, list) else []
        names = [entry.text or "" for entry in entries]
        if not names or not all(map(ZONE.fullmatch, names)) or len(set(names)) < len(names):
            self._problems.add(zones, "zones: expected a list of different zones, such as [fr-par-1]")
        return tuple(names)

    def unknown(self, known: set[str]) -> None:
        for key in self._values.keys() - known:
            hint = difflib.get_close_matches(key, known, 1)
            meant = f"did you mean {hint[0]}?" if hint else f"known keys are {', '.join(sorted(known))}"
            self._problems.add(self._values[key], f"{key}: unknown key; {meant}")

# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration, and names all of its problems at once."""

from __future__ import annotations

import configparser
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ccm.cloud import ConfigError, ProviderConfig

KEYS = ("url", "key", "timeout")


@dataclass(frozen=True)
class Settings:
    """The section [acme] of the file. `timeout`: seconds for one request."""

    url: str
    key: str
    timeout: float

    @classmethod
    def read(cls, config: ProviderConfig) -> Settings:
        """Raises ConfigError with all problems; no message contains the key."""
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(config.text)
        except configparser.Error as error:
            raise ConfigError([f"{config.source}: not an INI file ({type(error).__name__})"]) from None
        values = dict(parser["acme"]) if parser.has_section("acme") else {}
        if problems := problems_of(values):
            raise ConfigError([f"{config.source}: {problem}" for problem in sorted(problems)])
        return cls(values["url"].rstrip("/"), values["key"], float(values.get("timeout", 10)))


def problems_of(values: Mapping[str, str]) -> list[str]:
    problems = [f"{key}: unknown key; expected {', '.join(KEYS)}" for key in values.keys() - set(KEYS)]
    problems += [f"{key}: is missing in the section [acme]" for key in ("url", "key") if not values.get(key)]
    if not values.get("url", "http://").startswith(("http://", "https://")):
        problems.append("url: expected http://... or https://...")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", values.get("timeout", "10")):
        problems.append("timeout: expected a number of seconds")
    return problems

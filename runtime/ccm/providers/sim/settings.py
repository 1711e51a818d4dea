# SPDX-License-Identifier: Apache-2.0
"""cloud.conf of the provider `sim`: YAML, all problems at once. Pure."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct

from ccm.cloud import ConfigError, Limits, ProviderConfig
from ccm.cloud.toolkit.setting_kinds import deprecated

#: A key of earlier releases -> its present name.
FORMER = {"timeout": "request_timeout"}
#: The limits of a project if cloud.conf does not set them.
BEARS = Limits()


class Settings(Struct, frozen=True):
    """cloud.conf. `token`: the project's own token, inline or in a file that is read again whenever it is needed.

    `calls_per_second`, `burst`, `concurrency`, `listing_lag`: the project's limits (`cloud.Limits`). `warnings`: about
    deprecated keys.
    """

    source: str
    endpoint: str
    project: str
    token: str = ""
    token_file: str = ""
    page_size: int = 1000
    request_timeout: float = 10.0
    ca_file: str = ""
    calls_per_second: float = BEARS.calls_per_second
    burst: int = BEARS.burst
    concurrency: int = BEARS.concurrency
    listing_lag: float = BEARS.listing_lag
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Settings({self.source}: {self.endpoint}, project {self.project!r})"  # the token stays out of logs

    @classmethod
    def parse(cls, config: ProviderConfig) -> Settings:
        """Parse cloud.conf. Raises ConfigError with all problems. Each names file and key, and no value that may be a
        secret."""
        try:
            document = yaml.safe_load(config.text) or {}
        except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
            mark = getattr(error, "problem_mark", None)
            raise ConfigError([f"{config.source}: not YAML{f', line {mark.line + 1}' if mark else ''}"]) from None
        if not isinstance(document, dict):
            raise ConfigError([f"{config.source}: expected keys and values (endpoint, project, token)"])
        former = [key for key in FORMER if key in document]
        values: dict[str, Any] = {str(FORMER.get(key) or key): value for key, value in document.items()}
        fields = {each.name: each for each in msgspec.structs.fields(cls) if each.name not in ("source", "warnings")}
        problems = [f"{key}: unknown key; known are {', '.join(fields)}" for key in values if key not in fields]
        problems += [f"{key}: {FORMER[key]} is set, too: remove {key}" for key in former if FORMER[key] in document]
        for name, field in fields.items():
            value = values.get(name)
            if name not in values:
                problems += [f"{name}: is missing"] if field.required else []
            elif not isinstance(value, float | int if field.type is float else field.type) or value is True:
                problems.append(f"{name}: expected {'text' if field.type is str else 'a number'}")
            elif field.type is str and not value:
                problems.append(f"{name}: is empty")
            elif field.type is not str and value <= 0:
                problems.append(f"{name}: must be greater than 0")
        endpoint = values.get("endpoint")
        if isinstance(endpoint, str) and endpoint and not _is_http_url(endpoint):
            problems.append("endpoint: expected http://HOST:PORT or https://HOST:PORT, without credentials")
        if ("token" in values) == ("token_file" in values):
            problems.append("token, token_file: set exactly one of them")
        if problems:
            raise ConfigError([f"{config.source}: {problem}" for problem in problems])
        warnings = [f"{config.source}: {deprecated(key, FORMER[key])}" for key in former]
        return cls(config.source, **values, warnings=tuple(warnings))


def _is_http_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and "@" not in url.netloc and url.port != 0
    except ValueError:
        return False

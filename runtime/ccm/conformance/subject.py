# SPDX-License-Identifier: Apache-2.0
"""The provider under test, its configuration, and the allowed operations on its cloud."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ccm.cloud import Cloud, ProviderConfig

from .world import World


@dataclass(frozen=True)
class Subject:
    """The provider under test. `create`: the provider's class, or a function that creates one from a configuration.

    `allow_writes`: whether load balancers and routes may be created; the kit uses its own names and removes them.
    `route_cidr`: a free address range. `patience`: seconds to wait for a load balancer. `secrets`: texts that must not
    appear in an error, by default the values in the configuration whose keys look like secrets.
    """

    name: str
    create: Callable[[ProviderConfig], Cloud]
    config: ProviderConfig = field(default_factory=ProviderConfig)
    allow_writes: bool = False
    world: World = field(default_factory=World)
    route_cidr: str = "198.18.77.0/24"
    patience: float = 300.0
    secrets: tuple[str, ...] | None = None

    @property
    def secret_texts(self) -> tuple[str, ...]:
        return secrets_in(self.config.text) if self.secrets is None else self.secrets


def secrets_in(text: str) -> tuple[str, ...]:
    """Return the values of keys that look like secrets, in any of the usual formats. Paths are left out, and so are
    short values, which would match by chance."""
    word = r"token|password|passwd|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key"
    key = rf"(?:[\w.-]*(?:{word})[\w.-]*|key)"
    values = re.findall(rf"(?im)^\W*{key}[\"']?\s*[:=]\s*[\"']?([^\s\"',}}]{{6,}})", text)
    return tuple(dict.fromkeys(value for value in values if not value.startswith("/")))

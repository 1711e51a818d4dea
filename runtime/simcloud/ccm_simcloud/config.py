# SPDX-License-Identifier: Apache-2.0
"""The simulator's configuration file: projects with their initial content, limits, timing, faults."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

import yaml
from msgspec import Meta, Struct

from .faults import Rule
from .model import InstanceBody, LoadBalancerMode, Name, Seconds, VolumeBody
from .strict import Invalid, convert

MAX_POOL = 65536
Quota = Annotated[int, Meta(ge=0)]


class Project(Struct, frozen=True):
    """One project. `load_balancer_addresses`: FIRST-LAST or a CIDR; load balancers get their addresses from it.
    `load_balancer_mode`: the mode of new load balancers.
    `instances` and `volumes` are seeds: each name is created once. After that, the state counts, not this list."""

    name: Name
    token: Annotated[str, Meta(min_length=1)]
    region: Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]*$")] = "north"
    load_balancer_addresses: str = ""
    load_balancer_mode: LoadBalancerMode = "proxy"
    instances: tuple[InstanceBody, ...] = ()
    volumes: tuple[VolumeBody, ...] = ()

    def __post_init__(self) -> None:
        address_pool(self.load_balancer_addresses)
        names = [instance.name for instance in self.instances]
        if twice := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
            raise ValueError(f"instances: duplicate names: {', '.join(twice)}; seeds are identified by their names")


class Limits(Struct, frozen=True):
    """The limits of each project. None: no limit. `page_size`: the maximum size of a page of a listing."""

    instances: Quota | None = None
    load_balancers: Quota | None = None
    routes: Quota | None = None
    volumes: Quota | None = None
    calls_per_second: Annotated[float, Meta(gt=0)] | None = None
    burst: Annotated[int, Meta(ge=1)] | None = None
    page_size: Annotated[int, Meta(ge=1, le=10000)] = 1000


class Timing(Struct, frozen=True):
    """Times in seconds. `latency` is added to every call. `load_balancer_*`: how long the cloud works on a load
    balancer. `token_lifetime`: how long an access token is valid."""

    latency: Seconds = 0.0
    load_balancer_create: Seconds = 0.0
    load_balancer_update: Seconds = 0.0
    load_balancer_delete: Seconds = 0.0
    token_lifetime: Annotated[float, Meta(gt=0)] = 3600.0


class Faults(Struct, frozen=True):
    rules: tuple[Rule, ...] = ()


class Config(Struct, frozen=True):
    projects: tuple[Project, ...]
    limits: Limits = Limits()
    timing: Timing = Timing()
    faults: Faults = Faults()

    def __post_init__(self) -> None:
        if not self.projects:
            raise ValueError("projects: at least one is required")
        for what in ("name", "token"):
            values = [getattr(project, what) for project in self.projects]
            if len(set(values)) < len(values):
                raise ValueError(f"projects: each needs a unique {what}")


#: The configuration of `ccm sim` without a file.
DEFAULT: dict[str, Any] = {
    "projects": [
        {"name": "demo", "token": "demo-token", "region": "north", "load_balancer_addresses": "127.0.77.1-127.0.77.250"}
    ]
}


def parse(text: str) -> Config:
    """Return the configuration in a YAML text. Raises Invalid with all problems."""
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise Invalid([f"{where}not YAML: {getattr(error, 'problem', None) or error}"]) from None
    return from_data(data)


def from_data(data: Any) -> Config:
    """Return the configuration from plain data. Raises Invalid with all problems."""
    return convert({} if data is None else data, Config, "")


def address_pool(text: str) -> list[str]:
    """Return all addresses of FIRST-LAST or of a CIDR (without network and broadcast address), in order. Raises
    ValueError."""
    if not text:
        return []
    try:
        if "/" in text:
            network = ipaddress.IPv4Network(text)
            if network.num_addresses > MAX_POOL:
                raise ValueError(f"more than {MAX_POOL} addresses")
            return [str(address) for address in network.hosts()]
        first, _, last = text.partition("-")
        low, high = ipaddress.IPv4Address(first.strip()), ipaddress.IPv4Address((last or first).strip())
        if not 0 <= int(high) - int(low) < MAX_POOL:
            raise ValueError(f"from 1 to {MAX_POOL} addresses are possible")
        return [str(ipaddress.IPv4Address(number)) for number in range(int(low), int(high) + 1)]
    except ValueError as error:
        raise ValueError(f"load_balancer_addresses: {text!r} is neither FIRST-LAST nor a CIDR: {error}") from None

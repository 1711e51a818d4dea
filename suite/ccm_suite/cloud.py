# SPDX-License-Identifier: Apache-2.0
"""What the suite asks of a cloud: the adapter that a vendor writes. Nothing here knows the controller.

Every method may raise `Unsupported`; the behaviours that need it are then skipped, and the report says why.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Unsupported


@dataclass(frozen=True)
class Machine:
    """A virtual machine as the cloud describes it.

    `addresses`: (type, address) as in a Node's status, without the host name. `provider_id`: what the controller writes
    into the Node, "" if the adapter does not know it. `zone`, `region` and `type`: "" where the cloud has none.
    `system_uuid`: what its kubelet reports as the system's UUID, for clouds that know machines by it.
    """

    id: str
    name: str
    addresses: tuple[tuple[str, str], ...]
    provider_id: str = ""
    zone: str = ""
    region: str = ""
    type: str = ""
    system_uuid: str = ""


@dataclass(frozen=True)
class LoadBalancer:
    """What the cloud has for a Service. `ports`: (protocol, port, node port). `members`: addresses of machines."""

    id: str
    address: str
    ports: frozenset[tuple[str, int, int]]
    members: frozenset[str]
    source_ranges: frozenset[str] = frozenset()
    health_check_port: int = 0


@dataclass(frozen=True)
class Route:
    """A route of the cloud's network to the Pods of a machine."""

    destination: str
    machine_id: str


class Fault(enum.StrEnum):
    """How calls of the cloud fail while one is active. All calls of the controller fail so, unless the name says
    `listing`, which concerns listings of machines."""

    TIMEOUT = "timeout"  # no answer
    HANG_UP = "hang-up"  # the connection ends without an answer
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    THROTTLED = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    GATEWAY_PAGE = "502-html"  # a proxy's page in the place of an answer
    EMPTY_LISTING = "empty-listing"  # an answer without errors that has no machine
    HALF_LISTING = "half-listing"  # an answer without errors that lacks machines


@dataclass(frozen=True)
class Settings:
    """`variables`: what the controller's command may name in braces, beside what the suite knows itself. `annotations`:
    what every Service of the suite gets, for clouds with several kinds of load balancers."""

    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class Cloud(abc.ABC):
    """One cloud, made for this run. The suite calls it from several threads."""

    @abc.abstractmethod
    def start(self, folder: Path) -> Settings:
        """Make it ready. `folder` is empty, and kept until the end. Raises SuiteError if it cannot be had."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Remove all that was made. Called once, also after `start` has failed."""

    @abc.abstractmethod
    def create_machine(self, name: str) -> Machine:
        """A running machine with an internal address."""

    @abc.abstractmethod
    def delete_machine(self, machine: Machine) -> None:
        """It is gone when this returns."""

    def stop_machine(self, machine: Machine) -> None:
        raise Unsupported("stopping a machine")

    def start_machine(self, machine: Machine) -> None:
        raise Unsupported("starting a machine")

    def load_balancers(self) -> Sequence[LoadBalancer]:
        """All that exist and are not being deleted."""
        raise Unsupported("load balancers")

    def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        raise Unsupported("deleting a load balancer behind the controller's back")

    def routes(self) -> Sequence[Route]:
        raise Unsupported("routes")

    def broken(self, fault: Fault) -> AbstractContextManager[None]:
        """Until the context ends, the controller's calls fail so; those of this adapter do not."""
        raise Unsupported(f"the fault {fault}")

    def refusing_changes(self) -> AbstractContextManager[None]:
        """Until the context ends, changes of a load balancer's ports are refused as invalid (a 4xx)."""
        raise Unsupported("refusing changes of load balancers")

    def calls(self) -> Mapping[str, int]:
        """How often the controller has called the cloud since the start: `read` and `write`."""
        raise Unsupported("counting calls")

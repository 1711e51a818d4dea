# SPDX-License-Identifier: Apache-2.0
"""The interface of a cloud's adapter, which a vendor writes. Nothing here knows the controller.

Every method that is not abstract may raise `Unsupported`. The behaviours that need the method are then skipped, and
the report says why.
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

    `addresses`: (type, address) as in a Node's status, without the host name. `provider_id`: what the controller should
    write into the Node, "" if the adapter does not know it. `zone`, `region` and `type`: "" if the cloud has none.
    `system_uuid`: the system's UUID that the kubelet reports, for clouds that identify machines by it.
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
    """A load balancer of a Service. `ports`: (protocol, port, node port). `members`: addresses of machines."""

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
    """How the controller's calls fail while a fault is active. A fault with `listing` in its name breaks only listings
    of machines; any other fault breaks all calls."""

    TIMEOUT = "timeout"  # no answer
    HANG_UP = "hang-up"  # the connection ends without an answer
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    THROTTLED = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    GATEWAY_PAGE = "502-html"  # a proxy's page instead of an answer
    EMPTY_LISTING = "empty-listing"  # an answer without errors that has no machines
    HALF_LISTING = "half-listing"  # an answer without errors in which machines are missing
    LATE_LISTING = "late-listing"  # an answer without errors that shows the machines of a minute ago


@dataclass(frozen=True)
class Settings:
    """What the suite needs to know about a cloud. `variables`: values for {NAME} in the controller's command, in
    addition to the suite's own. `environment`: variables of the controller's process. `annotations`: for every Service
    of the suite, if a cloud has several kinds of load balancers. `families`: the IP families of its load balancers."""

    variables: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    families: frozenset[str] = frozenset({"IPv4"})


class Cloud(abc.ABC):
    """One cloud, created for this run. The suite calls it from several threads. What a cloud cannot do raises
    Unsupported when it is called, also if it would return a context: the suite asks before it prepares anything."""

    @abc.abstractmethod
    def start(self, folder: Path) -> Settings:
        """Start the cloud. `folder` is empty, and stays until the end. Raises SuiteError if the cloud does not
        start."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Remove everything that was created. The suite calls it once, even if `start` failed or was not called."""

    @abc.abstractmethod
    def create_machine(self, name: str) -> Machine:
        """Create a running machine with an internal address."""

    @abc.abstractmethod
    def delete_machine(self, machine: Machine) -> None:
        """Delete a machine, and return when it is gone. A machine that is already gone is not an error."""

    def stop_machine(self, machine: Machine) -> None:
        raise Unsupported("stopping a machine")

    def start_machine(self, machine: Machine) -> None:
        raise Unsupported("starting a machine")

    def rename_machine(self, machine: Machine, name: str) -> None:
        raise Unsupported("renaming a machine")

    def load_balancers(self) -> Sequence[LoadBalancer]:
        """Return all load balancers that exist and are not being deleted."""
        raise Unsupported("load balancers")

    def delete_load_balancer(self, balancer: LoadBalancer) -> None:
        raise Unsupported("deleting a load balancer behind the controller's back")

    def sharing(self, balancer: LoadBalancer) -> Mapping[str, str]:
        """Return the annotations with which another Service shares this load balancer, under other ports."""
        raise Unsupported("a load balancer of several Services")

    def routes(self) -> Sequence[Route]:
        raise Unsupported("routes")

    def broken(self, fault: Fault) -> AbstractContextManager[None]:
        """Let the controller's calls fail in this way until the context ends. The adapter's own calls must not fail."""
        raise Unsupported(f"the fault {fault}")

    def refusing_changes(self) -> AbstractContextManager[None]:
        """Refuse changes of a load balancer's ports as invalid (a 4xx) until the context ends."""
        raise Unsupported("refusing changes of load balancers")

    def failing(self, balancers: Sequence[LoadBalancer]) -> AbstractContextManager[None]:
        """Let the controller's calls about these load balancers fail with 500 until the context ends."""
        raise Unsupported("failing changes of chosen load balancers")

    def other_project(self) -> AbstractContextManager[None]:
        """Until the context ends, let the controller's configuration have the valid credentials of another project,
        which is empty. The suite restarts the controller after the start and after the end."""
        raise Unsupported("another project")

    def calls(self) -> Mapping[str, int]:
        """Return how many calls the controller has made since the start: {"read": ..., "write": ...}."""
        raise Unsupported("counting calls")

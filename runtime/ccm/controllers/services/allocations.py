# SPDX-License-Identifier: Apache-2.0
"""Address allocations per Service, for providers that choose addresses themselves (`ccm.cloud.AllocatesAddresses`).

The record is the status of all Services. Users who may only create and change Services cannot write that status. An
address that a provider returned stays allocated until the Service is released, because the status shows it only later.
No I/O.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ccm.engine.objects import Service

#: Stands in for a missing creationTimestamp: sorts as younger than all others.
_UNKNOWN_AGE = "9999"


class ServiceAllocations:
    """Implements `ccm.cloud.Allocations` for one cluster. Addresses are compared by value, whatever their spelling."""

    def __init__(self) -> None:
        self._published, self._answered = _Book(), _Book()

    def holder(self, address: str) -> str | None:
        canonical = _canonical(address)
        return self._published.oldest(canonical) or self._answered.oldest(canonical)

    def on_service(self, old: Service | None, new: Service | None) -> None:
        """Informer handler for Services. It records every Service, whoever serves it."""
        if old is not None:
            self._published.write(old, ())
        if new is not None:
            self._published.write(new, (entry.ip for entry in new.status.load_balancer.ingress))

    def answered(self, service: Service, addresses: Iterable[str]) -> None:
        """Record the addresses that the provider gave to the Service. Replaces its earlier answer."""
        self._answered.write(service, addresses)

    def released(self, service: Service) -> None:
        """Forget what the provider gave to a Service whose load balancer is gone; the Service's status still counts."""
        self._answered.write(service, ())


class _Book:
    """Addresses of Services, indexed in both directions."""

    def __init__(self) -> None:
        self._addresses: dict[str, set[str]] = {}
        #: Address -> UID -> creationTimestamp (RFC 3339 in UTC, so string order is time order).
        self._holders: dict[str, dict[str, str]] = {}

    def write(self, service: Service, addresses: Iterable[str]) -> None:
        """Set the addresses of the Service. Replaces all earlier ones."""
        uid = service.metadata.uid
        for address in self._addresses.pop(uid, ()):
            del self._holders[address][uid]
            if not self._holders[address]:
                del self._holders[address]
        new = {_canonical(address) for address in addresses if address}
        if new:
            self._addresses[uid] = new
        for address in new:
            created = service.metadata.creation_timestamp or _UNKNOWN_AGE
            self._holders.setdefault(address, {})[uid] = created

    def oldest(self, address: str) -> str | None:
        """Return the UID of the oldest Service that has the address, None if none has it."""
        holders = self._holders.get(address, {})
        return min(holders, key=lambda uid: (holders[uid], uid), default=None)


def _canonical(address: str) -> str:
    """Return one spelling for each address. Text that is not an address is returned unchanged."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

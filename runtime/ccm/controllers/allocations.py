# SPDX-License-Identifier: Apache-2.0
"""Which Service has which address, for providers that choose addresses themselves (`ccm.cloud.AllocatesAddresses`).

The record is the status of all Services: users who may only create and change Services cannot write it. What a
provider answered stays allocated until the Service is released, because the status shows it only some time later.
No I/O.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ccm.engine.objects import Service

#: The creationTimestamp of an object without one: younger than all others.
_UNKNOWN_AGE = "9999"


class ServiceAllocations:
    """`ccm.cloud.Allocations` of one cluster. Addresses are compared as addresses, whatever their spelling."""

    def __init__(self) -> None:
        self._published, self._answered = _Book(), _Book()

    def holder(self, address: str) -> str | None:
        found = _canonical(address)
        return self._published.oldest(found) or self._answered.oldest(found)

    def on_service(self, old: Service | None, new: Service | None) -> None:
        """A handler of the informer of Services: all Services count, whoever serves them."""
        if old is not None:
            self._published.write(old, ())
        if new is not None:
            self._published.write(new, (entry.ip for entry in new.status.load_balancer.ingress))

    def answered(self, service: Service, addresses: Iterable[str]) -> None:
        """The provider gave these addresses to the Service. Replaces what it answered before."""
        self._answered.write(service, addresses)

    def released(self, service: Service) -> None:
        """The load balancer of the Service is gone."""
        self._answered.write(service, ())


class _Book:
    """Addresses of Services, to be looked up in both directions."""

    def __init__(self) -> None:
        self._addresses: dict[str, set[str]] = {}
        #: Address -> UID -> creationTimestamp (RFC 3339 in UTC, so that text compares as time).
        self._holders: dict[str, dict[str, str]] = {}

    def write(self, service: Service, addresses: Iterable[str]) -> None:
        """The Service has these addresses, and no others any more."""
        uid = service.metadata.uid
        for address in self._addresses.pop(uid, ()):
            del self._holders[address][uid]
            if not self._holders[address]:
                del self._holders[address]
        found = {_canonical(address) for address in addresses if address}
        if found:
            self._addresses[uid] = found
        for address in found:
            created = service.metadata.creation_timestamp or _UNKNOWN_AGE
            self._holders.setdefault(address, {})[uid] = created

    def oldest(self, address: str) -> str | None:
        """The UID of the oldest Service that has the address."""
        holders = self._holders.get(address, {})
        return min(holders, key=lambda uid: (holders[uid], uid), default=None)


def _canonical(address: str) -> str:
    """One spelling for each address; a text that is no address stays as it is."""
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        return address

# SPDX-License-Identifier: Apache-2.0
"""The quota part of the contract: how much of each kind of resource the project has, and may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of the project for one kind of resource.

    `kind`: the resource in the cloud's own words, plural, such as "load balancers". `used`: how many count against the
    quota now. `limit`: how many there may be.
    """

    kind: str
    used: int
    limit: int


@runtime_checkable
class Quotas(Protocol):
    """Quotas of the resources that the provider creates. Only `ccm doctor` reads them; no controller does."""

    async def list(self) -> Sequence[Quota]:
        """Return each quota once. Leave out resources without a limit, and resources whose usage the cloud does not
        report."""
        ...

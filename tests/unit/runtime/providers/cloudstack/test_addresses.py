# SPDX-License-Identifier: Apache-2.0
"""An address that is gone by the time that it is to be associated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ccm.cloud import Invalid, RetryAfter
from ccm.providers.cloudstack.addresses import Addresses, Intent

from .wants import NETWORK, service

ADDRESS = "203.0.113.7"


class Cloud:
    """A cloud that lists a free address, but no longer knows it by its name."""

    soon = 2.0

    def __init__(self) -> None:
        self.started: list[str] = []

    async def rows_page(self, *_: Any, **fields: Any) -> Any:
        return SimpleNamespace(rows=[{"ipaddress": ADDRESS, "state": "Free"}])

    async def every_row(self, *_: Any, **fields: Any) -> list[dict[str, Any]]:
        return []

    async def start(self, uid: str, command: str, *_: Any) -> None:
        self.started.append(command)


@pytest.mark.parametrize("intent", [None, Intent(NETWORK, ADDRESS)], ids=["chosen now", "chosen before"])
@pytest.mark.parametrize("asked", ["", ADDRESS], ids=["any address", "loadBalancerIP"])
async def test_only_who_asked_for_an_address_that_is_gone_is_refused(intent: Intent | None, asked: str) -> None:
    cloud, spec = Cloud(), service(load_balancer_ip=asked)
    addresses = Addresses(cloud, cloud)  # type: ignore[arg-type]
    with pytest.raises(Invalid if asked else RetryAfter, match="loadBalancerIP" if asked else "another one is chosen"):
        await addresses.choose(spec, SimpleNamespace(address=asked), NETWORK, intent, None)  # type: ignore[arg-type]
    assert cloud.started == (["deleteTags"] if intent else [])

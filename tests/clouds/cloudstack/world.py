# SPDX-License-Identifier: Apache-2.0
"""The CloudStack-shaped cloud as the conformance kit's world, and a provider that runs on it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from ccm.cloud import ProviderConfig
from ccm.conformance import Listener, Subject, Trouble, World
from ccm.providers.cloudstack import CloudStackCloud
from tests.kit import PATIENT

from .face import API_KEY, SECRET, Face, Fault, running
from .region import Region

#: Rows in a page of a listing, so that there are several pages.
PAGE = 3
FAULTS: dict[Trouble, dict[str, Any]] = {
    Trouble.SERVER_ERROR: {"kind": "status", "code": 530},
    Trouble.PROXY_PAGE: {"kind": "html", "code": 404},
    Trouble.CUT_ANSWER: {"kind": "truncate"},
    Trouble.SHORT_LISTING: {"kind": "half", "command": "listVirtualMachines"},
    Trouble.LATER_PAGE: {"kind": "status", "code": 530, "later": True},
    Trouble.HANG: {"kind": "hang"},
    Trouble.UNAUTHORIZED: {"kind": "status", "code": 401, "text": "unable to verify user credentials"},
    Trouble.RATE_LIMITED: {
        "kind": "status",
        "code": 429,
        "text": "The given user has reached his/her account api limit, please retry after "
        f"{round(World.RETRY_AFTER * 1000)} ms.",
    },
    Trouble.LOST_ANSWER: {"kind": "drop", "command": "createLoadBalancerRule", "late": True, "times": 1},
    Trouble.REFUSED: {"kind": "status", "code": 452, "command": "createLoadBalancerRule"},
    Trouble.HALF_MADE: {"kind": "fail", "command": "assignToLoadBalancerRule", "times": 1},
}
CONFIG = """\
[Global]
api-url = {url}
api-key = {key}
secret-key = {secret}
[Runtime]
page-size = {page}
request-timeout = {patient}s
job-interval = 20ms
calls-per-second = 10000
burst = 1000
"""


class CloudStackWorld(World):
    load_balancers_in_a_page = PAGE

    def __init__(self, face: Face) -> None:
        self._face, self._region = face, face.region

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        region, took = self._region, self._region.job_seconds
        if kind is Trouble.SLOW_LOAD_BALANCERS:
            region.job_seconds = 60.0
            try:
                yield
            finally:
                region.job_seconds = took
                region.tick(all_=True)
            return
        with self._face.fault(Fault(**FAULTS[kind])):
            yield

    async def create_instance(self, name: str) -> None:
        self._region.add_machine(name, *self._region.networks.values())

    async def delete_instance(self, provider_id: str) -> None:
        self._region.delete_machine(provider_id.rpartition("/")[2])

    async def stop_instance(self, provider_id: str) -> None:
        self._region.machines[provider_id.rpartition("/")[2]]["state"] = "Stopped"

    async def untag_instance(self, provider_id: str) -> None:
        self._region.tags.pop(("UserVm", provider_id.rpartition("/")[2]), None)

    async def break_load_balancer(self, name: str) -> None:
        """Make a rule look as if it never became active, and remove its machines."""
        rule = self._rules(name)[0]
        rule["state"] = "Add"
        self._region.assigned[rule["id"]] = []

    async def load_balancer_parts(self) -> frozenset[str]:
        self._region.tick(all_=True)
        return self._region.parts()

    async def load_balancer_listeners(self, name: str) -> tuple[Listener, ...]:
        self._region.tick(all_=True)
        return tuple(self._listener(each) for each in self._rules(name))

    def _rules(self, name: str) -> list[Any]:
        return [row for row in self._region.rules.values() if row["name"].startswith(f"{name}-")]

    def _listener(self, rule: Any) -> Listener:
        protocol, port = rule["protocol"], int(rule["publicport"])
        open_ = [
            frozenset(each["cidrlist"].split(","))
            for each in self._region.firewall.values()
            if (each["ipaddressid"], each["startport"]) == (rule["publicipid"], port)
            and each["protocol"] == protocol.removesuffix("-proxy")
        ]
        assert len(open_) == 1, "the firewall lets nobody in"
        targets = frozenset((each, int(rule["privateport"])) for each in self._region.target_addresses(rule))
        return Listener(
            port,
            protocol.removesuffix("-proxy").upper(),
            targets,
            open_[0] - {"0.0.0.0/0"} or frozenset(rule["cidrlist"].split()) - {"0.0.0.0/0"},
            "ClientIP" if rule["algorithm"] == "source" else "None",
        )


def config(face: Face, page: int = PAGE, more: str = "") -> ProviderConfig:
    text = CONFIG.format(url=face.url, key=API_KEY, secret=SECRET, page=page, patient=PATIENT)
    return ProviderConfig(text + more, "cloud-config", {})


@contextlib.asynccontextmanager
async def cloudstack(
    machines: int = 5, *, job_seconds: float = 0.02, page: int = 100, more: str = "", services: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Face, CloudStackCloud]]:
    """Yield a cloud with machines worker-0, worker-1, ... in one network, and a provider that was started on it.
    `more`: further lines of the configuration. `services`: the services that the network has.
    """
    region = Region(job_seconds=job_seconds)
    network = region.add_network(*services)
    for number in range(machines):
        region.add_machine(f"worker-{number}", network)
    async with running(region) as face:
        cloud = CloudStackCloud(config(face, page, more))
        try:
            await cloud.start()
            yield face, cloud
        finally:
            await cloud.close()


@contextlib.asynccontextmanager
async def subject() -> AsyncIterator[Subject]:
    """Yield the conformance kit's subject: the provider, its configuration, and a world that can break its cloud."""
    async with cloudstack(page=PAGE) as (face, _):
        yield Subject(
            "cloudstack",
            CloudStackCloud,
            config(face),
            allow_writes=True,
            world=CloudStackWorld(face),
            secrets=(API_KEY, SECRET),
        )

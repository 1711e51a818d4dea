# SPDX-License-Identifier: Apache-2.0
"""The provider `vsphere` passes the kit, which creates, stops and deletes machines, on a vCenter that fails on
request."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from ccm.cloud import ProviderConfig
from ccm.conformance import CASES, Outcome, Subject, Trouble, World, check
from ccm.providers.vsphere import VSphereCloud

from .controllers import conf
from .proxy import Fault, Proxy
from .vcenter import VCenter, done, machines, nic, rows

FAULTS = {
    Trouble.SERVER_ERROR: Fault("status", status=503, body="<html>vCenter starts</html>"),
    Trouble.PROXY_PAGE: Fault("status", status=404, body="<html>no such page</html>"),
    Trouble.CUT_ANSWER: Fault("truncate"),
    Trouble.SHORT_LISTING: Fault("half"),
    Trouble.HANG: Fault("hang"),
    Trouble.UNAUTHORIZED: Fault("refused"),
    Trouble.RATE_LIMITED: Fault("status", status=429, headers={"Retry-After": f"{World.RETRY_AFTER:g}"}),
}
#: This case cannot run: the provider reads all pages of a vCenter before it returns its own single page. test_faults.py
#: breaks later pages of the vCenter.
PAGES = "later_pages.a_failure_among_instances_is_transient"


class VCenterWorld(World):
    """The vCenter as the conformance kit's `World`. New machines are clones of vcsim's first machine."""

    def __init__(self, vcenter: VCenter, proxy: Proxy) -> None:
        self._vcenter, self._proxy = vcenter, proxy
        #: vcsim derives a machine's UUID from its name in the inventory, so no name is used twice.
        self._numbers = itertools.count()

    @contextlib.asynccontextmanager
    async def trouble(self, kind: Trouble) -> AsyncIterator[None]:
        with self._proxy.broken(FAULTS[kind]):
            yield

    async def create_instance(self, name: str) -> None:
        await asyncio.to_thread(self._create, name)

    def _create(self, name: str) -> None:
        from pyVmomi import vim

        with self._vcenter.admin() as live:
            first = sorted(machines(live).items())[0][1]
            spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(), powerOn=False, template=False)
            made = done(first.CloneVM_Task(first.parent, f"{name}-{next(self._numbers)}", spec))
            done(made.PowerOnVM_Task())  # vcsim's clones are off, whatever `powerOn` says
            self._vcenter.shape(made._moId, hostName=name, nics=[nic("10.0.0.9")])

    async def delete_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._end, provider_id, True)

    async def stop_instance(self, provider_id: str) -> None:
        await asyncio.to_thread(self._end, provider_id, False)

    async def untag_instance(self, provider_id: str) -> None:
        """Do nothing: clones have no tags."""

    def _end(self, provider_id: str, destroy: bool) -> None:
        with self._vcenter.admin() as live:
            managed = {each._moId: each for each in live.machines[0].view}
            for id, row in rows(live).items():
                if f"vsphere://{row.uuid}" == provider_id:
                    if row.power == "poweredOn":
                        done(managed[id].PowerOffVM_Task())
                    if destroy:
                        done(managed[id].Destroy_Task())


#: Seconds that the provider waits for an answer in cases where none comes. In all other cases an answer may be late.
UNANSWERED = dict.fromkeys(("failures.no_answer_is_transient", "failures.a_cancelled_call_ends"), 10)
CHOSEN = [case for case in CASES if case.needs in ("", "instances")]


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
async def test_the_kit(case, vcenter, proxy):
    seconds = UNANSWERED.get(case.name, 60)
    config = ProviderConfig(conf(proxy, f"[Runtime]\nrequest-timeout = {seconds}s\npage-size = 3"), "vsphere.conf", {})
    result = await check(case, Subject("vsphere", VSphereCloud, config, world=VCenterWorld(vcenter, proxy)))
    assert result.outcome is (Outcome.NOT_RUN if case.name == PAGES else Outcome.PASSED), result.detail

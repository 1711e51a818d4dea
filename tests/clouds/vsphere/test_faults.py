# SPDX-License-Identifier: Apache-2.0
"""vCenters in trouble: sessions that end, restarts, refusals, and calls that fail. None makes a machine look gone."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from ccm.cloud import CloudError, InstanceRef, NotFound, ProviderConfig, RateLimited, Transient, Unauthorized
from ccm.providers.vsphere import VSphereCloud
from tests.comparison import confirm

from .conftest import RUNTIME
from .controllers import conf
from .proxy import Fault, Proxy
from .table import WORKERS, build
from .test_peer import ZONES
from .vcenter import VCenter

UNKNOWN = InstanceRef("x", "vsphere://00000000-0000-0000-0000-000000000001")


async def test_a_session_that_ended_is_replaced(vcenter, connect):
    cloud = await connect(vcenter.section("one") + RUNTIME)
    before = await cloud.instances.list_page(None)
    session = cloud.instances._vcenters[0].inventory.session
    session._live.content.sessionManager.Logout()
    assert (await cloud.instances.list_page(None)).instances == before.instances


async def test_a_restart_is_survived(vcenter, connect):
    cloud = await connect(vcenter.section("one") + RUNTIME)
    before = await cloud.instances.list_page(None)
    vcenter.stop()
    for call in (cloud.instances.list_page(None), cloud.instances.get(UNKNOWN)):
        with pytest.raises(Transient):
            await call
    vcenter.start()
    assert len((await cloud.instances.list_page(None)).instances) == len(before.instances) == 4
    with pytest.raises(NotFound):
        await cloud.instances.get(UNKNOWN)


@pytest.mark.parametrize("keys", [{"password": "wrong-password"}, {"datacenters": "DC9"}])
async def test_what_the_user_may_not_do_is_unauthorized(vcenter, connect, keys):
    with pytest.raises(Unauthorized) as raised:
        await connect(vcenter.section("one", **keys) + RUNTIME)
    assert "wrong-password" not in str(raised.value)


async def test_a_certificate_that_is_not_trusted(vcenter, connect):
    with pytest.raises(Transient, match="not trusted"):
        await connect(vcenter.section("one", **{"insecure-flag": "0"}) + RUNTIME)
    with pytest.raises(Transient, match="thumbprint"):
        await connect(vcenter.section("one", thumbprint="00" * 20) + RUNTIME)


async def test_one_of_two_that_hangs_or_is_down_makes_nothing_look_gone(vcenter, proxy, connect):
    other = f'[VirtualCenter "two"]\nserver = 127.0.0.1\nport = {proxy.port}\nuser = u\npassword = p\n'
    # The vCenter that answers may be slow on a busy machine, even while the other one does not answer at all.
    for kind, seconds in (("hang", 20), ("drop", 60)):
        with proxy.broken(Fault(kind)):
            cloud = await connect(vcenter.section("one") + other + f"[Runtime]\nrequest-timeout = {seconds}s\n")
            page = await cloud.instances.list_page(None)
            assert len(page.instances) == 4 and page.unreachable
            assert await cloud.instances.get(InstanceRef("x", page.instances[0].provider_id)) == page.instances[0]
            with pytest.raises(Transient):
                await cloud.instances.get(UNKNOWN)


async def test_two_vcenters_are_one_cloud(vcenter, connect):
    second = VCenter()
    try:
        with second.admin() as live:
            for number, each in enumerate(live.machines[0].view):
                second.shape(each._moId, uuid=f"00000000-0000-0000-0000-00000000010{number}")
        cloud = await connect(vcenter.section("one") + second.section("two") + RUNTIME)
        assert len((await cloud.instances.list_page(None)).instances) == 8
    finally:
        second.stop()
    page = await cloud.instances.list_page(None)
    assert len(page.instances) == 4 and "127.0.0.1" in page.unreachable


#: What happens to one call, and the errors that the provider may raise. None of them says that a machine is gone.
KINDS: dict[str, tuple[Fault, tuple[type[CloudError], ...]]] = {
    "5xx": (Fault("status", status=503), (Transient,)),
    "a proxy's page": (Fault("status", status=404, body="<html></html>"), (Transient,)),
    "429": (Fault("status", status=429, headers={"Retry-After": "7"}), (RateLimited,)),
    "no connection": (Fault("drop"), (Transient,)),
    "half an answer": (Fault("truncate"), (Transient,)),
    "half of the machines": (Fault("half"), (Transient,)),
    "no answer": (Fault("hang"), (Transient,)),
    "a late answer": (Fault("slow", seconds=0.2), ()),
    "the session has ended": (Fault("ended", times=1), (Unauthorized,)),
    "refused": (Fault("refused"), (Unauthorized,)),
    "a right is missing": (Fault("denied"), (Unauthorized,)),
}


#: The calls of a login. If one of them fails, the next question logs in again.
LOGIN = ("RetrieveServiceContent", "Login", "CreateContainerView", "POST /rest/com/vmware/cis/session")


async def test_each_call_breaks_in_each_way_and_nothing_looks_gone(vcenter, proxy, tmp_path):
    uuids = build(vcenter, WORKERS[:5])
    known = InstanceRef("worker-0", f"vsphere://{uuids['vm-worker-0']}"), InstanceRef("worker-1")

    async def ask(cloud):
        page = await cloud.instances.list_page(None)
        return [*page.instances, *[await cloud.instances.get(ref) for ref in known]]

    def cloud_behind(proxy, timeout):
        text = conf(proxy, f"{ZONES}\n[Runtime]\npage-size = 3\nrequest-timeout = {timeout}s\n")
        return VSphereCloud(ProviderConfig(text, "vsphere.conf", {}))

    first = cloud_behind(proxy, 60)
    truth = await ask(first)
    await first.close()
    calls = sorted(set(proxy.calls) - {"Logout", "DELETE /rest/com/vmware/cis/session"})
    assert len(truth) == 5 + 2
    assert {"Login", "RetrievePropertiesEx", "ContinueRetrievePropertiesEx", "FindAllByUuid"} < set(calls)

    async def survive(kind, names):
        (folder := tmp_path / f"{kind} {names[0].replace('/', '-')}").mkdir()
        own, (fault, errors) = Proxy(vcenter.port, folder), KINDS[kind]
        try:
            for name in names:
                cloud = cloud_behind(own, 20 if kind == "no answer" else 60)
                with own.broken(dataclasses.replace(fault, call=name)):
                    try:
                        await cloud.start()
                        assert await ask(cloud) == truth, (kind, name)
                    except errors as error:
                        check(error, kind, name)
                assert await ask(cloud) == truth, (kind, name)
                await cloud.close()
        finally:
            own.close()
        return len(names)

    # Calls without an answer run concurrently, each with its own proxy, so that the waits do not add up.
    jobs = [survive(kind, [name]) for kind in KINDS if kind == "no answer" for name in calls]
    survived = sum(await asyncio.gather(*jobs, *[survive(kind, calls) for kind in KINDS if kind != "no answer"]))
    confirm("vsphere", "faults survived", f"{survived} of {len(calls) * len(KINDS)}")


def check(error: CloudError, kind: str, name: str) -> None:
    if kind == "the session has ended":  # only a login may fail: after other calls, the provider logs in again
        assert name in LOGIN
    if kind == "a right is missing":
        assert name in str(error) and (" " in name or "System.View on Folder group-d1" in str(error))
    if isinstance(error, RateLimited):
        assert error.retry_after == 7.0

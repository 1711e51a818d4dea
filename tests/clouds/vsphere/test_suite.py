# SPDX-License-Identifier: Apache-2.0
"""`VSphere`, the adapter of ccm-suite for vcsim."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from ccm_suite.cloud import Fault, Machine
from ccm_suite.errors import Unsupported

from ccm.cloud import CloudError, Instance, InstanceRef, InstanceState, NotFound, ProviderConfig
from ccm.providers.vsphere import VSphereCloud
from tests.kit import HASTY, PATIENT

from .controllers import conf
from .suite_cloud import HOSTS, LABELS, REGION, VSphere

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VSphere]:
    made = VSphere()
    try:
        made.start(tmp_path_factory.mktemp("suite"))
        yield made
    finally:
        made.stop()


@contextlib.asynccontextmanager
async def connected(cloud: VSphere, seconds: int) -> AsyncIterator[VSphereCloud]:
    """Yield a client that calls as the controller does: through the proxy. `seconds`: its timeout."""
    text = conf(cloud._proxy, f"{LABELS}\n[Runtime]\nrequest-timeout = {seconds}s\n")
    made = VSphereCloud(ProviderConfig(text, "vsphere.conf", {}))
    try:
        await made.start()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def controller(cloud: VSphere) -> AsyncIterator[VSphereCloud]:
    async with connected(cloud, PATIENT) as made:
        yield made


async def found(controller: VSphereCloud, machine: Machine) -> Instance | None:
    with contextlib.suppress(NotFound):
        return await controller.instances.get(InstanceRef(machine.name, machine.provider_id))
    return None


async def test_machines_come_and_go(cloud: VSphere, controller: VSphereCloud) -> None:
    machine = cloud.create_machine("suite-1")
    seen = await found(controller, machine)
    assert seen is not None
    assert (seen.provider_id, seen.zone, seen.region, seen.type) == (
        machine.provider_id,
        machine.zone,
        machine.region,
        machine.type,
    )
    assert machine.addresses[0][1] in {str(each.address) for each in seen.addresses}
    assert (machine.region, machine.zone in HOSTS) == (REGION, True)
    cloud.rename_machine(machine, "suite-renamed")
    seen = await found(controller, machine)
    assert seen is not None and seen.is_named("suite-renamed") and not seen.is_named("suite-1")
    cloud.stop_machine(machine)
    seen = await found(controller, machine)
    assert seen is not None and seen.state is InstanceState.SHUTDOWN
    cloud.start_machine(machine)
    cloud.delete_machine(machine)
    assert await found(controller, machine) is None
    cloud.delete_machine(machine)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE_LISTING])
async def test_a_fault_concerns_the_controller_alone(cloud: VSphere, controller: VSphereCloud, fault: Fault) -> None:
    machines = [cloud.create_machine(f"suite-{fault}-{number}") for number in range(2)]
    assert await found(controller, machines[1])
    with cloud.broken(fault):
        if fault.endswith("listing"):
            assert await found(controller, machines[1]) is None
        else:
            with pytest.raises(CloudError):
                async with connected(cloud, HASTY) as hasty:
                    await found(hasty, machines[1])
        following = cloud.create_machine(f"suite-{fault}-2")
    for machine in (*machines, following):
        assert await found(controller, machine)
        cloud.delete_machine(machine)


async def test_half_of_the_machines_are_the_younger_ones(cloud: VSphere, controller: VSphereCloud) -> None:
    machines = [cloud.create_machine(f"suite-half-{number}") for number in range(4)]
    with cloud.broken(Fault.HALF_LISTING):
        assert [bool(await found(controller, machine)) for machine in machines] == [True, True, False, False]
    for machine in machines:
        cloud.delete_machine(machine)


def test_what_vsphere_does_not_have_is_said(cloud: VSphere) -> None:
    with pytest.raises(Unsupported, match="load balancers"):
        cloud.load_balancers()
    with pytest.raises(Unsupported, match="routes"):
        cloud.routes()
    with pytest.raises(Unsupported, match="another project"):
        cloud.other_project()

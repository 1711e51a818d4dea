# SPDX-License-Identifier: Apache-2.0
"""`OpenStack`, the adapter of ccm-suite for the services of `make openstack`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keystoneauth1.exceptions
import openstack
import pytest
from ccm_suite.cloud import Fault, Machine

from .customer import PASSWORD
from .suite_cloud import OpenStack


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStack]:
    made = OpenStack()
    try:
        assert made.start(tmp_path_factory.mktemp("suite")).variables["cluster"] == made._customer.name
        yield made
    finally:
        made.stop()


def controller(cloud: OpenStack) -> Any:
    """Return a client that calls as the controller does: through the proxy, without retries."""
    site = cloud._customer
    made = openstack.connect(
        auth_url=site.world["public"]["identity"],
        username=site.name,
        password=PASSWORD,
        project_name=site.name,
        user_domain_name="Default",
        project_domain_name="Default",
        region_name=site.world["region"],
        interface="public",
        api_timeout=30,
        compute_status_code_retries=0,
        compute_connect_retries=0,
    )
    list(made.compute.servers())
    return made


def test_machines_come_and_go(cloud: OpenStack) -> None:
    machine = cloud.create_machine("suite-1")
    compute = cloud._customer.cloud.compute

    def status() -> str:
        return str(compute.get_server(machine.id).status)

    assert (machine.provider_id, status()) == (f"openstack:///{machine.id}", "ACTIVE")
    (found,) = compute.servers(name="^suite-1$")
    assert found.id == machine.id and machine.addresses[0][1] in str(found.addresses)
    cloud.stop_machine(machine)
    assert status() == "SHUTOFF"
    cloud.start_machine(machine)
    cloud.delete_machine(machine)
    assert compute.find_server(machine.id) is None
    cloud.delete_machine(machine)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.LATE_LISTING])
def test_a_fault_concerns_the_controller_alone(cloud: OpenStack, fault: Fault) -> None:
    asking = controller(cloud)
    count = len(list(asking.compute.servers(paginated=False)))
    with cloud.broken(fault):
        if fault.endswith("listing"):
            seen = len(list(asking.compute.servers(paginated=False)))
            assert seen == {Fault.EMPTY_LISTING: 0, Fault.HALF_LISTING: count // 2}[fault]
        else:
            with pytest.raises((openstack.exceptions.SDKException, keystoneauth1.exceptions.ClientException)):
                list(asking.compute.servers())
        assert isinstance(cloud.create_machine(f"suite-{fault}"), Machine)
    assert len(list(asking.compute.servers(paginated=False))) >= count


def test_calls_are_those_of_the_controller(cloud: OpenStack) -> None:
    asking, before = controller(cloud), cloud.calls()
    cloud.create_machine("suite-calls")
    assert cloud.calls() == before
    list(asking.compute.servers(paginated=False))
    assert cloud.calls() == {"read": before["read"] + 1, "write": before["write"]}


def test_load_balancers_have_what_octavia_has(cloud: OpenStack) -> None:
    site = cloud._customer
    octavia = site.cloud.load_balancer
    member = {"address": "10.30.128.1", "protocol_port": 30080, "monitor_port": 30090}
    pool = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": [member], "name": "pool"}
    listener = {"protocol": "TCP", "protocol_port": 80, "allowed_cidrs": ["192.0.2.0/24"], "default_pool": pool}
    made = octavia.create_load_balancer(
        name="suite-lb", vip_subnet_id=site.subnet, provider="rig", listeners=[{**listener, "name": "listener"}]
    )
    site.wait_for_balancer(made.id)
    (found,) = cloud.load_balancers()
    assert (found.id, found.address) == (made.id, made.vip_address)
    assert found.ports == {("TCP", 80, 30080)}
    assert (found.members, found.source_ranges, found.health_check_port) == ({"10.30.128.1"}, {"192.0.2.0/24"}, 30090)
    floating = site.cloud.network.create_ip(floating_network_id=site.world["public_network"], port_id=made.vip_port_id)
    assert [each.address for each in cloud.load_balancers()] == [floating.floating_ip_address]
    cloud.delete_load_balancer(found)
    assert cloud.load_balancers() == []


def test_routes_name_their_machine(cloud: OpenStack) -> None:
    machine, site = cloud.create_machine("suite-route"), cloud._customer
    route = {"destination": "10.244.9.0/24", "nexthop": machine.addresses[0][1]}
    site.cloud.network.update_router(site.router, routes=[route])
    assert [(each.destination, each.machine_id) for each in cloud.routes()] == [("10.244.9.0/24", machine.id)]
    site.cloud.network.update_router(site.router, routes=[])

# SPDX-License-Identifier: Apache-2.0
"""Starts, when imported, all of nova except its API: conductor, scheduler, and a fake compute service for each host in
$RIG_HOSTS.

All run in one process, because the message bus is oslo.messaging's ``fake://``, which does not reach another process.
"""

import os
import uuid

import nova.conf
import os_vif
from nova import context, objects, service
from nova.compute import manager, power_state
from nova.compute import rpcapi as compute_rpcapi
from nova.conductor import rpcapi as conductor_rpcapi
from nova.objects import host_mapping
from nova.scheduler import rpcapi as scheduler_rpcapi
from nova.virt import fake

CONF = nova.conf.CONF


def _identity(host: str) -> str:
    """Return the UUID of a host's compute node: the same after each start, and a different one for each host."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, host))


class RigDriver(fake.FakeDriver):
    """nova's fake hypervisor, with room for many servers and a stable identity for each of several hosts.

    Copies of servers that `rig.clones` made count as running guests, although this driver never started them.
    """

    vcpus = 100_000
    memory_mb = 100_000_000
    local_gb = 100_000_000

    def get_available_resource(self, nodename):
        return {**super().get_available_resource(nodename), "uuid": _identity(self._host)}

    def get_nodenames_by_uuid(self, refresh=False):
        return {_identity(self._host): self._host}

    def power_off(self, instance, *arguments, **options):
        self._adopt(instance)
        super().power_off(instance, *arguments, **options)

    def power_on(self, context, instance, *arguments, **options):
        self._adopt(instance)
        super().power_on(context, instance, *arguments, **options)

    def _adopt(self, instance):
        if instance.uuid not in self.instances:
            self.instances[instance.uuid] = fake.FakeInstance(instance.name, power_state.RUNNING, instance.uuid)


def _start(binary: str, topic: str, host: str, **more) -> service.Service:
    started = service.Service.create(binary=binary, topic=topic, host=host, **more)
    started.start()
    return started


def _start_all(hosts: list[str]) -> list[service.Service]:
    services = [
        _start("nova-conductor", conductor_rpcapi.RPC_TOPIC, hosts[0]),
        _start("nova-scheduler", scheduler_rpcapi.RPC_TOPIC, hosts[0]),
    ]
    for host in hosts:
        CONF.set_override("host", host)  # driver and resource tracker read it while they start
        services.append(_start("nova-compute", compute_rpcapi.RPC_TOPIC, host, topic_alt=compute_rpcapi.RPC_TOPIC_ALT))
    CONF.set_override("host", hosts[0])
    host_mapping.discover_hosts(context.get_admin_context())
    return services


fake.RigDriver = RigDriver  # nova loads only drivers below nova.virt
# nova keeps a node's identity in a file of its host; here one machine has several hosts.
manager.ComputeManager._ensure_existing_node_identity = lambda self, service_ref: None
objects.register_all()
os_vif.initialize()
SERVICES = _start_all(os.environ["RIG_HOSTS"].split(","))

# SPDX-License-Identifier: Apache-2.0
"""The adapter of `ccm-suite` for vSphere: vcsim behind a proxy that breaks only the controller's calls."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccm_suite.cloud import Cloud, Fault, Machine, Settings
from ccm_suite.errors import Unsupported

from . import proxy as edge
from .controllers import conf
from .proxy import Hidden, Proxy
from .vcenter import VCenter, done, machines, nic, tag

REGION = "region-1"
#: Zone -> the name of a host in vcsim's own cluster.
HOSTS = {"zone-a": "DC0_C0_H0", "zone-b": "DC0_C0_H1", "zone-c": "DC0_C0_H2"}
LABELS = "[Labels]\nzone = k8s-zone\nregion = k8s-region"
#: Fault of the suite -> what the proxy does. A vCenter itself refuses with SOAP errors, and a proxy in front of it with
#: HTTP errors.
_RULES = {
    Fault.TIMEOUT: edge.Fault("hang"),
    Fault.HANG_UP: edge.Fault("drop"),
    Fault.UNAUTHORIZED: edge.Fault("refused"),
    Fault.FORBIDDEN: edge.Fault("denied"),
    Fault.THROTTLED: edge.Fault("status", status=429, headers={"Retry-After": "1"}),
    Fault.INTERNAL: edge.Fault("status", status=500),
    Fault.UNAVAILABLE: edge.Fault("status", status=503),
    Fault.GATEWAY_PAGE: edge.Fault("status", status=502, body="<html><body>502 Bad Gateway</body></html>"),
}


def alone(function: Any) -> Any:
    """Let only one thread at a time use our session."""

    @functools.wraps(function)
    def locked(self: VSphere, *arguments: Any) -> Any:
        with self.lock:
            return function(self, *arguments)

    return locked


class VSphere(Cloud):
    """A vCenter. `{cloud_config}` in the controller's command is its configuration file.

    vSphere has no load balancers and no routes.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._open = contextlib.ExitStack()
        self._numbers = itertools.count(1)
        self._machines: dict[str, Any] = {}
        self._stopped: set[str] = set()
        self._vcenter: VCenter
        self._proxy: Proxy

    def start(self, folder: Path) -> Settings:
        from pyVmomi import vim

        self._vcenter = VCenter()
        self._open.callback(self._vcenter.stop)
        self._proxy = Proxy(self._vcenter.port, folder)
        self._open.callback(self._proxy.close)
        live = self._open.enter_context(self._vcenter.admin())
        places = {each.name: each for each in live.places.view if isinstance(each, vim.HostSystem)}
        self._hosts = {zone: places[name] for zone, name in HOSTS.items()}
        tag(live, "k8s-zone", {zone: [host] for zone, host in self._hosts.items()})
        tag(live, "k8s-region", {REGION: [live.content.rootFolder]})
        present = machines(live)
        self._model = present[min(present)]
        config = folder / "vsphere.conf"
        config.write_text(conf(self._proxy, LABELS))
        return Settings({"cloud_config": str(config)})

    def stop(self) -> None:
        self._open.close()

    @alone
    def create_machine(self, name: str) -> Machine:
        from pyVmomi import vim

        number = next(self._numbers)
        zone = list(HOSTS)[number % len(HOSTS)]
        host = self._hosts[zone]
        location = vim.vm.RelocateSpec(host=host, pool=host.parent.resourcePool)
        spec = vim.vm.CloneSpec(location=location, powerOn=False, template=False)
        made = done(self._model.CloneVM_Task(self._model.parent, f"{name}-{number}", spec))
        done(made.PowerOnVM_Task())
        id, address = str(uuid.uuid4()), f"10.20.{number >> 8}.{number & 255}"
        hardware = {"cpus": 2, "memoryMB": 4096, "guestId": "ubuntu64Guest"}
        self._vcenter.shape(made._moId, uuid=id, hostName=name, nics=[nic(address)], **hardware)
        self._machines[id] = made
        return Machine(
            id=id,
            name=name,
            addresses=(("InternalIP", address),),
            provider_id=f"vsphere://{id}",
            zone=zone,
            region=REGION,
            type="vsphere-vm.cpu-2.mem-4gb.os-ubuntu",
            system_uuid=id,
        )

    @alone
    def delete_machine(self, machine: Machine) -> None:
        if (made := self._machines.pop(machine.id, None)) is not None:
            if machine.id not in self._stopped:
                done(made.PowerOffVM_Task())
            done(made.Destroy_Task())

    @alone
    def stop_machine(self, machine: Machine) -> None:
        done(self._machines[machine.id].PowerOffVM_Task())
        self._stopped.add(machine.id)

    @alone
    def start_machine(self, machine: Machine) -> None:
        done(self._machines[machine.id].PowerOnVM_Task())
        self._stopped.discard(machine.id)

    def rename_machine(self, machine: Machine, name: str) -> None:
        """Give the machine's guest another host name, by which controllers name it."""
        self._vcenter.shape(self._machines[machine.id]._moId, hostName=name)

    def other_project(self) -> contextlib.AbstractContextManager[None]:
        raise Unsupported("another project: vSphere has none, and vcsim has one vCenter in a process")

    def broken(self, fault: Fault) -> contextlib.AbstractContextManager[None]:
        if fault is Fault.LATE_LISTING:
            raise Unsupported(f"the fault {fault}: the proxy keeps no former answers")
        return self._broken(fault)

    @contextlib.contextmanager
    def _broken(self, fault: Fault) -> Iterator[None]:
        with self.lock:
            known = [made._moId for made in self._machines.values()]
        hidden = {Fault.EMPTY_LISTING: known, Fault.HALF_LISTING: known[len(known) // 2 :]}
        rule = Hidden(machines=hidden[fault]) if fault in hidden else _RULES[fault]
        with self._proxy.broken(rule):
            yield

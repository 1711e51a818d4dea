# SPDX-License-Identifier: Apache-2.0
"""An ML2 mechanism driver that replaces agents: it binds every port, and reports that ports and addresses work.

If the folder $RIG_WIRES exists, it also keeps ``network.json`` there: ``{"routes": {destination: next hop}, "floating":
{floating address: fixed address}}`` (gateway/fabric.py).
"""

import json
import os
import pathlib
import threading
import time

from neutron_lib import constants, context
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.plugins import constants as plugins
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api
from oslo_log import log

LOG = log.getLogger(__name__)
# An agent answers after the request: during the request, its own transaction locks the row.
AGENT_SECONDS = 0.2
TRIES = 5
LOOK_SECONDS = 0.5


class RigMechanism(api.MechanismDriver):
    def initialize(self):
        for event in (events.AFTER_CREATE, events.AFTER_UPDATE):
            registry.subscribe(self._floating_ip_changed, resources.FLOATING_IP, event)
        wires = pathlib.Path(os.environ["RIG_WIRES"])
        if wires.is_dir():
            threading.Thread(target=_wire, args=(wires / "network.json",), daemon=True).start()

    @property
    def connectivity(self):
        return portbindings.CONNECTIVITY_L2

    def bind_port(self, context):
        segment = context.segments_to_bind[0]
        details = {portbindings.CAP_PORT_FILTER: True}
        context.set_binding(segment[api.ID], portbindings.VIF_TYPE_OVS, details, status=constants.PORT_STATUS_ACTIVE)

    def create_port_postcommit(self, context):
        self._router_port_works(context.current)

    def update_port_postcommit(self, context):
        self._router_port_works(context.current)

    def _router_port_works(self, port):
        ours = (port["device_owner"] or "").startswith(constants.DEVICE_OWNER_NETWORK_PREFIX)
        if ours and port["status"] != constants.PORT_STATUS_ACTIVE:
            _later(_port_active, port["id"])

    def _floating_ip_changed(self, resource, event, trigger, payload=None):
        _later(_floating_ip_status, payload.resource_id or payload.latest_state["id"])


def _port_active(port_id):
    directory.get_plugin().update_port_status(context.get_admin_context(), port_id, constants.PORT_STATUS_ACTIVE)


def _floating_ip_status(floating_ip_id):
    admin, router = context.get_admin_context(), directory.get_plugin(plugins.L3)
    found = router.get_floatingips(admin, filters={"id": [floating_ip_id]})
    if found:
        used = constants.FLOATINGIP_STATUS_ACTIVE if found[0]["port_id"] else constants.FLOATINGIP_STATUS_DOWN
        if found[0]["status"] != used:
            router.update_floatingip_status(admin, floating_ip_id, used)


def _wire(file):
    """Write the network to the file whenever it changes. Poll it, because an announced change may not be committed
    yet."""
    known = None
    while True:
        time.sleep(LOOK_SECONDS)
        try:
            found = _network()
        except Exception:
            LOG.exception("%s", file)
            continue
        if found != known:
            half = file.with_suffix(".half")
            half.write_text(json.dumps(found))
            half.rename(file)
            known = found


def _network():
    admin, router = context.get_admin_context(), directory.get_plugin(plugins.L3)
    if router is None:  # neutron still starts
        return None
    routes = {each["destination"]: each["nexthop"] for found in router.get_routers(admin) for each in found["routes"]}
    floating = {each["floating_ip_address"]: each["fixed_ip_address"] for each in router.get_floatingips(admin)}
    return {"routes": routes, "floating": {address: fixed for address, fixed in floating.items() if fixed}}


def _later(work, *arguments):
    timer = threading.Timer(AGENT_SECONDS, _try, (work, *arguments))
    timer.daemon = True
    timer.start()


def _try(work, *arguments):
    """Call `work`, and repeat it a few times if it fails, because other requests change the same rows. Log failures."""
    for attempt in range(TRIES):
        try:
            return work(*arguments)
        except Exception:
            LOG.exception("%s%s, attempt %d", work.__name__, arguments, attempt + 1)
            time.sleep(AGENT_SECONDS)

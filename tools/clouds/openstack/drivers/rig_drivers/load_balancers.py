# SPDX-License-Identifier: Apache-2.0
"""An Octavia provider without amphorae: objects become ACTIVE after a while, or ERROR on demand.

The JSON file $RIG_LB_KNOBS, which is read at each operation, controls this: ``{"delay": 0.5, "errors": ["name", ...]}``
has the seconds, and the names of objects that become ERROR. States are written through octavia's own DriverUpdater.

If the folder $RIG_WIRES exists, the driver describes each load balancer without pending changes there, in
``balancer-ID.json``, for the program that forwards in place of amphorae (gateway/fabric.py).
"""

import functools
import json
import os
import pathlib
import threading
import time

from octavia.api.drivers.driver_agent import driver_updater
from octavia.common import constants, utils
from octavia.db import api as database
from octavia.db import models
from octavia_lib.api.drivers import exceptions, provider_base
from oslo_log import log

LOG = log.getLogger(__name__)
DEFAULT_DELAY = 0.5
PATIENCE = 120.0  # seconds after which a request counts as failed
PENDING = (constants.PENDING_CREATE, constants.PENDING_UPDATE)
# Octavia makes a network driver for each request and for each member of a pool, and each driver lists all of neutron's
# extensions. That was half of octavia's time beside a busy controller.
utils.get_network_driver = functools.cache(utils.get_network_driver)


def _knobs() -> dict:
    try:
        with open(os.environ["RIG_LB_KNOBS"]) as file:
            return json.load(file)
    except (OSError, ValueError):  # not written yet, or just being written
        return {}


class RigProvider(provider_base.ProviderDriver):
    """The driver. Every operation ends the same way: after the delay, all PENDING objects of its load balancer become
    ACTIVE, DELETED or ERROR."""

    def __init__(self):
        super().__init__()
        self._one_at_a_time = threading.Lock()

    def create_vip_port(self, loadbalancer_id, project_id, vip_dictionary, additional_vip_dicts=None):
        """Leave the port to octavia-api, which creates it if the driver does not."""
        raise exceptions.NotImplementedError(user_fault_string="no", operator_fault_string="no")

    def loadbalancer_create(self, loadbalancer):
        self._later(loadbalancer.loadbalancer_id)

    def loadbalancer_delete(self, loadbalancer, cascade=False):
        self._later(loadbalancer.loadbalancer_id, cascade)

    def loadbalancer_update(self, old_loadbalancer, new_loadbalancer):
        self._later(new_loadbalancer.loadbalancer_id)

    def loadbalancer_failover(self, loadbalancer_id):
        self._later(loadbalancer_id)

    def listener_create(self, listener):
        self._later(listener.loadbalancer_id)

    listener_delete = listener_create

    def listener_update(self, old_listener, new_listener):
        self._later(_owner(models.Listener, new_listener.listener_id))

    def pool_create(self, pool):
        self._later(pool.loadbalancer_id)

    pool_delete = pool_create

    def pool_update(self, old_pool, new_pool):
        self._later(_owner(models.Pool, new_pool.pool_id))

    def member_create(self, member):
        self._later(_owner(models.Pool, member.pool_id))

    member_delete = health_monitor_create = health_monitor_delete = member_create

    def member_update(self, old_member, new_member):
        self._later(_owner(models.Member, new_member.member_id))

    def member_batch_update(self, pool_id, members):
        self._later(_owner(models.Pool, pool_id))

    def health_monitor_update(self, old_healthmonitor, new_healthmonitor):
        self._later(_owner(models.HealthMonitor, new_healthmonitor.healthmonitor_id))

    def get_supported_flavor_metadata(self):
        return {}

    def validate_flavor(self, flavor_metadata):
        return None

    def get_supported_availability_zone_metadata(self):
        return {}

    def validate_availability_zone(self, availability_zone_metadata):
        return None

    def _later(self, load_balancer_id, cascade=False):
        threading.Thread(target=self._settle, args=(load_balancer_id, cascade), daemon=True).start()

    def _settle(self, load_balancer_id, cascade):
        begun = time.monotonic()
        while time.monotonic() - begun < float(_knobs().get("delay", DEFAULT_DELAY)):  # may be shortened meanwhile
            time.sleep(0.05)
        deadline = time.monotonic() + PATIENCE
        # octavia-api calls the driver before it commits the PENDING objects: until then there is nothing to settle.
        while not self._settled(load_balancer_id, cascade) and time.monotonic() < deadline:
            time.sleep(0.3)

    def _settled(self, load_balancer_id, cascade):
        with self._one_at_a_time:
            try:
                settled = _report(load_balancer_id, cascade)
                if settled:
                    _wire(load_balancer_id)
                return settled
            except Exception:
                LOG.exception("load balancer %s", load_balancer_id)
                return False


def _wire(load_balancer_id):
    wires = pathlib.Path(os.environ["RIG_WIRES"])
    if not wires.is_dir():
        return
    file = wires / f"balancer-{load_balancer_id}.json"
    session = database.get_session()
    with session.begin():
        balancer = session.get(models.LoadBalancer, load_balancer_id)
        if balancer is None or balancer.provisioning_status == constants.DELETED:
            file.unlink(missing_ok=True)
            return
        listeners = session.query(models.Listener).filter_by(load_balancer_id=load_balancer_id, enabled=True)
        wired = {"address": balancer.vip.ip_address, "ports": [_port(each) for each in listeners if each.default_pool]}
    half = file.with_suffix(".half")
    half.write_text(json.dumps(wired))
    half.rename(file)


def _port(listener):
    """Return a listener and its pool in the format of gateway/fabric.py. `health_port` is the first member's monitor
    port, or None unless the health checks are by HTTP."""
    pool, members = listener.default_pool, [each for each in listener.default_pool.members if each.enabled]
    persistence, monitor = pool.session_persistence, pool.health_monitor
    by_http = monitor is not None and monitor.type == constants.HEALTH_MONITOR_HTTP
    return {
        "protocol": "UDP" if listener.protocol == constants.PROTOCOL_UDP else "TCP",
        "port": listener.protocol_port,
        "members": [[each.ip_address, each.protocol_port] for each in members],
        "draining": [each.ip_address for each in members if each.weight == 0],
        "allowed": [each.cidr for each in listener.allowed_cidrs],
        "sticky": persistence is not None and persistence.type == constants.SESSION_PERSISTENCE_SOURCE_IP,
        "health_port": members[0].monitor_port if by_http and members else None,
    }


def _owner(model, identity):
    """Return the ID of the load balancer of a listener, pool, member or health monitor."""
    session = database.get_session()
    with session.begin():
        found = session.get(model, identity)
        return (found.pool if model in (models.Member, models.HealthMonitor) else found).load_balancer_id


def _report(load_balancer_id, cascade):
    """Report the final states of a load balancer and its PENDING parts to octavia. Return False if it was not PENDING.

    `cascade`: report it and all of its parts as DELETED.
    """
    errors = set(_knobs().get("errors", []))
    status = {}

    def settled(kind, thing, operating):
        if cascade or thing.provisioning_status == constants.PENDING_DELETE:
            new = {constants.PROVISIONING_STATUS: constants.DELETED}
        elif thing.provisioning_status in PENDING:
            failed = getattr(thing, "name", None) in errors
            new = {
                constants.PROVISIONING_STATUS: constants.ERROR if failed else constants.ACTIVE,
                constants.OPERATING_STATUS: constants.ERROR if failed else operating,
            }
        else:
            return
        status.setdefault(kind, []).append({"id": thing.id, **new})

    session = database.get_session()
    with session.begin():
        balancer = session.get(models.LoadBalancer, load_balancer_id)
        if balancer is None or not balancer.provisioning_status.startswith("PENDING"):
            return False
        for listener in session.query(models.Listener).filter_by(load_balancer_id=load_balancer_id):
            settled("listeners", listener, constants.ONLINE)
        for pool in session.query(models.Pool).filter_by(load_balancer_id=load_balancer_id):
            settled("pools", pool, constants.ONLINE)
            for member in pool.members:
                settled("members", member, constants.ONLINE if pool.health_monitor else constants.NO_MONITOR)
            if pool.health_monitor:
                settled("healthmonitors", pool.health_monitor, constants.ONLINE)
        settled("loadbalancers", balancer, constants.ONLINE)
    answer = driver_updater.DriverUpdater().update_loadbalancer_status(status)
    if answer.get("status_code") != 200:
        raise RuntimeError(answer)
    return True

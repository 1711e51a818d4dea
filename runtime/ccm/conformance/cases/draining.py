# SPDX-License-Identifier: Apache-2.0
"""A node that will leave soon gets no new connections, and gets them again if it stays."""

from __future__ import annotations

import dataclasses

from ccm.cloud import ComparesLoadBalancers, DrainsBackends

from ..kit import DRAINS
from ..trial import Failed, Trial
from .collection import Collection

COLLECTION = Collection("load_balancers", needs=DRAINS)
case = COLLECTION.case


@case(writes=True)
async def a_node_that_drains_gets_no_new_connections(trial: Trial) -> None:
    """`update_backends` keeps new connections from a backend with `draining`, and changes nothing for the others. If
    the node stays, it gets new connections again. `ensure` does the same. If all backends drain, all get new
    connections. Each of these changes also changes the fingerprint."""
    spec, backends = trial.spec(), await trial.backends()
    balancers = trial.load_balancers
    assert isinstance(balancers, DrainsBackends)
    if not balancers.drains(spec) or len(backends) < 2:
        return
    first, *others = backends
    drains = [dataclasses.replace(first, draining=True), *others]
    everybody = [dataclasses.replace(backend, draining=True) for backend in backends]
    name = (await trial.ensure(spec, backends)).name
    complete = await trial.world.load_balancer_members(name)
    gone = {address.address for address in first.addresses} & complete
    prints = {balancers.fingerprint(spec, each) for each in (backends, drains)}
    if len(prints) < 2:
        raise Failed("the fingerprint does not change when a node drains, so nobody writes it")
    for write, what in (
        (balancers.update_backends, "update_backends"),
        (balancers.ensure, "ensure"),
    ):
        for desired, members in ((drains, complete - gone), (backends, complete), (everybody, complete)):
            await trial.patiently(write, spec, desired)
            answer = await trial.ready(spec)
            present = await trial.world.load_balancer_members(name)
            if present != members:
                draining = [each.node_name for each in desired if each.draining]
                raise Failed(
                    f"{what}: while {', '.join(draining) or 'nobody'} drains, new connections go to "
                    f"{', '.join(sorted(present)) or 'nobody'} instead of {', '.join(sorted(members))}"
                )
            if answer.fingerprint != balancers.fingerprint(spec, desired):
                raise Failed(f"{what}: the fingerprint in the cloud is not that of the last write")
            if isinstance(balancers, ComparesLoadBalancers):
                differences = await trial.ask(balancers.deviations, spec, desired)
                if differences:
                    raise Failed(f"{what}: what was just written differs: {'; '.join(differences)}")

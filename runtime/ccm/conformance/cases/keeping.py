# SPDX-License-Identifier: Apache-2.0
"""What stays in the cloud when a Service goes, and who may take it back."""

from __future__ import annotations

import contextlib
import dataclasses

from ccm.cloud import Conflict, KeepsLoadBalancers, Kept, LoadBalancer, LoadBalancerSpec, NotFound

from ..another_process import fingerprint_or_refusal
from ..kit import KEEPS
from ..trial import Failed, Trial
from .collection import Collection

COLLECTION = Collection("load_balancers", needs=KEEPS)
case = COLLECTION.case


@case(writes=True)
async def one_that_is_kept_outlives_its_service(trial: Trial) -> None:
    """A load balancer that is to be kept stays, without backends, when its Service is deleted. Afterwards `kept` shows
    it, and `list` and `get` do not. The same holds if only cluster and UID of the Service are known at its deletion."""
    parts = await trial.world.load_balancer_parts()
    for only_identity in (False, True):
        spec = dataclasses.replace(trial.spec(), keep=Kept.LOAD_BALANCER)
        balancer = await trial.ensure(spec, await trial.backends())
        mark = next(each.keep for each in await trial.owned() if each.service_uid == spec.uid)
        if mark is not Kept.LOAD_BALANCER:
            raise Failed(f"{balancer.name} is to be kept, but the listing has keep={mark}")
        await _leave(trial, LoadBalancerSpec(spec.cluster, spec.uid, "", "", ()) if only_identity else spec)
        await _belongs_to_nobody(trial, spec)
        await _is_shown_as_kept(trial, spec, balancer)
        if not await trial.world.load_balancer_parts() - parts:
            raise Failed(f"{balancer.name} was to be kept, and is gone")
        if any(listener.targets for listener in await trial.world.load_balancer_listeners(balancer.name)):
            raise Failed(f"{balancer.name} has no Service any more, and still sends to node ports that others may get")
        await _give_back(trial, spec, balancer)


@case(writes=True)
async def one_that_is_kept_is_taken_back_by_its_namespace(trial: Trial) -> None:
    """A Service that names a kept load balancer gets that load balancer with its address. A Service of another
    namespace or of another cluster gets a Conflict, and so does a Service that names it after it was taken back. None
    of these Services gets another load balancer instead."""
    spec, backends = dataclasses.replace(trial.spec(), keep=Kept.LOAD_BALANCER), await trial.backends()
    before = await trial.ensure(spec, backends)
    await _leave(trial, spec)
    taking = dataclasses.replace(trial.spec(), name="again", take_back=before.name)
    for stranger in (
        dataclasses.replace(trial.spec(), namespace="ccm-conformance-2", take_back=before.name),
        trial.spec(cluster=f"{trial.cluster}-2"),
    ):
        asking = dataclasses.replace(stranger, take_back=before.name)
        await _refused(trial, asking, f"{asking.cluster}/{asking.namespace} asked for {before.name}")
    after = await trial.ensure(taking, backends)
    if after.ingress != before.ingress:
        raise Failed(f"{before.name} was taken back and has {after.ingress} instead of {before.ingress}")
    if not any(listener.targets for listener in await trial.world.load_balancer_listeners(after.name)) and backends:
        raise Failed(f"{after.name} was taken back and sends to nobody")
    late = dataclasses.replace(trial.spec(), name="late", take_back=before.name)
    await _refused(trial, late, f"{before.name} was taken back, and a second Service asked for it")
    await trial.delete(taking)
    await _belongs_to_nobody(trial, taking)


@case(writes=True)
async def what_a_service_asks_for_last_is_kept(trial: Trial) -> None:
    """The fingerprint covers `keep` and `protected`, and the listing shows them, also after they changed for an
    existing load balancer. A load balancer with neither is deleted with its Service."""
    parts, plain, backends = await trial.world.load_balancer_parts(), trial.spec(), await trial.backends()
    await trial.ensure(plain, backends)
    for asking in (
        dataclasses.replace(plain, protected=True),
        dataclasses.replace(plain, keep=Kept.LOAD_BALANCER),
        plain,
    ):
        await trial.ensure(asking, backends)
        listed = next(each for each in await trial.owned() if each.service_uid == plain.uid)
        if (listed.keep, listed.protected) != (asking.keep, asking.protected):
            raise Failed(f"after {asking.keep}, protected={asking.protected}, the listing has {listed}")
        if listed.fingerprint != fingerprint_or_refusal(trial.load_balancers, asking, backends):
            raise Failed(f"the listing of {listed.name} has another fingerprint than what was written last")
    await _leave(trial, plain)
    if await trial.world.load_balancer_parts() - parts:
        raise Failed(f"{listed.name} was not to be kept any more, and stays")


async def _leave(trial: Trial, spec: LoadBalancerSpec) -> None:
    with contextlib.suppress(NotFound):  # the last of several calls may find nothing
        await trial.patiently(trial.load_balancers.delete, spec)


async def _refused(trial: Trial, spec: LoadBalancerSpec, when: str) -> None:
    trial.remove_at_end(spec)
    await trial.expect((Conflict,), when, trial.load_balancers.ensure, spec, await trial.backends())
    await _belongs_to_nobody(trial, spec)


async def _belongs_to_nobody(trial: Trial, spec: LoadBalancerSpec) -> None:
    await trial.expect((NotFound,), f"get of Service {spec.uid}", trial.load_balancers.get, spec)
    if any(each.service_uid == spec.uid or not each.service_uid for each in await trial.owned(spec.cluster)):
        raise Failed(f"the listing has a load balancer for Service {spec.uid}, which has none")


async def _is_shown_as_kept(trial: Trial, spec: LoadBalancerSpec, former: LoadBalancer) -> None:
    balancers = trial.load_balancers
    assert isinstance(balancers, KeepsLoadBalancers)
    address = former.ingress[0].ip or former.ingress[0].hostname
    shown = [each for each in await trial.ask(balancers.kept, spec.cluster) if each.name == former.name]
    if [(each.namespace, each.address) for each in shown] != [(spec.namespace, address)]:
        raise Failed(f"{former.name} is kept for namespace {spec.namespace}, and the cloud shows {shown}")
    if any(each.name == former.name for each in await trial.ask(balancers.kept, f"{spec.cluster}-2")):
        raise Failed(f"{former.name} is kept for cluster {spec.cluster}, and shown for another one, too")


async def _give_back(trial: Trial, spec: LoadBalancerSpec, kept: LoadBalancer) -> None:
    """Remove the kept load balancer: another Service takes it back, and is deleted."""
    taking = dataclasses.replace(spec, uid=trial.spec().uid, keep=None, take_back=kept.name)
    await trial.ensure(taking, ())
    await trial.delete(taking)

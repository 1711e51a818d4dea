# SPDX-License-Identifier: Apache-2.0
"""The audit finds mistakes that the tests make by hand, while no controller runs that would fix them."""

from __future__ import annotations

from collections.abc import Callable

from ccm.engine.client import KubeClient
from ccm_simcloud.model import LoadBalancer, LoadBalancerBody, LoadBalancerPatch, Port, Route, RouteBody
from ccm_simcloud.testing import Simulator
from ccm_simcloud.world import Project

from ..runtime.support import NODES, eventually
from .audit import CLUSTER, Witness, audit, passes, wrong_writes
from .churn import Churn, name_of
from .conftest import FAST, StartCcm


def ours(project: Project) -> LoadBalancer:
    return next(row for row in project.load_balancers.rows.values() if row.tags.get("cluster") == CLUSTER)


def our_route(project: Project) -> Route:
    return next(row for row in project.routes.rows.values() if row.destination.startswith("10.244."))


def instance(project: Project) -> str:
    return next(row.id for row in project.instances.rows.values() if row.name == name_of(0))


def leak(project: Project) -> None:
    tags = {"cluster": CLUSTER, "service_uid": "nobody"}
    project.create_load_balancer(LoadBalancerBody("leak", (Port(80, 30000),), tags=tags))


BROKEN: dict[str, tuple[Callable[[Project], object], str]] = {
    "leaked": (leak, "is leaked: no Service has the UID nobody"),
    "other-ports": (
        lambda project: project.change_load_balancer(ours(project).id, LoadBalancerPatch(ports=(Port(1, 2),))),
        "has other ports",
    ),
    "no-targets": (
        lambda project: project.change_load_balancer(ours(project).id, LoadBalancerPatch(targets=())),
        "has 0 targets for 3 Nodes",
    ),
    "failed": (lambda project: project.break_load_balancer(ours(project).id, "x"), "is error"),
    "lost": (lambda project: project.delete_load_balancer(ours(project).id), "has no load balancer|is deleting"),
    "route-lost": (lambda project: project.delete_route(our_route(project).id), "route 10.244"),
    "route-too-much": (
        lambda project: project.create_route(RouteBody("10.244.99.0/24", instance(project))),
        "route 10.244.99.0/24: wanted None",
    ),
    "node-too-much": (
        lambda project: project.delete_instance(instance(project)),
        "Node churn-0 exists and its instance",
    ),
}


async def test_each_thing_that_does_not_fit_is_found(
    kube: KubeClient, cloud: Simulator, witness: Witness, start_ccm: StartCcm
):
    ccm = start_ccm(**FAST)
    await ccm.leading()
    churn = Churn(kube, cloud, witness, seed=1, nodes=3, services=2)
    await churn.begin()
    await passes(kube, cloud, witness)
    await ccm.stop()
    for number, (name, (breaks, expected)) in enumerate(BROKEN.items()):
        breaks(cloud.project())
        found = "\n".join(await audit(kube, cloud))
        assert any(part in found for part in expected.split("|")), f"{name} is not found:\n{found}"
        cloud.advance(1 + number)
    assert wrong_writes(cloud) == []


async def test_what_must_not_be_at_any_moment_is_seen(kube: KubeClient, cloud: Simulator, witness: Witness):
    churn = Churn(kube, cloud, witness, seed=1, nodes=3, services=0)
    await churn.begin()

    async def begun() -> bool:
        return len(witness.present()) == 3

    await eventually(begun)
    project = cloud.project()
    await kube.patch(f"{NODES}/{name_of(0)}", {"spec": {"providerID": f"sim://north/{instance(project)}"}})

    async def recorded() -> bool:
        return witness.provider_ids().get(name_of(0), "") != ""

    await eventually(recorded)
    await kube.delete(f"{NODES}/{name_of(0)}")

    async def seen(text: str) -> bool:
        return any(text in problem for problem in witness.problems)

    await eventually(lambda: seen(f"Node {name_of(0)} was deleted while its instance"))
    tags = {"cluster": CLUSTER, "service_uid": "twice"}
    for name in ("first", "second"):
        project.create_load_balancer(LoadBalancerBody(name, (Port(80, 30000),), tags=tags))
    await eventually(lambda: seen("has 2 load balancers"))
    other = next(row.id for row in project.load_balancers.rows.values() if row.tags.get("cluster") == "other")
    project.break_load_balancer(other, "touched")
    await eventually(lambda: seen("things of others were changed"))

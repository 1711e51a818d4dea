# SPDX-License-Identifier: Apache-2.0
"""If the controller is on, instances of Nodes get the tags of --instance-tags. Others' tags stay."""

from __future__ import annotations

from ccm.engine.client import KubeClient
from ccm_simcloud.testing import Simulator

from .conftest import StartCcm
from .support import NODES, event_messages, eventually, initialised, node_body

ON = {"controllers": "*,instance-tags", "instance_tags": "kubernetes.io/cluster/demo=owned,team=a"}
WANTED = {"kubernetes.io/cluster/demo": "owned", "team": "a"}


def labels(cloud: Simulator) -> dict[str, dict[str, str]]:
    return {row.name: dict(row.labels) for row in cloud.project().instances.rows.values()}


async def test_instances_of_nodes_are_tagged_and_no_others(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instances(4, prefix="tag-")
    mine_at = [{"type": "InternalIP", "address": "10.1.0.1"}]
    cloud.add_instance("mine", labels={"team": "b", "rack": "1"}, addresses=mine_at)
    await start_ccm(**ON).leading()
    names = ["tag-0", "tag-1", "tag-2", "mine"]
    for name in names:
        await kube.create(NODES, node_body(name))
    await eventually(lambda: initialised(kube, *names))
    tagged = {**{name: WANTED for name in names[:3]}, "tag-3": {}}
    mine = {"team": "b", "rack": "1", "kubernetes.io/cluster/demo": "owned"}

    async def done() -> bool:
        return labels(cloud) == {**tagged, "mine": mine}

    await eventually(done)
    (message,) = await eventually(lambda: event_messages(kube, "InstanceTagKept", "mine"))
    assert "team='b' instead of 'a'" in message
    assert cloud.calls("instances.add_labels") == 4


async def test_a_node_that_claims_the_machine_of_another_tags_nothing(
    kube: KubeClient, cloud: Simulator, start_ccm: StartCcm
):
    other = cloud.add_instance("other", addresses=[{"type": "InternalIP", "address": "10.0.0.1"}])
    cloud.add_instance("claimer", addresses=[{"type": "InternalIP", "address": "10.0.0.2"}])
    cloud.add_instance("honest", addresses=[{"type": "InternalIP", "address": "10.0.0.3"}])
    await start_ccm(**ON).leading()
    await kube.create(NODES, node_body("claimer", tainted=False, providerID=f"sim://north/{other.id}"))
    await kube.create(NODES, node_body("honest"))

    async def tagged() -> bool:
        return labels(cloud)["honest"] == WANTED

    await eventually(tagged)
    assert labels(cloud)["other"] == labels(cloud)["claimer"] == {}


async def test_a_cloud_that_fails_is_asked_again(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    cloud.add_instance("later")
    cloud.fault(action="status", status=500, match={"operation": "instances.add_labels"})
    await start_ccm(**ON).leading()
    await kube.create(NODES, node_body("later"))
    assert await eventually(lambda: event_messages(kube, "InstanceNotTagged", "later"))
    assert labels(cloud)["later"] == {}
    cloud.clear_faults()

    async def tagged() -> bool:
        return labels(cloud)["later"] == WANTED

    await eventually(tagged)


async def test_it_is_off_without_tags(kube: KubeClient, cloud: Simulator, start_ccm: StartCcm):
    ccm = start_ccm(controllers="*,instance-tags")
    await ccm.leading()
    assert "instance-tags-controller is not started: --instance-tags is empty" in ccm.text

# SPDX-License-Identifier: Apache-2.0
import asyncio

import msgspec
import pytest

from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.controller_spec import Right
from ccm.engine.api_errors import UnavailableError
from ccm.manager.rights_check import AT_ONCE, missing, needed

DEFAULT = [spec for spec in BUILT_IN.values() if spec.on_by_default]

COMMON = {
    Right("nodes", "get"),
    Right("nodes", "list"),
    Right("nodes", "watch"),
    Right("services", "get"),
    Right("services", "list"),
    Right("services", "watch"),
    Right("events", "create"),
    Right("events", "patch"),
}


@pytest.mark.parametrize(
    ("controllers", "more"),
    [
        ([], set()),
        (["cloud-node-controller"], {Right("nodes", "patch"), Right("nodes/status", "patch")}),
        (["cloud-node-lifecycle-controller"], {Right("nodes", "patch"), Right("nodes", "delete")}),
        (["service-lb-controller"], {Right("services/status", "patch")}),
        (["node-route-controller"], {Right("nodes/status", "patch")}),
        (["persistentvolume-label-controller"], {Right("persistentvolumes", x) for x in ("list", "watch", "patch")}),
    ],
)
def test_each_controller_asks_for_no_more_than_it_needs(controllers, more):
    assert set(needed(BUILT_IN[name] for name in controllers)) == COMMON | more


def test_all_controllers_together_name_each_right_once():
    rights = needed(DEFAULT, [("kube-system", "ccm")])
    assert len(rights) == len(set(rights))
    assert rights == sorted(rights)
    assert {right.resource for right in rights} == {
        "nodes",
        "nodes/status",
        "services",
        "services/status",
        "events",
        "leases",
    }


def test_the_lease_is_asked_for_by_name_but_created_without():
    group = "coordination.k8s.io"
    leases = {right for right in needed([], [("cloud", "my-ccm")]) if right.resource == "leases"}
    assert Right("leases", "get", group, "cloud", "my-ccm") in leases
    assert Right("leases", "patch", group, "cloud", "my-ccm") in leases
    assert {right for right in leases if not right.name} == {Right("leases", "create", group, "cloud")}
    assert all(right.namespace == "cloud" for right in leases)


def test_leader_migration_needs_both_leases():
    group = "coordination.k8s.io"
    rights = needed([], [("kube-system", "ccm"), ("kube-system", "moved")])
    assert {right.name for right in rights if right.group == group} == {"", "ccm", "moved"}


def test_the_client_ca_is_one_config_map():
    wanted = Right("configmaps", "get", "", "kube-system", "extension-apiserver-authentication")
    assert set(needed([], client_ca=True)) == COMMON | {wanted}


def test_rights_read_like_kubectl():
    assert str(Right("nodes/status", "patch")) == "patch nodes/status"
    assert str(Right("leases", "get", "coordination.k8s.io", "kube-system", "x")) == (
        "get leases.coordination.k8s.io in namespace kube-system"
    )


class FakeClient:
    def __init__(self, refused=(), error=None):
        self.refused, self.error, self.asked = set(refused), error, []

    async def ask(self, path, body, type):
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        if self.error:
            raise self.error
        attributes = body["spec"]["resourceAttributes"]
        self.asked.append(attributes)
        allowed = (attributes["verb"], attributes["resource"], attributes.get("subresource", "")) not in self.refused
        return msgspec.convert({"status": {"allowed": allowed}}, type)


async def test_missing_names_all_that_are_refused():
    rights = needed(DEFAULT, [("kube-system", "ccm")])
    client = FakeClient({("delete", "nodes", ""), ("patch", "services", "status")})
    assert await missing(client, rights) == [Right("nodes", "delete"), Right("services/status", "patch")]
    assert len(client.asked) == len(rights)
    assert {"resource": "nodes", "subresource": "status", "verb": "patch"} in client.asked
    assert {
        "resource": "leases",
        "verb": "get",
        "group": "coordination.k8s.io",
        "namespace": "kube-system",
        "name": "ccm",
    } in client.asked
    assert await missing(FakeClient(), rights) == []


async def test_a_server_that_does_not_tell_is_not_taken_for_a_no():
    with pytest.raises(UnavailableError):
        await missing(FakeClient(error=UnavailableError(0, "", "down")), [Right("nodes", "list")])


@pytest.mark.parametrize("error", [None, UnavailableError(0, "", "down")])
async def test_few_rights_are_reviewed_at_the_same_time_and_none_after_an_error(error):
    """Each review in progress has a connection of its own."""
    under_way, most = 0, 0

    class SlowClient(FakeClient):
        async def ask(self, path, body, type):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            self.asked.append(body)
            try:
                for _ in range(3):
                    await asyncio.sleep(0)
                if error is not None:
                    raise error
                return msgspec.convert({"status": {"allowed": True}}, type)
            finally:
                under_way -= 1

    client, rights = SlowClient(), needed(DEFAULT, [("kube-system", "ccm")])
    if error is None:
        assert await missing(client, rights) == []
        assert len(client.asked) == len(rights)
    else:
        with pytest.raises(UnavailableError):
            await missing(client, rights)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(client.asked) <= 2 * AT_ONCE and not under_way
    assert most == AT_ONCE

# SPDX-License-Identifier: Apache-2.0
"""Which Nodes are written by replacing the whole object in its own bytes, and which by a patch."""

import pytest

from ccm.controllers.nodes.node_rules import UNINITIALIZED_TAINT, Plan
from ccm.controllers.nodes.node_writes import NodeWrites
from ccm.controllers.shared import cache_rules
from ccm.controllers.shared.cache_rules import kept_node
from ccm.engine.api_errors import ConflictError, ForbiddenError
from ccm.engine.objects import Node, NodeSpec, ObjectMeta, Taint
from ccm.engine.protobuf.as_read import AsRead

PLAN = Plan({"status": {"addresses": []}}, {"spec": {"providerID": "x"}})
NO_RIGHT = ForbiddenError(403, "Forbidden", 'User "ccm" cannot update resource "nodes/status" in API group ""')
WEBHOOK = ForbiddenError(403, "Forbidden", 'admission webhook "w" denied the request')


class Client:
    def __init__(self, *errors):
        self.sent, self.errors = [], list(errors)

    async def replace(self, path, type, data, change, *, last):
        self.sent.append(("PUT", path, data))
        if self.errors:
            raise self.errors.pop(0)
        return b"" if last else data + b"'"

    async def patch(self, path, patch, *, strategic):
        self.sent.append(("PATCH", path, patch["metadata"]["resourceVersion"]))
        return ObjectMeta(resource_version="8")


def node(*taints, data=b"n"):
    meta = ObjectMeta("a", resource_version="7")
    return Node(meta, NodeSpec(taints=[Taint(key) for key in taints]), as_read=AsRead(data))


PATCHED = [("PATCH", "/api/v1/nodes/a/status", "7"), ("PATCH", "/api/v1/nodes/a", "8")]
REPLACED = [("PUT", "/api/v1/nodes/a/status", b"n"), ("PUT", "/api/v1/nodes/a", b"n'")]


async def test_the_second_write_continues_with_the_answer_to_the_first():
    client = Client()
    await NodeWrites(client).write(node(), PLAN, "initialisation")
    assert client.sent == REPLACED


async def test_a_node_without_its_bytes_is_patched():
    client = Client()
    await NodeWrites(client).write(Node(ObjectMeta("a", resource_version="7")), PLAN, "labels")
    assert client.sent == PATCHED


@pytest.mark.parametrize(("error", "then"), [(NO_RIGHT, PATCHED), (WEBHOOK, REPLACED)], ids=["role", "webhook"])
async def test_what_may_not_be_replaced_is_patched(error, then):
    """Without permission to replace, all later writes are patches. After a webhook's refusal, only the same write is a
    patch.
    """
    client = Client(error)
    writes = NodeWrites(client)
    await writes.write(node(), PLAN, "initialisation")
    assert client.sent == [REPLACED[0], *PATCHED]
    client.sent.clear()
    await writes.write(node(), PLAN, "initialisation")
    assert client.sent == then


async def test_a_conflict_is_the_callers():
    client = Client(ConflictError(409, "Conflict", "changed"))
    with pytest.raises(ConflictError):
        await NodeWrites(client).write(node(), PLAN, "initialisation")
    assert client.sent == REPLACED[:1]


def test_only_a_node_that_waits_keeps_its_bytes(monkeypatch):
    waiting = node("other", UNINITIALIZED_TAINT)
    assert kept_node(waiting).as_read is waiting.as_read
    assert kept_node(node("other")).as_read is None
    monkeypatch.setattr(cache_rules, "AS_READ", AsRead.held - 1)
    assert kept_node(waiting).as_read is None

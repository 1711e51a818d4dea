# SPDX-License-Identifier: Apache-2.0
"""A process does not continue with another cluster than the one that it saw first."""

import asyncio

import msgspec
import pytest

from ccm.base.clock import FakeClock
from ccm.engine.api_errors import ForbiddenError, NotFoundError, UnavailableError
from ccm.engine.identity import ClusterChanged, ClusterIdentity


class Client:
    """Answers with UIDs or errors in turn, the last one for ever."""

    server = "https://192.0.2.1:6443"

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    async def get(self, path, type):
        assert path == "/api/v1/namespaces/kube-system"
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return msgspec.convert({"metadata": {"name": "kube-system", "uid": answer}}, type)


async def test_the_same_cluster_is_the_same():
    identity = ClusterIdentity(Client("a"))
    for _ in range(3):
        await identity.check()
    assert identity.uid == "a"


async def test_another_cluster_ends_the_process():
    identity = ClusterIdentity(Client("a", "b"))
    await identity.check()
    with pytest.raises(ClusterChanged, match=r"https://192.0.2.1:6443 .* has the UID b, not a\. .*--kubeconfig"):
        await identity.check()
    assert identity.uid == "a"


@pytest.mark.parametrize(
    "error", [NotFoundError(404, "NotFound", "no kube-system yet"), UnavailableError(0, "Timeout", "no answer")]
)
async def test_no_answer_is_no_other_cluster_and_no_same_one(error):
    identity = ClusterIdentity(Client("a", error))
    await identity.check()
    with pytest.raises(type(error)):
        await identity.check()


async def test_without_the_right_to_read_it_goes_on_after_one_warning(caplog):
    identity = ClusterIdentity(Client(ForbiddenError(403, "Forbidden", "namespaces kube-system is forbidden")))
    for _ in range(3):
        await identity.check()
    (record,) = caplog.records
    assert "grant the verb get on the Namespace kube-system" in record.getMessage()


async def test_whoever_needs_the_answer_waits_for_it():
    clock, client = FakeClock(), Client(UnavailableError(0, "Timeout", "no answer"), "a")
    waiting = asyncio.create_task(ClusterIdentity(client, clock).settled())
    await clock.settle()
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done() and client.asked == 2
    await waiting

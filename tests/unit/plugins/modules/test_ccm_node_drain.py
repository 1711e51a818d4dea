# SPDX-License-Identifier: Apache-2.0
"""If a drain fails, the Node that it cordoned accepts Pods again, or the message says why not."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api
from ansible_collections.outoftree.ccm.plugins.modules import ccm_node_drain as subject


class Api:
    """An API server with one Node and one Pod. `answers`: the status of each eviction; `uncordoned`: the status of the uncordoning."""

    def __init__(self, *answers: int, uncordoned: int = 200, unschedulable: bool = False) -> None:
        self.answers, self.uncordoned, self.unschedulable = list(answers), uncordoned, unschedulable
        owner = {"kind": "ReplicaSet", "name": "x", "controller": True}
        self.pods = [{"metadata": {"namespace": "default", "name": "web", "ownerReferences": [owner]}, "spec": {}}]

    def get(self, path: str) -> Any:
        return {"metadata": {"uid": "1"}, "spec": {"unschedulable": True} if self.unschedulable else {}}

    def items(self, path: str, query: Any) -> Any:
        return self.pods

    def call(self, verb: str, path: str, body: Any) -> None:
        status = self.answers.pop(0)
        if status != 200:
            raise api.ApiError(status, f"status {status}")
        self.pods = []

    def patch(self, path: str, body: Any) -> None:
        if body["spec"]["unschedulable"] is None and self.uncordoned != 200:
            raise api.ApiError(self.uncordoned, f"status {self.uncordoned}")
        self.unschedulable = bool(body["spec"]["unschedulable"])


@pytest.fixture
def drain(monkeypatch: pytest.MonkeyPatch, run_module: Any) -> Any:
    def run(server: Api) -> Any:
        monkeypatch.setattr(api, "connect", lambda module: server)
        monkeypatch.setattr(subject, "POLL", 0.01)
        return run_module(subject, {"name": "agent-1"})

    return run


@pytest.mark.parametrize("status", [0, 429, 500, 503, 504])
def test_an_eviction_is_retried_after_an_error_that_may_pass(drain: Any, status: int) -> None:
    server = Api(status, 200)
    done = drain(server)
    assert done.get("evicted") == ["default/web"] and server.unschedulable, done


def test_a_node_is_given_back_after_an_error_that_stays(drain: Any) -> None:
    server = Api(403)
    failed = drain(server)
    assert failed["failed"] and "status 403" in failed["msg"] and failed["msg"].endswith("; it accepts Pods again")
    assert not server.unschedulable


def test_a_node_that_was_cordoned_before_stays_so(drain: Any) -> None:
    server = Api(403, unschedulable=True)
    assert "Pods again" not in drain(server)["msg"] and server.unschedulable


def test_a_node_that_cannot_be_given_back_is_reported(drain: Any) -> None:
    assert drain(Api(403, uncordoned=503))["msg"].endswith("; it stays cordoned (status 503): run 'kubectl uncordon agent-1'")

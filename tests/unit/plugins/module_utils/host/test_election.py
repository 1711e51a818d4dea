# SPDX-License-Identifier: Apache-2.0
"""The gate accepts kube-controller-manager only once one of its processes leads: /healthz answers long before the
controllers start.

If the Lease cannot be read, the gate waits longer than the Lease lasts.
With CloudAllocator and no cloud, a process of 1.30 exits only when it leads. That is about 15 s after its start,
because the process before it does not release the Lease.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.host import component as _component
from ansible_collections.outoftree.ccm.plugins.module_utils.host import logs, probes, processes

KCM = processes.Process(2, 2, ["kube-controller-manager"])
API = processes.Process(1, 1, ["kube-apiserver", "--secure-port=6443"])


class Clock:
    """A clock that advances only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Bed:
    """A control plane with one kube-controller-manager. `story`: the answer about its Lease at each second: (holder, renewed), an error
    status, or an exception."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
        self.clock = Clock()
        self.story: Any = lambda now: ("cp-1_a", int(now) // 2)
        self.servers = [API]
        self.paths: list[str] = []
        self.gone = lambda now: False
        monkeypatch.setattr(_component.time, "sleep", self.clock.sleep)
        monkeypatch.setattr(_component.time, "monotonic", self.clock.monotonic)
        monkeypatch.setattr(probes, "component_health", lambda name, argv: "")
        monkeypatch.setattr(probes, "kubelet_health", lambda settings: "")
        monkeypatch.setattr(probes, "api_server_answer", self.answer, raising=False)
        monkeypatch.setattr(logs, "container_starts", lambda name, known, logs: 0)
        monkeypatch.setattr(processes, "of_unit", lambda unit, name="": None)
        monkeypatch.setattr(processes, "of_static_pod", self.running)
        self.process = processes.Process(2, 2, [name, *arguments])
        parameters = {"component": name, "timeout": 60, "service": {}}
        self.component = _component.Component(type("Module", (), {"params": parameters})())

    def running(self, name: str, logs: str = "") -> list[processes.Process]:
        if name == "kube-apiserver" != self.process.argv[0]:
            return self.servers
        return [] if self.gone(self.clock.now) else [self.process]

    def answer(self, argv: list[str], path: str) -> tuple[int, str]:
        self.paths.append(path)
        told = self.story(self.clock.now)
        if isinstance(told, Exception):
            raise told
        if isinstance(told, int):
            return told, "no"
        return 200, json.dumps({"spec": {"holderIdentity": told[0], "renewTime": "T{0}".format(told[1])}})

    def wait(self) -> float:
        return float(self.component.wait([], set(), []))


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch, "kube-controller-manager")


def test_it_is_good_when_it_leads_and_has_led_for_a_while(bed: Bed) -> None:
    """The old process's Lease expires after 15 s; then the new process leads and renews the Lease every 2 s."""
    bed.story = lambda now: ("cp-1_old", 0) if now < 15 else ("cp-1_new", int(now) // 2)
    assert 18 <= bed.wait() <= 25
    assert set(bed.paths) == {"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"}


def test_it_is_good_when_another_one_leads(bed: Bed) -> None:
    bed.story = lambda now: ("cp-2_b", int(now) // 2)
    assert 3 <= bed.wait() <= 6


@pytest.mark.parametrize(("story", "words"), [
    (lambda now: ("cp-1_old", 0), "is not renewed by its holder cp-1_old"),
    (lambda now: ("", int(now)), "has no holder"),
    (lambda now: 404, "has no holder"),
    (lambda now: ("cp-1_{0}".format(int(now) // 2), int(now)), "is not renewed by its holder"),
])
def test_it_is_not_good_while_nobody_leads_for_long(bed: Bed, story: Any, words: str) -> None:
    """The cases: a holder that is gone, no holder, no Lease, and processes that lead for a moment and exit."""
    bed.story = story
    with pytest.raises(_component.Failed, match="no kube-controller-manager leads: the Lease kube-system/kube-controller-manager") as failure:
        bed.wait()
    assert words in str(failure.value)


def test_a_process_that_ends_when_it_leads_is_not_good(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted process has another identity, so renewals by the first process do not count for it."""
    bed.gone = lambda now: 16 <= now % 20
    bed.story = lambda now: ("cp-1_{0}".format(int(now) // 20), 0 if now % 20 < 15 else int(now))
    counted = itertools.count(1)
    monkeypatch.setattr(logs, "container_starts", lambda name, known, logs: next(counted) // 4)
    with pytest.raises(_component.Failed, match="crash-looping"):
        bed.wait()


@pytest.mark.parametrize("trouble", [OSError("refused"), ValueError("no certificate"), 403, 500])
def test_without_an_answer_about_the_lease_its_term_and_ten_seconds_must_pass(bed: Bed, trouble: Any) -> None:
    bed.story = lambda now: trouble
    assert 25 <= bed.wait() <= 27


def test_an_api_server_that_restarts_meanwhile_decides_nothing(bed: Bed) -> None:
    bed.story = lambda now: OSError("refused") if now < 8 else ("cp-1_new", int(now) // 2)
    assert 11 <= bed.wait() <= 15


def test_a_host_without_an_api_server_waits_as_well(bed: Bed) -> None:
    bed.servers = []
    assert 25 <= bed.wait() <= 27 and not bed.paths


@pytest.mark.parametrize(("arguments", "least", "most", "path"), [
    (["--leader-elect=false"], 10, 12, ""),
    (["--leader-elect=FALSE"], 10, 12, ""),
    (["--leader-elect", "--v=2"], 3, 6, "kube-system/leases/kube-controller-manager"),
    (["--leader-elect=false", "--leader-elect=T"], 3, 6, "kube-system/leases/kube-controller-manager"),
    (["--leader-elect-lease-duration=30s"], 3, 6, "kube-system/leases/kube-controller-manager"),
    (["--leader-elect-resource-name=kcm", "--leader-elect-resource-namespace=other"], 3, 6, "other/leases/kcm"),
])
def test_its_own_flags_say_which_lease(
        monkeypatch: pytest.MonkeyPatch, arguments: list[str], least: float, most: float, path: str) -> None:
    bed = Bed(monkeypatch, "kube-controller-manager", *arguments)
    assert least <= bed.wait() <= most
    assert [asked for asked in bed.paths if not asked.endswith(path)] == [] and bool(bed.paths) == bool(path)


@pytest.mark.parametrize(("duration", "patience"), [("30s", 40), ("1m", 70), ("1m5s", 75), ("1500ms", 12), ("", 10), ("1..2s", 10)])
def test_the_term_of_the_lease_is_the_flags(monkeypatch: pytest.MonkeyPatch, duration: str, patience: int) -> None:
    bed = Bed(monkeypatch, "kube-controller-manager", "--leader-elect-lease-duration=" + duration)
    bed.component.timeout, bed.story = 100, lambda now: 403
    assert patience <= bed.wait() <= patience + 2


def test_other_components_are_healthy_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed(monkeypatch, "kube-apiserver")
    assert bed.wait() == 1 and not bed.paths

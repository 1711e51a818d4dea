# SPDX-License-Identifier: Apache-2.0
"""vCenters limit sessions: whatever fails, at most one session is open, and none after the end."""

from __future__ import annotations

import random
import ssl
from typing import Any

import pytest

from ccm.providers.vsphere import session as vsphere_session
from ccm.providers.vsphere.session import Live, Session
from ccm.providers.vsphere.settings import VCenter


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not read the system's certificates, which takes most of the time of a login."""
    monkeypatch.setattr(vsphere_session, "tls_context", lambda vcenter: None)


class NotAuthenticated(Exception):
    pass


class ManagedObjectNotFound(Exception):
    pass


class FakeVCenter:
    """ServiceContent, its managers and the connection in one object. `fails`: call -> the error that it raises once."""

    def __init__(self) -> None:
        self.open, self.most, self.views, self.logins = 0, 0, 0, 0
        self.fails: dict[str, Exception] = {}
        self.sessionManager = self.viewManager = self.searchIndex = self
        self.rootFolder = object()

    def _call(self, name: str) -> None:
        if name in self.fails:
            raise self.fails.pop(name)

    def Login(self, user: str, password: str) -> None:
        self._call("Login")
        self.open += 1
        self.logins += 1
        self.most = max(self.most, self.open)

    def Logout(self) -> None:
        self._call("Logout")
        self.open -= self.open > 0

    def FindByInventoryPath(self, name: str) -> object | None:
        self._call("FindByInventoryPath")
        return None if "missing" in self.fails else self.rootFolder

    def CreateContainerView(self, *_: Any) -> FakeVCenter:
        self._call("CreateContainerView")
        self.views += 1
        return self

    def DestroyView(self) -> None:
        self._call("DestroyView")
        self.views -= 1

    def DropConnections(self) -> None:
        pass


class Connected(Session):
    def __init__(self, vcenter: FakeVCenter, *datacenters: str) -> None:
        settings = VCenter("vc", "vc", user="u", password="p", insecure=True, datacenters=datacenters)
        super().__init__(settings, 1.0, with_places=True)
        self._vcenter = vcenter

    def _connect(self, context: ssl.SSLContext) -> tuple[Any, Any]:
        return self._vcenter, self._vcenter


def fails(error: Exception) -> Any:
    def work(live: Live) -> None:
        raise error

    return work


def test_a_session_that_cannot_be_used_is_logged_out() -> None:
    vcenter = FakeVCenter()
    session = Connected(vcenter, "dc")
    for number in range(100):
        vcenter.fails = {"CreateContainerView": OSError("down")} if number % 2 else {"missing": OSError()}
        with pytest.raises(Exception, match=r"down|no datacenter"):
            session.run(lambda live: None)
        assert vcenter.open == 0
    session.close()
    assert (vcenter.most, vcenter.open) == (1, 0)


def test_a_machine_that_goes_while_it_is_read_costs_no_session() -> None:
    vcenter = FakeVCenter()
    session = Connected(vcenter)
    for _ in range(100):
        with pytest.raises(ManagedObjectNotFound):
            session.run(fails(ManagedObjectNotFound()))
    assert (vcenter.logins, vcenter.open, vcenter.views) == (1, 1, 2)
    session.close()
    assert vcenter.open == 0


def test_a_session_that_has_ended_is_replaced() -> None:
    vcenter = FakeVCenter()
    session = Connected(vcenter)
    seen: list[Live] = []

    def work(live: Live) -> str:
        seen.append(live)
        if len(seen) == 1:
            raise NotAuthenticated
        return "done"

    assert session.run(work) == "done"
    assert (vcenter.logins, vcenter.open, vcenter.most) == (2, 1, 1)


def test_at_most_one_session_is_open_for_any_sequence_of_failures() -> None:
    dice = random.Random(34)
    calls = ("Login", "CreateContainerView", "FindByInventoryPath", "DestroyView", "none")
    faults = (NotAuthenticated(), ManagedObjectNotFound(), OSError("down"), TimeoutError(), ValueError("odd"))
    vcenter = FakeVCenter()
    session = Connected(vcenter, "dc")
    for _ in range(3000):
        vcenter.fails = {dice.choice(calls): dice.choice(faults)}
        work = dice.choice((lambda live: None, *map(fails, faults)))
        try:
            session.run(work)
        except Exception as error:
            assert error is not None
        if dice.random() < 0.05:
            vcenter.fails = {}
            session.close()
        assert vcenter.open <= 1 and vcenter.most <= 1
    vcenter.fails = {}
    session.close()
    assert vcenter.open == 0

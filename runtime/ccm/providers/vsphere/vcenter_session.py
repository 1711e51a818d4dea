# SPDX-License-Identifier: Apache-2.0
"""One session with one vCenter: login, one new login when the session has ended, deadlines. Blocking, for threads."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ccm.cloud import Transient, Unauthorized

from .conf_file import VCenter
from .connection import RestSession, SoapConnection, tls_context
from .secret_files import credentials
from .vcenter_errors import fault_name, no_permission

T = TypeVar("T")

#: The oldest vSphere API that has all that is read: 6.5.
API = "vim.version.version11"
#: Faults after which a new session helps: the old one has ended, or its views with it.
_ENDED = ("NotAuthenticated", "ManagedObjectNotFound")


def sdk_problem() -> str:
    """The message about a package that is not installed, "" if it is."""
    if importlib.util.find_spec("pyVmomi") is not None:
        return ""
    return "the provider vsphere needs the package pyvmomi: pip install 'outoftree-ccm[vsphere]'"


def load_sdk() -> None:
    """Import pyvmomi, which takes a second of a processor: before the first deadline begins. Blocking."""
    from pyVmomi import SoapStubAdapter, vim, vmodl

    _ = SoapStubAdapter, vim.VirtualMachine, vmodl.query.PropertyCollector


@dataclass
class Live:
    """A session that is logged in. `content`: vCenter's ServiceContent. `machines`: one view of all virtual machines
    for each datacenter. `places`: a view of all that contains them. Views end with the session."""

    content: Any
    stub: Any
    rest: RestSession
    datacenters: list[Any] = field(default_factory=list)
    machines: list[Any] = field(default_factory=list)
    places: Any = None


class Session:
    """Use it from several threads. `timeout`: seconds for each request."""

    def __init__(self, vcenter: VCenter, timeout: float, *, with_places: bool) -> None:
        self.vcenter = vcenter
        self._timeout, self._with_places = timeout, with_places
        self._lock = threading.Lock()
        self._live: Live | None = None

    def run(self, work: Callable[[Live], T]) -> T:
        """What `work` returns. It is done again, once, if the session had ended.

        Raises CloudError, and what pyvmomi raises.
        """
        live = self._connected(None)
        try:
            return work(live)
        except Exception as error:
            if fault_name(error) not in _ENDED:
                raise
        return work(self._connected(live))

    def close(self) -> None:
        """Log out. Raises what pyvmomi raises."""
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.content.sessionManager.Logout()
            live.rest.logout()
            live.stub.DropConnections()

    def _connected(self, ended: Live | None) -> Live:
        """The present session; a new one if there is none, or if it is `ended`."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Transient(f"vCenter {self.vcenter.server}: another call waits for the login")
        try:
            if self._live is None or self._live is ended:
                self._live = None
                self._live = self._login()
            return self._live
        finally:
            self._lock.release()

    def _login(self) -> Live:
        from pyVmomi import SoapStubAdapter, vim

        user, password = credentials(self.vcenter)
        try:
            context = tls_context(self.vcenter)
        except OSError as error:
            raise Transient(
                f"cannot read ca-file {self.vcenter.ca_file}: {error.strerror or 'no certificate'}"
            ) from None
        stub = SoapStubAdapter(
            self.vcenter.server,
            self.vcenter.port,
            version=API,
            sslContext=context,
            httpConnectionTimeout=self._timeout,
        )
        stub.scheme = functools.partial(_connection, self.vcenter.thumbprint)
        stub.InvokeMethod = functools.partial(_invoke, stub.InvokeMethod, self.vcenter.server)
        content: Any = vim.ServiceInstance("ServiceInstance", stub).RetrieveContent()
        content.sessionManager.Login(user, password)
        live = Live(content, stub, RestSession(self.vcenter, (user, password), context, self._timeout))
        live.datacenters = [self._datacenter(content, name) for name in self.vcenter.datacenters]
        create = content.viewManager.CreateContainerView
        roots = live.datacenters or [content.rootFolder]
        live.machines = [create(root, [vim.VirtualMachine], True) for root in roots]
        if self._with_places:
            kinds = [vim.Datacenter, vim.Folder, vim.ComputeResource, vim.HostSystem, vim.ResourcePool]
            live.places = create(content.rootFolder, kinds, True)
        return live

    def _datacenter(self, content: Any, name: str) -> Any:
        found = content.searchIndex.FindByInventoryPath(name.strip("/"))
        if found is None:
            raise Unauthorized(
                f"vCenter {self.vcenter.server}: the user sees no datacenter {name!r}: check datacenters and the rights"
            )
        return found


def _connection(thumbprint: str, *args: Any, **kwargs: Any) -> SoapConnection:
    connection = SoapConnection(*args, **kwargs)
    connection.thumbprint = thumbprint
    return connection


def _invoke(invoke: Callable[..., Any], server: str, managed: Any, info: Any, args: Any) -> Any:
    """One call. Raises Unauthorized that names it, if the user may not do it."""
    try:
        return invoke(managed, info, args)
    except Exception as error:
        if fault_name(error) != "NoPermission":
            raise
        raise no_permission(error, info.wsdlName, server) from None

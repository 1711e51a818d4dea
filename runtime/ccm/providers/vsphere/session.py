# SPDX-License-Identifier: Apache-2.0
"""One session with one vCenter: login, one new login when the session has ended, deadlines. Blocking, for threads."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ccm.cloud import Transient, Unauthorized

from .connections import RestSession, SoapConnection, tls_context
from .credentials import credentials
from .errors import fault_name, no_permission
from .settings import VCenter

T = TypeVar("T")

#: The API version of the session: that of vSphere 6.5, the oldest that has everything that this provider reads.
API = "vim.version.version11"
#: The fault for a session that has ended, and the fault for a view or a machine that is gone.
_ENDED, _GONE = "NotAuthenticated", "ManagedObjectNotFound"


def sdk_problem() -> str:
    """Return the message if pyvmomi is not installed, "" if it is."""
    if importlib.util.find_spec("pyVmomi") is not None:
        return ""
    return "the provider vsphere needs the package pyvmomi: pip install 'outoftree-ccm[vsphere]'"


def load_sdk() -> None:
    """Import pyvmomi before the first deadline begins, because that takes a second of CPU time. Blocking."""
    from pyVmomi import SoapStubAdapter, vim, vmodl

    _ = SoapStubAdapter, vim.VirtualMachine, vmodl.query.PropertyCollector


@dataclass
class Live:
    """A session that is logged in. `content`: vCenter's ServiceContent. `machines`: views of virtual machines, one for
    each configured datacenter, or one of the whole inventory. `places`: a view of everything that contains machines,
    None if zones are not read. Views end with the session."""

    content: Any
    stub: Any
    rest: RestSession
    datacenters: list[Any] = field(default_factory=list)
    machines: list[Any] = field(default_factory=list)
    places: Any = None


class Session:
    """A session that several threads may use. `timeout`: seconds for each request."""

    def __init__(self, vcenter: VCenter, timeout: float, *, with_places: bool) -> None:
        self.vcenter = vcenter
        self._timeout, self._with_places = timeout, with_places
        self._lock = threading.Lock()
        self._live: Live | None = None

    def run(self, work: Callable[[Live], T]) -> T:
        """Return what `work` returns. If the session had ended, run `work` once more in a new session. If an object
        was gone, run `work` once more with new views.

        Raises CloudError, and what pyvmomi raises.
        """
        live = self._connected(None)
        try:
            return work(live)
        except Exception as error:
            fault = fault_name(error)
            if fault not in (_ENDED, _GONE):
                raise
        return work(self._connected(live, keep=fault == _GONE))

    def close(self) -> None:
        """Log out, and ignore errors."""
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            _leave(live)

    def _connected(self, ended: Live | None, *, keep: bool = False) -> Live:
        """Return the present session, or a new one if there is none or the present one is `ended`. `keep`: the session
        continues, and only its views are created again. Raises Transient if another call holds the login for too
        long."""
        if not self._lock.acquire(timeout=self._timeout):
            raise Transient(f"vCenter {self.vcenter.server}: another call waits for the login")
        try:
            if self._live is ended and ended is not None:
                self._live = None
                if keep:
                    self._live = self._renewed(ended)
                else:
                    _leave(ended)
            if self._live is None:
                self._live = self._login()
            return self._live
        finally:
            self._lock.release()

    def _renewed(self, live: Live) -> Live | None:
        """Return the session with new views. If that fails, log it out and return None."""
        try:
            fresh = Live(live.content, live.stub, live.rest)
            self._look(fresh)
        except Exception:
            _leave(live)
            return None
        for view in (*live.machines, live.places):
            with contextlib.suppress(Exception):  # the view itself may be gone
                view.DestroyView()
        return fresh

    def _login(self) -> Live:
        """Return a new session. Log out a session that cannot be used, because vCenter limits their number. Raises
        Transient if `ca-file` cannot be read."""
        user, password = credentials(self.vcenter)
        try:
            context = tls_context(self.vcenter)
        except OSError as error:
            raise Transient(
                f"cannot read ca-file {self.vcenter.ca_file}: {error.strerror or 'no certificate'}"
            ) from None
        stub, content = self._connect(context)
        live = Live(content, stub, RestSession(self.vcenter, (user, password), context, self._timeout))
        try:
            content.sessionManager.Login(user, password)
            self._look(live)
        except BaseException:
            _leave(live)
            raise
        return live

    def _connect(self, context: ssl.SSLContext) -> tuple[Any, Any]:
        """Return a connection, and vCenter's ServiceContent."""
        from pyVmomi import SoapStubAdapter, vim

        stub = SoapStubAdapter(
            self.vcenter.server,
            self.vcenter.port,
            version=API,
            sslContext=context,
            httpConnectionTimeout=self._timeout,
        )
        stub.scheme = functools.partial(_connection, self.vcenter.thumbprint)
        stub.InvokeMethod = functools.partial(_invoke, stub.InvokeMethod, self.vcenter.server)
        return stub, vim.ServiceInstance("ServiceInstance", stub).RetrieveContent()

    def _look(self, live: Live) -> None:
        """Find the datacenters, and create the views."""
        from pyVmomi import vim

        content = live.content
        live.datacenters = [self._datacenter(content, name) for name in self.vcenter.datacenters]
        create = content.viewManager.CreateContainerView
        roots = live.datacenters or [content.rootFolder]
        live.machines = [create(root, [vim.VirtualMachine], True) for root in roots]
        if self._with_places:
            kinds = [vim.Datacenter, vim.Folder, vim.ComputeResource, vim.HostSystem, vim.ResourcePool]
            live.places = create(content.rootFolder, kinds, True)

    def _datacenter(self, content: Any, name: str) -> Any:
        datacenter = content.searchIndex.FindByInventoryPath(name.strip("/"))
        if datacenter is None:
            raise Unauthorized(
                f"vCenter {self.vcenter.server}: the user sees no datacenter {name!r}: check datacenters and the rights"
            )
        return datacenter


def _leave(live: Live) -> None:
    """Log out, and ignore errors: the session may have ended already."""
    for farewell in (live.content.sessionManager.Logout, live.rest.logout, live.stub.DropConnections):
        with contextlib.suppress(Exception):
            farewell()


def _connection(thumbprint: str, *args: Any, **kwargs: Any) -> SoapConnection:
    connection = SoapConnection(*args, **kwargs)
    connection.thumbprint = thumbprint
    return connection


def _invoke(invoke: Callable[..., Any], server: str, managed: Any, info: Any, args: Any) -> Any:
    """Make one call with `invoke`. Raises Unauthorized, which names the call, if the user has no right for it."""
    try:
        return invoke(managed, info, args)
    except Exception as error:
        if fault_name(error) != "NoPermission":
            raise
        raise no_permission(error, info.wsdlName, server) from None

# SPDX-License-Identifier: Apache-2.0
"""A vCenter for tests: vcsim of govmomi, built by Go into the cache. Calls change its machines."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bed import go_programs
from bed.progress import Progress
from ccm.providers.vsphere.api import Inventory
from ccm.providers.vsphere.instance_rules import Machine
from ccm.providers.vsphere.session import Live, Session
from ccm.providers.vsphere.settings import VCenter as Settings
from tests.ports import free_port

USER, PASSWORD = "ccm@vsphere.local", "correct-horse-battery"


class VCenter:
    """One vCenter on a port of its own, which it keeps after a restart."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[str] | None = None
        self._control = ""
        self.start()

    def start(self) -> None:
        arguments = ["-listen", f"127.0.0.1:{self.port}", "-user", USER, "-password", PASSWORD, "-machines", "2"]
        program = go_programs.ensure("vcsim", Progress())
        self._process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._control = json.loads(self._process.stdout.readline())["control"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def section(self, name: str, **keys: str) -> str:
        """Return this vCenter's section of vsphere.conf."""
        given = {
            "server": "127.0.0.1",
            "port": str(self.port),
            "user": USER,
            "password": PASSWORD,
            "insecure-flag": "1",
        }
        lines = [f'{key} = "{value}"' for key, value in {**given, **keys}.items()]
        return "\n".join([f'[VirtualCenter "{name}"]', *lines, ""])

    @contextlib.contextmanager
    def admin(self) -> Iterator[Live]:
        """Yield a separate session of an administrator, for calls of vSphere."""
        settings = Settings("admin", "127.0.0.1", self.port, USER, PASSWORD, insecure=True)
        session = Session(settings, 60, with_places=True)
        yield session.run(lambda live: live)
        session.close()

    def shape(self, machine: str, **what: Any) -> None:
        """Set fields of a machine, such as `uuid`, or `hostName` and `nics` as the guest tools report them. `machine`:
        its reference. The simulator's main.go has all fields."""
        body = json.dumps({"machine": machine, **what}).encode()
        with urllib.request.urlopen(f"http://{self._control}/shape", body) as answer:
            assert answer.status == 200


def machines(live: Live) -> dict[str, Any]:
    """Return all machines by their names in the inventory."""
    return {each.name: each for each in live.machines[0].view}


def rows(live: Live) -> dict[str, Machine]:
    """Return all machines by managed object reference, read as the provider does: pyvmomi cannot read vcsim's objects
    with all of their properties."""
    session = Session(Settings("admin", "127.0.0.1"), 60, with_places=False)
    session._live = live
    return {each.id: each for each in Inventory(session, None, 100).all().machines}


def done(task: Any) -> Any:
    """Return the result of a task; the simulator finishes tasks at once."""
    while task.info.state in ("queued", "running"):
        pass
    assert task.info.state == "success", task.info.error
    return task.info.result


def nic(*addresses: str, network: str = "VM Network", device: int = 4000) -> dict[str, Any]:
    return {"network": network, "device": device, "addresses": list(addresses)}


def tag(live: Live, category: str, names: Mapping[str, Sequence[Any]]) -> None:
    """Create a category and its tags, and attach each tag to its objects. `names`: the objects by tag."""
    base, rest = "/com/vmware/cis/tagging", live.rest
    spec = {"name": category, "cardinality": "SINGLE", "associable_types": [], "description": ""}
    category_id = rest.call("POST", f"{base}/category", {"create_spec": spec})
    for name, managed in names.items():
        spec = {"name": name, "category_id": category_id, "description": ""}
        path = f"{base}/tag-association/id:{rest.call('POST', f'{base}/tag', {'create_spec': spec})}?~action=attach"
        for each in managed:  # answered without a value
            body = {"object_id": {"type": type(each)._wsdlName, "id": each._moId}}
            rest._send("POST", path, body, {"vmware-api-session-id": rest._session})

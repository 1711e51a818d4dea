# SPDX-License-Identifier: Apache-2.0
"""Controls a running rig: counts the clients' calls, breaks some of them, and lets load balancers fail."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Control:
    """Controls one rig. The methods block for milliseconds."""

    def __init__(self, data: Path, user: str = "") -> None:
        """`data`: the rig's folder, build/openstack. With `user`, faults break only the calls of this user, who logs in
        with a password, and other users' calls and faults are neither counted nor removed."""
        self.data, self._user = data, user
        self.world: dict[str, Any] = json.loads((data / "world.json").read_text())

    def calls(self) -> Counter[str]:
        """Return how many times each call, such as ``compute GET /servers/detail``, was made since `reset`, without
        calls to keystone.
        """
        found = Counter(f"{call['service']} {call['method']} {call['path']}" for call in self.journal())
        return Counter({call: count for call, count in found.items() if not call.startswith("identity ")})

    def logins(self) -> int:
        """Return how many tokens were requested since `reset`."""
        return sum(call["method"] == "POST" and call["path"] == "/auth/tokens" for call in self.journal())

    def journal(self) -> list[dict[str, Any]]:
        """Return every call with service, method, path template, query and status."""
        return list(json.loads(self._ask("GET", self._of_user("/calls"))))

    def reset(self) -> None:
        """Forget calls and faults. Changes of load balancers take the default delay again, and none fails."""
        self._ask("DELETE", self._of_user("/calls"))
        self.end_faults()
        self.load_balancers()

    def fault(self, **fault: Any) -> None:
        """Add a `rig.proxy.Fault`."""
        self._ask("POST", "/faults", {"user": self._user, **fault} if self._user else fault)

    def end_faults(self) -> None:
        self._ask("DELETE", self._of_user("/faults"))

    def _of_user(self, path: str) -> str:
        return f"{path}?user={self._user}" if self._user else path

    def load_balancers(self, delay: float = 0.5, errors: list[str] | None = None) -> None:
        """Set the seconds until a change is done, and the names of objects that end in ERROR."""
        half = self.data / "run" / "load-balancers.half"
        half.write_text(json.dumps({"delay": delay, "errors": errors or []}))
        half.rename(self.data / "run" / "load-balancers.json")

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.world["control"] + path, content, method=method)
        with _OPENER.open(request, timeout=60) as answer:
            return bytes(answer.read())


def without_versions(calls: Counter[str]) -> Counter[str]:
    """Return the calls without the requests for a service's versions. Asserts that a client sends each only once."""
    versions = {call: count for call, count in calls.items() if call.endswith(" GET /")}
    assert set(versions.values()) <= {1}, calls
    return calls - Counter(versions)

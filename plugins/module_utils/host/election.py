# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides whether a controller works. Its health endpoint does not show that, because a controller is healthy before it leads, and some
errors stop it only when it starts to lead.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from typing import Any, Dict, FrozenSet, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags
from ansible_collections.outoftree.ccm.plugins.module_utils.host import probes, processes, settings

#: Component that works only while it holds a Lease -> the name of that Lease.
LEASES = {"kube-controller-manager": "kube-controller-manager"}

#: Number of different renew times of one holder that show that it survived the start of its controllers: it has renewed the Lease twice
#: since it was first seen. Renewals are 2 s apart by default.
RENEWALS = 3

#: Seconds after which a running process without leader election has started its controllers.
STEADY = 10.0


class Election:
    """Judges one process of an elected component, by reading its Lease again and again. The holder may be on another host.

    If the process elects no leader, it must stay healthy for C(STEADY) seconds instead. If its Lease cannot be read, it must do so for the Lease's
    duration and C(STEADY) seconds.

    A holder counts once C(RENEWALS) different renew times were read. Therefore no clock is compared with that of another host, and the last
    renewal of a process that no longer exists does not count.
    """

    def __init__(self, component: str, process: processes.Process, logs: str = processes.POD_LOGS) -> None:
        self.process = process
        self._logs = logs
        self._elects = flags.is_true(flags.effective(process.argv, ("leader-elect",)).get("leader-elect", "true"))
        self._namespace = settings.option(process.argv, "leader-elect-resource-namespace", "kube-system")
        self._name = settings.option(process.argv, "leader-elect-resource-name", LEASES[component])
        self._patience = (seconds(settings.option(process.argv, "leader-elect-lease-duration", "15s")) if self._elects else 0) + STEADY
        self._begun = time.monotonic()
        self._holder = ""
        self._renewals: FrozenSet[str] = frozenset()

    def missing(self) -> str:
        """Read the Lease again, and return why the process does not count as good yet; '' if it does."""
        reason = "it does not elect a leader"
        if self._elects:
            try:
                return self._judge(self._lease())
            except (OSError, ValueError, http.client.HTTPException) as exc:
                reason = "its Lease cannot be read ({0})".format(exc)
        if time.monotonic() - self._begun >= self._patience:
            return ""
        return "{0}, so it must be healthy for {1:g} s".format(reason, self._patience)

    def _judge(self, lease: Optional[Dict[str, Any]]) -> str:
        spec = (lease or {}).get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder != self._holder:
            self._holder, self._renewals = holder, frozenset()
        self._renewals |= {spec.get("renewTime") or ""}
        if holder and len(self._renewals) >= RENEWALS:
            return ""
        return "no kube-controller-manager leads: the Lease {0}/{1} {2}".format(
            self._namespace, self._name, "is not renewed by its holder {0}".format(holder) if holder else "has no holder")

    def _lease(self) -> Optional[Dict[str, Any]]:
        """Return the Lease, as the API server of this host has it; None if there is none.

        Raises OSError, ValueError and http.client.HTTPException if the API server cannot be asked, or does not answer with a Lease.
        """
        servers = processes.of_static_pod("kube-apiserver", self._logs) or [
            server for server in [processes.of_unit("kube-apiserver", "kube-apiserver")] if server is not None]
        if not servers:
            raise ValueError("this host runs no kube-apiserver")
        path = "/apis/coordination.k8s.io/v1/namespaces/{0}/leases/{1}".format(self._namespace, self._name)
        status, body = probes.api_server_answer(servers[-1].argv, path)
        if status == 404:
            return None
        if status != 200:
            raise ValueError("the API server answers {0}".format(status))
        lease = json.loads(body)
        if not isinstance(lease, dict):
            raise ValueError("the API server's answer is not an object")
        return lease


class Twice:
    """Judges one process of a component that needs no election: it is good if its health endpoint answers twice, a second apart."""

    def __init__(self, process: processes.Process) -> None:
        self.process = process
        self._healthy = 0

    def missing(self) -> str:
        self._healthy += 1
        return "" if self._healthy > 1 else "it was healthy once, but there was no time for the second check"


def seconds(duration: str) -> float:
    """Return a Go duration in seconds, without its micro- and nanoseconds; 0 for a text without a duration."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    parts: List[Any] = re.findall(r"([0-9.]+)(ms|h|m|s)", duration)
    return sum(float(number) * units[unit] for number, unit in parts if number.count(".") < 2 and number != ".")

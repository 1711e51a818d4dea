# SPDX-License-Identifier: Apache-2.0
"""Upstream flags and keys that have no meaning here. They are accepted and ignored, so that existing manifests work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class Ignored(msgspec.Struct, frozen=True):
    """A flag of upstream that has no meaning here, and the reason, `why`."""

    why: str
    #: The dotted path in a CloudControllerManagerConfiguration; "" for none.
    place: str = ""
    #: The value in `/configz`: upstream's default.
    shown: Any = ""
    #: Raises ValueError for values that upstream rejects, too.
    check: Callable[[str], object] = str


_SHARED, _ELECTION, _CLIENT = "KubeCloudShared", "Generic.LeaderElection", "Generic.ClientConnection"


def _only_leases(text: str) -> None:
    if text != "leases":
        raise ValueError(f"{text!r} is not a supported lock: only leases is")


def _at_least_one(text: str) -> None:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"must be at least 1, not {text}")


def _not_negative(text: str) -> None:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"must be 0 or more, not {text}")


_LOGS, _FRONT = "logs go to standard error, unbuffered", "no aggregation layer calls this process"
_HTTP1, _CURVES = "the process serves HTTP/1.1", "the process offers OpenSSL's safe curves"

#: Name of the flag -> why it is ignored.
IGNORED: Mapping[str, Ignored] = {
    "external-cloud-volume-plugin": Ignored("upstream does not use it either", f"{_SHARED}.ExternalCloudVolumePlugin"),
    "node-sync-period": Ignored("deprecated upstream", f"{_SHARED}.NodeSyncPeriod", "0s"),
    "min-resync-period": Ignored("informers here do not resync", "Generic.MinResyncPeriod", "12h0m0s"),
    "contention-profiling": Ignored(
        "there is no Go runtime to profile", "Generic.Debugging.enableContentionProfiling", False
    ),
    "profiling": Ignored("there is no Go runtime to profile", "Generic.Debugging.enableProfiling", False),
    "controller-start-interval": Ignored("controllers start together", "Generic.ControllerStartInterval", "0s"),
    "use-service-account-credentials": Ignored(
        "all controllers share one ServiceAccount", f"{_SHARED}.UseServiceAccountCredentials", False
    ),
    "leader-elect-resource-lock": Ignored(
        "the lock is always a Lease", f"{_ELECTION}.resourceLock", "leases", _only_leases
    ),
    "concurrent-node-status-updates": Ignored(
        "one listing refreshes all addresses", "NodeController.ConcurrentNodeStatusUpdates", 0, _not_negative
    ),
    "concurrent-node-lifecycle-syncs": Ignored(
        "one read answers for all Nodes",
        "NodeLifecycleController.ConcurrentNodeLifecycleSyncs",
        1,
        _at_least_one,
    ),
    "requestheader-client-ca-file": Ignored(_FRONT),
    "requestheader-allowed-names": Ignored(_FRONT),
    "requestheader-username-headers": Ignored(_FRONT),
    "requestheader-group-headers": Ignored(_FRONT),
    "requestheader-extra-headers-prefix": Ignored(_FRONT),
    "requestheader-uid-headers": Ignored(_FRONT),
    "disable-http2-serving": Ignored(_HTTP1),
    "http2-max-streams-per-connection": Ignored(_HTTP1),
    "webhook-disable-http2-serving": Ignored(_HTTP1),
    "tls-curve-preferences": Ignored(_CURVES),
    "webhook-tls-curve-preferences": Ignored(_CURVES),
    "permit-address-sharing": Ignored("SO_REUSEADDR is always set"),
    "log-flush-frequency": Ignored(_LOGS),
    "log-text-split-stream": Ignored(_LOGS),
    "log-text-info-buffer-size": Ignored(_LOGS),
    "log-json-split-stream": Ignored(_LOGS),
    "log-json-info-buffer-size": Ignored(_LOGS),
    "vmodule": Ignored("only Go's klog has a verbosity per file"),
}
#: Keys of a CloudControllerManagerConfiguration that no flag sets and that have no meaning here -> the value shown.
IGNORED_KEYS: Mapping[str, Any] = {f"{_CLIENT}.acceptContentTypes": ""}

# SPDX-License-Identifier: Apache-2.0
"""Decides which Pods `ccm status` asks, at which address, and which Pod is the leader's. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit, urlunsplit

from ccm.engine.objects import Lease

from ..asking.cluster_objects import Pod

#: The port of a controller without `--secure-port`: upstream's default.
PORT = 10258
PAGE = "/statusz"


def page_url(text: str) -> tuple[str, str]:
    """Return the server and the path of `--url`; the path is `/statusz` if the URL has none. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(f"{text!r} is not https://HOST[:PORT][/PATH]")
    _ = parts.port  # raises ValueError
    return urlunsplit((parts.scheme, parts.netloc, "", "", "")), parts.path.rstrip("/") or PAGE


def is_loopback(server: str) -> bool:
    """Return whether the server is on this machine, as with `kubectl port-forward`."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def port_of(pod: Pod) -> int:
    """Return `--secure-port` of the controller in a Pod; PORT if no container has the flag."""
    for container in pod.spec.containers:
        value = container.flag("secure-port") or ""
        if value.isdecimal():
            return int(value)
    return PORT


def why_not_asked(pod: Pod) -> str:
    """Return why the process in a Pod gets no request; "" if it gets one.

    Static Pods get none, because the request has the caller's credentials. Any kubelet may create the object of a
    static Pod, in any namespace and with any labels (NodeRestriction), and so could collect administrators' tokens.
    """
    if pod.is_static:
        return "it is a static Pod, whose object any kubelet can create: use --url, on its machine"
    if pod.status.phase != "Running":
        return f"it is {pod.status.phase or 'not running'}, so no process answers: see kubectl describe pod"
    return ""


def host_of(lease: Lease | None) -> str:
    """Return the name of the leader's host: its identity without the UUID after the last "_". Return the whole identity
    if it has no "_", and "" without a leader."""
    holder = (lease.spec.holder_identity or "") if lease is not None else ""
    return holder.rpartition("_")[0] or holder


def is_on(pod: Pod, host: str) -> bool:
    """Return whether `host` is the name of the Pod or of its Node, at least up to the first dot: a process in the
    host's network reads the Node's name as its host name, any other process the Pod's name. False for ""."""
    names = {pod.metadata.name, pod.spec.node_name}
    return bool(host) and (host in names or host.partition(".")[0] in {name.partition(".")[0] for name in names})


def in_order(pods: Iterable[Pod], host: str) -> list[Pod]:
    """Return the Pods, the leader's first."""
    return sorted(pods, key=lambda pod: (not is_on(pod, host), pod.metadata.name))

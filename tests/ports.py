# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that tests start: free, and given to nobody else until the test process ends.

To bind port 0, close the socket and use its number is not safe: the kernel may give the same number to another server
of the test, another worker of pytest, or an outgoing connection. So ports come from below the kernel's own range. Each
is claimed by a name that is unique on the machine, and that vanishes with the process.
"""

from __future__ import annotations

import itertools
import os
import socket

#: Below outgoing connections (32768 and up) and NodePorts (30000 and up), above the first blocks of `make openstack`.
FIRST, LAST = 20000, 29999

_candidates = itertools.cycle(range(FIRST, LAST + 1))
_claims: dict[int, socket.socket] = {}
# Workers start at different places, so that they rarely meet.
for _ in range(os.getpid() * 97 % (LAST - FIRST)):
    next(_candidates)


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """Return a port on which nobody listens at any IPv4 address.

    No other call on this machine returns it while this process lives.
    """
    for port in itertools.islice(_candidates, LAST - FIRST + 1):
        if port not in _claims and _is_free(port, kind) and _claim(port):
            return port
    raise RuntimeError(f"no free port between {FIRST} and {LAST}")


def _is_free(port: int, kind: int) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0outoftree-ccm-test-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True

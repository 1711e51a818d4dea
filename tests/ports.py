# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that tests start: free, and given to nobody else until the test process ends.

To bind port 0, close the socket and use its number is a gamble: the kernel may give the number to the next who asks,
such as another server of the same test, another worker of pytest, or a connection on its way out. So ports come from
below the kernel's own range, and each is claimed by a name that exists once on the machine and goes with the process.
"""

from __future__ import annotations

import itertools
import os
import socket

#: Below outgoing connections (32768 and up) and NodePorts (30000 and up), above the first blocks of the OpenStack rig.
FIRST, LAST = 20000, 29999

_candidates = itertools.cycle(range(FIRST, LAST + 1))
_claims: dict[int, socket.socket] = {}
# Workers start at different places, so that they rarely meet.
for _ in range(os.getpid() * 97 % (LAST - FIRST)):
    next(_candidates)


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    """A port that nobody listens on at any address of 127.0.0.0/8; no other call on this machine returns it."""
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

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine itself: its identity, its addresses, its clock.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import time
from typing import List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.host import files


def identity() -> str:
    """Return a digest of C(/etc/machine-id), because the ID itself is confidential (machine-id(5)); '' without one."""
    text = (files.read_text("/etc/machine-id") or "").strip()
    return hashlib.sha256(("outoftree.ccm " + text).encode("utf-8")).hexdigest()[:32] if text else ""


def timestamp(epoch: Optional[float] = None) -> str:
    """Return a time, or the current time for None, as RFC 3339 in UTC with whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if epoch is None else epoch))


def is_local(address: str) -> bool:
    """Return whether an IP address belongs to this host, according to the kernel's tables."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return False
    return wanted.is_loopback or str(wanted) in _own_addresses()


def _own_addresses() -> List[str]:
    """Return the addresses of this host's interfaces in the network namespace of the caller."""
    addresses, last = [], ""
    try:
        with open("/proc/net/fib_trie", encoding="ascii", errors="replace") as handle:
            for line in handle:
                match = re.search(r"\|-- ([0-9.]+)", line)
                last = match.group(1) if match else last
                if "/32 host LOCAL" in line:
                    addresses.append(last)
    except OSError:
        pass
    try:
        with open("/proc/net/if_inet6", encoding="ascii", errors="replace") as handle:
            addresses += [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in handle]
    except OSError:
        pass
    return addresses

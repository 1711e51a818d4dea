# SPDX-License-Identifier: Apache-2.0
"""Limits on how much of one Service or Node is processed.

The API server accepts objects of more than a mebibyte: 100,000 source ranges, 20,000 ports, 30,000 addresses. A user
who may create one Service, or write one Node, must not use up the memory or time that everyone else needs. Caches keep
little more than this of an object (`cache_rules`), and the rules refuse a Service with more ports or source ranges.
"""

from __future__ import annotations

#: The maximum number of source ranges, and of ports, of one Service. Clouds accept fewer: an OpenStack security group
#: has 100 rules by default.
SOURCE_RANGES, PORTS = 1000, 250
#: The maximum number of external IPs of one Service that are compared for changes.
EXTERNAL_IPS = 1000
#: The maximum number of addresses of one Node. Machines have fewer than ten.
NODE_ADDRESSES = 32
#: The maximum number of pod CIDRs of one Node: one for each IP family, which the API server enforces.
NODE_POD_CIDRS = 2
#: The maximum number of characters of a Node's SMBIOS UUID. A UUID has 36; a longer text is not a UUID.
SYSTEM_UUID = 64
#: The maximum number of taints of one Node. A patch writes the whole list, so the taints of a Node with more stay
#: unchanged.
NODE_TAINTS = 500
#: The maximum number of bytes, roughly, in which Nodes that wait to be initialised are kept as they were read. A Node
#: whose bytes are not kept is patched instead of replaced.
AS_READ = 16 * 1024 * 1024
#: Maximum characters of a list in a message, such as all addresses of a Node.
LISTED = 300

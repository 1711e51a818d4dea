# SPDX-License-Identifier: Apache-2.0
"""How much of one Service or Node is looked at.

The API server takes objects of more than a mebibyte: 100,000 source ranges, 20,000 ports, 30,000 addresses. Whoever may
create one Service, or write one Node, must cost neither the memory nor the time that all others need. Caches keep this
much of an object (`cache_rules`), and the rules refuse a Service that has more.
"""

from __future__ import annotations

#: Source ranges and ports of one Service. Clouds take fewer: a security group of OpenStack has 100 rules by default.
SOURCE_RANGES, PORTS = 1000, 250
#: External IPs of one Service of which a change is seen.
EXTERNAL_IPS = 1000
#: Addresses of one Node. Machines have fewer than ten.
NODE_ADDRESSES = 32
#: Conditions of one Node. A kubelet writes four, add-ons a few more.
NODE_CONDITIONS = 32
#: Pod CIDRs of one Node: one of each IP family, as the API server checks.
NODE_POD_CIDRS = 2
#: Taints of one Node. They are written whole, so a Node with more gets no taint from us and keeps those that it has.
NODE_TAINTS = 500
#: Characters of a list, such as all addresses of a Node, that a message names.
LISTED = 300

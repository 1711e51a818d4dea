# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name with which a kubelet registers its Node after its next start, and the name that the Node has now.

The two may differ when a kubelet no longer has an in-tree provider, because some of these providers chose the name, or ignored
C(--hostname-override). Pure and stdlib-only: it runs on managed nodes (Python 3.8).
"""

from __future__ import annotations

import re
from typing import Dict, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import is_true
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import Registration

HOST_NAME = "the host's name"

#: The key with which RKE2 takes the Node's name from the cloud's metadata service, as C(cloud-provider-name: aws) does, too.
FROM_METADATA = "node-name-from-cloud-provider-metadata"

#: Options of k3s and RKE2 that take no second word as their value.
SWITCHES = ("disable-cloud-controller", "with-node-id", FROM_METADATA)

#: Settings of k3s and RKE2 that an environment variable may set. Its name is K3S_ or RKE2_ and the key in capitals.
OF_ENVIRONMENT = {"k3s": ("node-name", "data-dir"),
                  "rke2": ("node-name", "data-dir", "cloud-provider-name", "cloud-provider-config", FROM_METADATA)}

#: An attribute commonName (2.5.4.3) in DER whose text begins as in a kubelet's certificate.
_COMMON_NAME = re.compile(rb"\x06\x03\x55\x04\x03[\x0c\x13](?:\x81([\x80-\xff])|([\x0d-\x7f]))system:node:", re.DOTALL)


def of_kubelet(override: str, host: str) -> Registration:
    """Return the name that a kubelet with an external cloud uses (nodeutil.GetHostname): C(--hostname-override), else the host's."""
    name = override.strip()
    return {"name": (name or host.strip()).lower(), "setting": "--hostname-override" if name else HOST_NAME, "metadata": ""}


def of_rancher(values: Dict[str, Tuple[str, str]], host: str, node_id: str) -> Registration:
    """Return the name that k3s or RKE2 gives its kubelet. C(values) has the value of each setting and what sets it."""
    name, setting = values.get("node-name", ("", ""))
    provider = values.get("cloud-provider-name", ("", ""))[0]
    metadata = "{0}: true".format(FROM_METADATA) if is_true(values.get(FROM_METADATA, ("", ""))[0]) else \
        "cloud-provider-name: aws" if provider == "aws" else ""
    text = (name or host.strip()).lower()
    if is_true(values.get("with-node-id", ("", ""))[0]) and node_id:
        text, setting = "{0}-{1}".format(text, node_id), "with-node-id"
    return {"name": text, "setting": setting or HOST_NAME, "metadata": metadata}


def of_certificate(der: bytes) -> str:
    """Return the Node's name in a kubelet's client certificate, from which the API server takes it, too; '' if it has none."""
    match = _COMMON_NAME.search(der)
    if match is None:
        return ""
    length = (match.group(1) or match.group(2))[0] - len("system:node:")
    return der[match.end():match.end() + length].decode("utf-8", "replace")

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of kubelets and other components, from their arguments and files.

Stdlib-only, it runs on managed nodes (Python 3.8). C(host.processes) identifies the processes whose arguments it takes.
"""

from __future__ import annotations

import re
from typing import Dict, List

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, processes

#: The kubelet settings that the gates need: their defaults, their keys in KubeletConfiguration, and their flags.
KUBELET_DEFAULTS = {"static_pod_path": "/etc/kubernetes/manifests", "healthz_port": "10248", "healthz_address": "127.0.0.1",
                    "pod_logs": processes.POD_LOGS, "port": "10250", "address": "", "runtime_endpoint": ""}
KUBELET_KEYS = {"staticPodPath": "static_pod_path", "healthzPort": "healthz_port", "healthzBindAddress": "healthz_address",
                "podLogsDir": "pod_logs", "port": "port", "address": "address",
                "containerRuntimeEndpoint": "runtime_endpoint"}
KUBELET_FLAGS = {"pod-manifest-path": "static_pod_path", "healthz-port": "healthz_port", "healthz-bind-address": "healthz_address",
                 "port": "port", "address": "address", "container-runtime-endpoint": "runtime_endpoint"}


def option(argv: List[str], name: str, default: str = "") -> str:
    """Return the last value of an option of a process."""
    value = default
    for index, arg in enumerate(argv):
        found, given, text = flags.split_flag(arg)
        if found == name and (given or index + 1 < len(argv)):
            value = text if given else argv[index + 1]
    return value


def kubelet_settings(argv: List[str]) -> Dict[str, str]:
    """Return the needed scalars of a running kubelet's configuration, without a YAML library.

    Flags override drop-ins (C(--config-dir)), later drop-ins override earlier ones, and all of them override C(--config).
    """
    settings = dict(KUBELET_DEFAULTS)
    for path in [option(argv, "config", "/var/lib/kubelet/config.yaml"), *_drop_ins(option(argv, "config-dir"))]:
        for line in (files.read_text(path) or "").splitlines():
            match = re.match(r"[\"']?(\w+)[\"']?:\s*[\"']?([^\s\"'#]+)", line)
            if match and match.group(1) in KUBELET_KEYS:
                settings[KUBELET_KEYS[match.group(1)]] = match.group(2)
    settings.update({key: option(argv, flag) for flag, key in KUBELET_FLAGS.items() if option(argv, flag)})
    for key in ("static_pod_path", "pod_logs"):
        settings[key] = settings[key].rstrip("/") or KUBELET_DEFAULTS[key]
    return settings


def _drop_ins(folder: str) -> List[str]:
    try:
        return files.listing(folder, "*.conf") if folder else []
    except OSError:
        return []

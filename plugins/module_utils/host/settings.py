# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of kubelets and other components, from their arguments and files.

It uses only the standard library of Python 3.8, because it runs on managed nodes. C(host.processes) identifies the processes whose arguments it takes.
"""

from __future__ import annotations

import json
import re
from typing import Dict, List, Optional

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags
from ansible_collections.outoftree.ccm.plugins.module_utils.host import files, processes

#: The kubelet settings that kubelet_settings() returns: their defaults, their keys in KubeletConfiguration, and their flags.
KUBELET_DEFAULTS = {"static_pod_path": "/etc/kubernetes/manifests", "healthz_port": "10248", "healthz_address": "127.0.0.1",
                    "pod_logs": processes.POD_LOGS, "port": "10250", "address": "", "runtime_endpoint": ""}
KUBELET_KEYS = {"staticPodPath": "static_pod_path", "healthzPort": "healthz_port", "healthzBindAddress": "healthz_address",
                "podLogsDir": "pod_logs", "port": "port", "address": "address",
                "containerRuntimeEndpoint": "runtime_endpoint"}
KUBELET_FLAGS = {"pod-manifest-path": "static_pod_path", "healthz-port": "healthz_port", "healthz-bind-address": "healthz_address",
                 "port": "port", "address": "address", "container-runtime-endpoint": "runtime_endpoint"}


#: Options of k3s and RKE2 that also have a name of one letter.
LETTERS = {"c": "config", "d": "data-dir"}

_KEY = re.compile(r"([\"']?)([\w-]+)\1[ \t]*:(?:[ \t]+(.*))?$")


def option(argv: List[str], name: str, default: str = "") -> str:
    """Return the last value of an option of a process, C(default) if it is not set."""
    value = default
    for index, arg in enumerate(argv):
        flag, has_value, text = flags.split_flag(arg)
        if flag == name and (has_value or index + 1 < len(argv)):
            value = text if has_value else argv[index + 1]
    return value


def long_options(arguments: List[str]) -> List[str]:
    """Return the arguments of k3s or RKE2 with each option as C(--name): they also accept C(-name), and letters for some."""
    return [re.sub(r"^-([^-=][^=]*)", lambda match: "--" + LETTERS.get(match.group(1), match.group(1)), argument) for argument in arguments]


def kubelet_settings(argv: List[str]) -> Dict[str, str]:
    """Return the needed scalars of a running kubelet's configuration, without a YAML library.

    Flags override drop-ins (C(--config-dir)), later drop-ins override earlier ones, and all of them override C(--config).
    """
    settings = dict(KUBELET_DEFAULTS)
    for path in [option(argv, "config", "/var/lib/kubelet/config.yaml"), *_drop_ins(option(argv, "config-dir"))]:
        for name, value in scalars(files.read_text(path) or "").items():
            if name in KUBELET_KEYS:
                settings[KUBELET_KEYS[name]] = KUBELET_DEFAULTS[KUBELET_KEYS[name]] if value is None else value
    settings.update({key: option(argv, flag) for flag, key in KUBELET_FLAGS.items() if option(argv, flag)})
    for key in ("static_pod_path", "pod_logs"):
        settings[key] = settings[key].rstrip("/") or KUBELET_DEFAULTS[key]
    return settings


def _drop_ins(folder: str) -> List[str]:
    """Return the files that the kubelet reads in its C(--config-dir), in its order."""
    try:
        return [path for path in files.walk(folder) if path.endswith(".conf")] if folder else []
    except OSError:
        return []


def scalars(text: str) -> Dict[str, Optional[str]]:
    """Return the top-level scalars of a configuration in JSON or YAML, None for null, and in YAML also for a list or mapping. If a key occurs twice, the last
    one is used."""
    lines = [line for line in _first_document(text) if line.strip() and not line.startswith(("#", "%"))]
    if lines and lines[0].lstrip().startswith("{"):
        try:
            data = json.loads("\n".join(lines))
        except ValueError:
            return {}
        scalar = {name: value for name, value in data.items() if not isinstance(value, (dict, list))}
        return {name: value if value is None or isinstance(value, str) else json.dumps(value) for name, value in scalar.items()}
    values: Dict[str, Optional[str]] = {}
    for number, line in enumerate(lines):
        match = _KEY.match(line)
        if match:
            values[match.group(2)] = _value(match.group(3) or "", lines[number + 1:])
    return values


def _first_document(text: str) -> List[str]:
    lines: List[str] = []
    for line in text.lstrip("\ufeff").splitlines():
        if re.match(r"(---|\.\.\.)(\s|$)", line):
            if any(item.strip() and not item.startswith(("#", "%")) for item in lines):
                break
            continue
        lines.append(line)
    return lines


def _value(text: str, following: List[str]) -> Optional[str]:
    """Return the value of a key, which may be on the next lines; None for null, or if it is not a scalar."""
    text = re.sub(r"^(?:[&!]\S*\s+)+", "", text + " ").strip()
    if re.match(r"[|>][-+1-9]*\s*(#|$)", text) or not text or text.startswith("#"):
        inner = next((line for line in following if line.strip() and not line.lstrip().startswith("#")), "")
        if not inner.startswith((" ", "\t")) or text[:1] not in ("|", ">") and re.match(r"\s*(- |[\w\"']+\s*:(\s|$))", inner):
            return None
        text = inner.strip()
    quoted = re.match(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^']|'')*)'", text)
    if quoted and quoted.group(2) is not None:
        return quoted.group(2).replace("''", "'")
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted.group(1))
    text = re.split(r"\s#", text)[0].strip()
    return None if text in ("", "~", "null", "Null", "NULL") else text

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks the result of ccm_component_flags_info before it is used: shape, sizes, names.

A compromised worker may return anything. Its result may affect only its own plan. Pure and stdlib-only (Python 3.8).
"""

from __future__ import annotations

import base64
import functools
import re
from typing import Any, Dict, Iterable, List, Optional, cast, get_args, get_origin, get_type_hints

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import HostAnswer, HostFacts

#: Maximum number of characters in a host's result. A control plane's files total about 100 KiB.
LIMIT = 16 << 20

#: Maximum number of characters in one message of a host.
SENTENCE = 2000

_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NODE_NAME = re.compile(r"{0}(\.{0})*".format(_LABEL))

#: Keys that the kubelet's facts must have if they have unit files, and those of a service of k3s or RKE2.
WHOLE = {
    "kubelet": ("unit_files", "environment_files", "config_files", "flags", "version", "unread_files", "static_pod_path"),
    "service": ("name", "unit", "server", "arguments", "config_files", "data_directory", "stale"),
}


def is_node_name(name: str) -> bool:
    """Return whether the text is a DNS subdomain (RFC 1123), as the API server requires for a Node's name."""
    return len(name) <= 253 and _NODE_NAME.fullmatch(name) is not None


@functools.lru_cache(maxsize=None)
def shape_of(kind: Any) -> Any:
    """Return a type as data: a list has its item's type, a dictionary with the key '*' its values' type. A key with '?' is optional."""
    if hasattr(kind, "__total__"):  # a TypedDict
        # Not used on managed nodes, because Python 3.8 has no __required_keys__.
        return {key if key in kind.__required_keys__ else key + "?": shape_of(item) for key, item in get_type_hints(kind).items()}
    arguments = get_args(kind)
    if get_origin(kind) is list:
        return [shape_of(arguments[0])]
    if get_origin(kind) is dict:
        return {"*": shape_of(arguments[1])}
    return object if kind is Any else kind


def refusal(facts: Any) -> str:
    """Return why a host's facts cannot be used, '' if they can."""
    if _size(facts, LIMIT) < 0:
        return "it returned more than {0} MiB".format(LIMIT >> 20)
    return _misfit(facts, shape_of(HostFacts), "") or _incomplete(facts)


def _size(value: Any, left: int) -> int:
    """Return the remaining number of characters after a value, less than 0 if it is too large or too deep."""
    todo = [(value, 0)]
    while todo and left >= 0:
        item, depth = todo.pop()
        left -= len(item) if isinstance(item, str) else 8
        if depth > 20:
            return -1
        children: Iterable[Any] = item if isinstance(item, (list, tuple)) else \
            [part for pair in item.items() for part in pair] if isinstance(item, dict) else ()
        todo += [(child, depth + 1) for child in children]
    return left


def _misfit(value: Any, shape: Any, where: str) -> str:
    if isinstance(shape, list):
        if not isinstance(value, list):
            return "{0} is not a list".format(where)
        return next(filter(None, (_misfit(item, shape[0], where + "[]") for item in value)), "")
    if isinstance(shape, dict):
        if not isinstance(value, dict) or not all(isinstance(key, str) and key.isprintable() for key in value):
            return "{0} is not a dictionary with printable keys".format(where or "the result")
        if "*" in shape:
            return next(filter(None, (_misfit(item, shape["*"], where + ".*") for item in value.values())), "")
        for key, inner in shape.items():
            name = key.rstrip("?")
            if name not in value and key == name:
                return "{0}.{1} is missing".format(where, name).lstrip(".")
            misfit = _misfit(value[name], inner, "{0}.{1}".format(where, name).lstrip(".")) if name in value else ""
            if misfit:
                return misfit
        return ""
    if not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        return "{0} is not of the type {1}".format(where, shape.__name__)
    return ""


def _incomplete(facts: HostAnswer) -> str:
    if facts["node_name"] and not is_node_name(facts["node_name"]):
        return "{0!r} is not a valid Node name".format(facts["node_name"][:100])
    for part, keys in WHOLE.items():
        absent = [key for key in keys if key not in facts[part]]
        if absent and (facts[part].get("unit_files") or part == "service" and facts[part]):
            return "{0}.{1} is missing".format(part, absent[0])
    if facts["service"] and facts["service"]["name"] not in ("k3s", "rke2"):
        return "service.name is neither k3s nor rke2"
    paths: List[str] = facts["manifests"] + facts["patches"] + facts["service"].get("config_files", [])
    for unit in [facts["kubelet"], *facts["units"].values()]:
        paths = paths + [path for key in ("unit_files", "environment_files", "config_files") for path in unit.get(key, [])]
    absent = [path for path in paths if path not in facts["files"]]
    if absent:
        return "the file {0!r} is missing".format(absent[0][:200])
    texts = [(path, entry["content"]) for path, entry in facts["files"].items()]
    texts += [(path, baseline[key]) for path, entry in facts["journal"].items() for baseline in entry.get("baselines", [])
              for key in ("original", "written")]
    for path, text in texts:
        try:
            base64.b64decode(text)
        except ValueError:
            return "the content of {0!r} is not base64".format(path[:200])
    absent = [path for path in facts["journal"] if path not in facts["files"] and not path.startswith("configmap:")]
    if absent:
        return "the file {0!r} of the journal is missing".format(absent[0][:200])
    return ""


def readable(text: str) -> str:
    """Return a host's message without terminal control characters, and at most C(SENTENCE) characters of it."""
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text[:SENTENCE])


def sorted_out(detected: Dict[str, Any]) -> Dict[str, HostAnswer]:
    """Return host -> its facts, or, if they cannot be used, a result without C(node_name) that has the reason in C(msg)."""
    answers = {}
    for host, facts in detected.items():
        if not isinstance(facts, dict) or "node_name" not in facts:
            answers[host] = facts if isinstance(facts, dict) else {"msg": "it returned nothing"}
            continue
        reason = refusal(facts)
        answers[host] = {"msg": "it returned an invalid result: " + reason} if reason else dict(
            facts, problems=list(map(readable, facts["problems"])), notices=list(map(readable, facts.get("notices", []))))
    return answers


def usable(answers: Dict[str, HostAnswer]) -> Dict[str, HostFacts]:
    """Return host -> facts for the hosts with usable facts. C(answers): the result of sorted_out."""
    return {host: cast(HostFacts, facts) for host, facts in answers.items() if "node_name" in facts}


def version_of(facts: HostFacts, component: str) -> str:
    """Return the version of a running control-plane component according to the host, '' if it is unknown."""
    return facts["components"][component]["version"] if component in facts["components"] else ""


def is_ours(facts: HostFacts, path: str) -> bool:
    """Return whether a file's content is what this collection wrote."""
    return path in facts["journal"] and facts["journal"][path]["state"] == "written"


def proven(name: str, node: Optional[NodeFacts], known: Iterable[str]) -> bool:
    """Return whether the inventory's names (with or without a domain) or addresses confirm that a host is the Node that it claims to be.

    C(known) are the inventory's names and addresses of the host. C(node) is the Node of that name, with its addresses.
    """
    ours = {text.lower() for text in known if text}
    addresses = {address["address"].lower() for address in (node["addresses"] if node else []) if address.get("address")}
    return name in ours or bool(ours & addresses) or name in {text.split(".")[0] for text in ours} or name.split(".")[0] in ours

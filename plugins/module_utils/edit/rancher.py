# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the changes in configuration files of k3s and RKE2, without reformatting the files.

Both run every component themselves and rewrite all manifests at each start, so their configuration is the only place to edit. After
C(config.yaml), they read the files in C(config.yaml.d) in alphabetical order. The last occurrence of a key takes effect,
except that C(key+) adds to earlier ones. An argument on the command line replaces a whole list of the files.

Runs only on the Ansible controller (it needs PyYAML). Pure: text in, text out.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import manifest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit.yamltext import EditRefused, NotYaml, YamlText, independent, load, pruned
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import target
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import Flag, find_flags
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.registration import FROM_METADATA, SWITCHES
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.shapes import FileFacts, Registration
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import EXTERNAL, Change

#: Keys whose items are flags of a component in the form C(name=value).
COMPONENT_KEYS = {"kubelet-arg": "kubelet", "kube-apiserver-arg": "kube-apiserver",
                  "kube-controller-manager-arg": "kube-controller-manager"}

#: Providers whose controller and CSI driver RKE2 deploys itself, and the controller's name. With one of these providers, the kubelet is external. With any
#: other one, RKE2 deletes not only the controller, but this CSI driver, too (validateCloudProviderName).
BUNDLED = {"rancher-vsphere": "rancher-vsphere-cpi", "harvester": "harvester-cloud-provider"}

BUNDLED_WHY = ("two controllers would fight: RKE2 deploys {0} for cloud-provider-name: {1}. That name stays, because RKE2 removes its CSI driver "
               "with any other name")
METADATA_WHY = ("RKE2 keeps the Node's name from the metadata service, which cloud-provider-name: aws implied. Otherwise it would register a second "
                "Node")
NAME_WHY = "the Node keeps its name. Otherwise {0} would register a second Node as {1} ({2})"

KUBELET_WHY = "the kubelet must leave addresses, providerID and the taint to the external controller"
EMBEDDED_WHY = "two controllers would fight: the embedded cloud-controller-manager sets {0}:// as providerID"
SERVICELB_WHY = "two controllers would fight over every Service of type LoadBalancer: ServiceLB and the external one"
CONFIG_WHY = "the external controller reads the cloud's configuration now"


#: The flag's name in an item of a component's key. With C(name+=value), k3s adds the value after its own values, with C(name-=value) before them (GetArgs).
_NAME = re.compile(r"\A(?:--)?([^=]*?)[-+]*(?==|\Z)")


class RancherRefused(ValueError):
    """The configuration cannot be changed safely; the message says why and what to do."""


class KeyChange(NamedTuple):
    """One key or list item that changes in one file. C(now) is None if it is new, C(then) is None if it is removed."""

    path: str
    key: str
    now: Optional[str]
    then: Optional[str]
    why: str


class Edit(NamedTuple):
    texts: Dict[str, str]
    changes: List[KeyChange]


class Item(NamedTuple):
    """One value of a key and its place: C(index) is None if the key has a single value. C(path) is '' for the command line and the environment."""

    path: str
    key: str
    index: Optional[int]  # type: ignore[assignment]
    value: str


class File:
    """One configuration file: its content, and the edits to make in it."""

    def __init__(self, path: str, text: Optional[str]) -> None:
        self.path = path
        self.text = text or ""
        try:
            self.data = load(self.text)
        except NotYaml as exc:
            raise RancherRefused("{0} is not YAML: {1}".format(path, exc)) from exc
        if self.data is not None and not isinstance(self.data, dict):
            raise RancherRefused("{0} is not a mapping of keys".format(path))
        self.document = YamlText(self.text) if self.data else None
        self.expected = independent(self.data) if self.data else {}
        self.new: List[str] = []

    def items(self, key: str) -> List[Item]:
        value = (self.data or {}).get(key)
        if isinstance(value, list):
            return [Item(self.path, key, index, _show(item)) for index, item in enumerate(value)]
        return [Item(self.path, key, None, "" if value is None else _show(value))] if self.has(key) else []

    def has(self, key: str) -> bool:
        return key in (self.data or {})

    def refuse_merged(self, key: str) -> None:
        """Raise RancherRefused if the key comes from a merge key (C(<<)), so that there is no place to edit."""
        try:
            if self.document is not None and self.has(key):
                self.document.line((key,))
        except EditRefused as exc:
            raise RancherRefused("{0}: {1}".format(self.path, exc)) from exc

    def set(self, item: Item, value: str) -> None:
        self.refuse_merged(item.key)
        path = (item.key,) if item.index is None else (item.key, item.index)
        self.document.raw(path, value) if value == "true" else self.document.replace(path, value)
        real: Any = True if value == "true" else value
        if item.index is None:
            self.expected[item.key] = real
        else:
            self.expected[item.key][item.index] = real

    def remove(self, items: List[Item]) -> None:
        for item in items:
            self.refuse_merged(item.key)
            self.document.remove((item.key,) if item.index is None else (item.key, item.index))
        gone = {item.index for item in items}
        key = items[0].key
        if None in gone:
            del self.expected[key]
        else:
            self.expected[key] = [value for index, value in enumerate(self.expected[key]) if index not in gone]

    def add_item(self, key: str, value: str) -> None:
        """Add an item to the list of a key. The key may have a single value, or be missing."""
        self.refuse_merged(key)
        if not self.has(key):
            self.new += ["{0}:".format(key), "- {0}".format(value)]
            self.expected[key] = [value]
            return
        now = self.data[key]
        if isinstance(now, list) and now:
            self.document.append((key,), value)
            self.expected[key].append(value)
        else:
            single = [] if now in (None, []) else [now]
            self.document.raw((key,), "[{0}]".format(", ".join([self.document.raw_text((key,))] * len(single) + [value])))
            self.expected[key] = single + [value]

    def add_key(self, key: str, value: str) -> None:
        self.new.append("{0}: {1}".format(key, value))
        self.expected[key] = True if value == "true" else value

    def render(self) -> str:
        newline = "\r\n" if "\r\n" in self.text else "\n"
        added = {line.split(":")[0] for line in self.new if not line.startswith("-")}
        text = self.text
        if self.document is not None:
            try:
                text = self.document.render({key: value for key, value in self.expected.items() if key not in added})
            except EditRefused as exc:
                raise RancherRefused("{0}: {1}. Edit it by hand".format(self.path, exc)) from exc
        if self.new:
            if text and not text.endswith("\n"):
                text += newline
            text += "".join(line + newline for line in self.new)
            if pruned(load(text)) != pruned(self.expected):
                raise RancherRefused("a key cannot be added at the end of {0}. Edit it by hand".format(self.path))
        return text


def decoded(path: str, entry: FileFacts) -> Optional[str]:
    """Return the text of a configuration file as detection reports it, None if it does not exist. Raises RancherRefused."""
    try:
        return manifest.decoded(entry) if entry["exists"] else None
    except NotYaml as exc:
        raise RancherRefused("{0}: {1}".format(path, exc)) from exc


def _show(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def flags_of(item: Item, whole: bool = False) -> List[Flag]:
    """Return the managed flag in an item of a component's key, as a list; [] if the item has none. C(whole): as in find_flags()."""
    return find_flags([_NAME.sub(r"--\1", item.value)], whole=whole)


def with_value(item: Item, value: str) -> str:
    """Return an item of a component's key with another value. The name stays as it is written."""
    return "{0}={1}".format(item.value.partition("=")[0], value)


def command_line_values(arguments: List[str], key: str) -> List[str]:
    """Return the values of an option on the command line of k3s or RKE2. A switch without C(=VALUE), or an option without a value, counts as true."""
    values, words = [], iter(arguments)
    for word in words:
        if word == "--" + key:
            values.append("true" if key in SWITCHES else next(words, "true"))
        elif word.startswith("--" + key + "="):
            values.append(word.split("=", 1)[1])
    return values


class _Configuration:
    def __init__(self, name: str, files: List[Tuple[str, Optional[str]]], arguments: List[str],
                 environment: Optional[Dict[str, str]] = None) -> None:
        self.name = name
        self.environment = environment or {}
        self.files = [File(path, text) for path, text in files]
        self.arguments = arguments
        self.changes: List[KeyChange] = []

    def effective(self, key: str) -> List[Item]:
        """Return the effective values of a key, with their places: from the command line, or else the files, or else the environment."""
        values = command_line_values(self.arguments, key)
        if values:
            return [Item("", key, index, value) for index, value in enumerate(values)]
        items: List[Item] = []
        for file, name in self.holders(key):
            items = file.items(name) if name == key else items + file.items(name)
        if not items and key in self.environment:
            return [Item("", key, None, self.environment[key])]
        return items

    def holders(self, key: str) -> List[Tuple[File, str]]:
        """Return each file that has a key, and how it spells the key (with or without C(+)), in the order in which k3s and RKE2 apply them."""
        return [(file, name) for file in self.files for name in file.data or {} if name in (key, key + "+")]

    def set_key(self, key: str, value: str, why: str) -> None:
        """Set a key with a single value in the file that sets it, or else in the first file, which overrides the environment."""
        items = self.effective(key)
        if items and items[-1].value == value:
            return
        self.refuse_command_line(key)
        if items and items[-1].path:
            self.file(items[-1].path).set(items[-1], value)
        else:
            self.files[0].add_key(key, value)
        self.note(items[-1].path if items and items[-1].path else self.files[0].path, key, items[-1].value if items else None, value, why)

    def file(self, path: str) -> File:
        return next(file for file in self.files if file.path == path)

    def refuse_command_line(self, key: str) -> None:
        if command_line_values(self.arguments, key):
            raise RancherRefused(
                "its unit passes --{0} on the command line, which overrides the files. Move every --{0} from the unit into {1} as '{0}:', "
                "run 'systemctl daemon-reload', then run again".format(key, self.files[0].path))

    def note(self, path: str, key: str, now: Optional[str], then: Optional[str], why: str) -> None:
        self.changes.append(KeyChange(path, key, now, then, why))

    def add(self, key: str, value: str, why: str, label: str, then: str) -> None:
        """Add an item to a list in the last file that has the list, or else in the first file."""
        self.refuse_command_line(key)
        file, name = (self.holders(key) or [(self.files[0], key)])[-1]
        file.add_item(name, value)
        self.note(file.path, label, None, then, why)

    def flags(self, key: str, decide: Any) -> List[Tuple[str, str]]:
        """Make the changes that C(decide) returns for the flags in the list C(key); return the flags afterwards."""
        items = self.effective(key)
        flags = [flag._replace(index=index) for index, item in enumerate(items) for flag in flags_of(item)]
        changes: List[Change] = decide(flags)
        if changes:
            self.refuse_command_line(key)
        gone: Dict[Tuple[str, str], List[Item]] = {}
        for change in changes:
            item = items[change.flag.index]
            if change.then is None:
                gone.setdefault((item.path, item.key), []).append(item)
            else:
                self.file(item.path).set(item, with_value(item, str(change.then)))
            self.note(item.path, "{0}: {1}".format(key, change.name), change.now, change.then, change.why)
        for (path, unused), removed in gone.items():
            self.file(path).remove(removed)
        return target.flags_after(flags, changes)


def values(name: str, files: List[Tuple[str, Optional[str]]], arguments: List[str], key: str) -> List[str]:
    """Return the effective values of a key, from the command line or the files. Raises RancherRefused."""
    return [item.value for item in _Configuration(name, files, arguments).effective(key)]


def is_external(name: str, files: List[Tuple[str, Optional[str]]], arguments: List[str]) -> bool:
    """Return whether the configuration makes the kubelet wait for an external controller. Raises RancherRefused."""
    config = _Configuration(name, files, arguments)
    flags = [flag for item in config.effective("kubelet-arg") for flag in flags_of(item) if flag.name == "cloud-provider"]
    named = [item.value for item in config.effective("cloud-provider-name")] if name == "rke2" else []
    return EXTERNAL in [flag.value for flag in flags] or bool({EXTERNAL, *BUNDLED}.intersection(named[-1:]))


def _kubelet_changes(flags: List[Flag], version: Tuple[int, int]) -> List[Change]:
    changes = target.gate_changes("kubelet", flags, version)
    for flag in flags:
        if flag.name == "cloud-config":
            changes.append(Change(flag.name, flag, None, CONFIG_WHY, ""))
        elif flag.name == "cloud-provider" and flag.value != EXTERNAL:
            changes.append(Change(flag.name, flag, EXTERNAL, target.about_value(flag.value, KUBELET_WHY), ""))
    return changes


def plan(name: str, server: bool, files: List[Tuple[str, Optional[str]]], arguments: List[str],
         version: Tuple[int, int], environment: Optional[Dict[str, str]] = None, node_name: str = "",
         registers: Optional[Registration] = None) -> Edit:
    """Return the new texts and what changes. C(files) begins with C(config.yaml), None for a file that does not exist.

    C(environment) are settings that only environment variables set. C(node_name) is the name of the Node, which it must keep, and
    C(registers) the name with which it would register, if that is known. Raises RancherRefused.
    """
    config = _Configuration(name, files, arguments, environment)
    provider = config.effective("cloud-provider-name") if name == "rke2" else []
    bundled = BUNDLED.get(provider[-1].value, "") if provider else ""
    if provider and not bundled and provider[-1].value != EXTERNAL:
        if provider[-1].value == "aws":
            config.set_key(FROM_METADATA, "true", METADATA_WHY)
        config.set_key("cloud-provider-name", EXTERNAL, target.about_value(provider[-1].value, KUBELET_WHY))
    for item in config.effective("cloud-provider-config") if name == "rke2" else []:
        config.refuse_command_line("cloud-provider-config")
        if not item.path:
            raise RancherRefused("its unit's environment has RKE2_CLOUD_PROVIDER_CONFIG. Remove that line, run 'systemctl daemon-reload', then "
                                 "run again")
        config.file(item.path).remove([item])
        config.note(item.path, item.key, item.value, None, CONFIG_WHY)
    if server:
        if not provider:
            config.set_key("disable-cloud-controller", "true", EMBEDDED_WHY.format(name))
        disabled = [part.strip() for item in config.effective("disable") for part in item.value.split(",")]
        if name == "k3s" and "servicelb" not in disabled:
            config.add("disable", "servicelb", SERVICELB_WHY, "disable", "servicelb")
        if bundled and bundled not in disabled:
            config.add("disable", bundled, BUNDLED_WHY.format(bundled, provider[-1].value), "disable", bundled)
        for key in ("kube-apiserver-arg", "kube-controller-manager-arg"):
            component = COMPONENT_KEYS[key]
            config.flags(key, lambda flags, component=component: [
                change for change in target.control_plane_changes(component, flags, version) if change.flag is not None])
    after = config.flags("kubelet-arg", lambda flags: _kubelet_changes(flags, version))
    if ("cloud-provider", EXTERNAL) not in after and not provider:
        config.add("kubelet-arg", "cloud-provider=" + EXTERNAL, KUBELET_WHY, "kubelet-arg: cloud-provider", EXTERNAL)
    if config.changes and node_name and registers and registers["name"] != node_name and not registers["metadata"]:
        if registers["setting"] == "with-node-id":
            raise RancherRefused("it would register as {0} (with-node-id), and its Node is {1}. Set node-name so that both agree, then run "
                                 "again".format(registers["name"], node_name))
        config.set_key("node-name", node_name, NAME_WHY.format(name, registers["name"], registers["setting"]))
    changed = {change.path for change in config.changes}
    return Edit({file.path: file.render() for file in config.files if file.path in changed}, config.changes)

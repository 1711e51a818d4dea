# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detects everything on a host that decides how its components start: units, manifests, files, processes and the journal.

C(result) is what M(outoftree.ccm.ccm_component_flags_info) returns; functions add facts and problems to it. They use only the standard
library of Python 3.8, because they run on managed nodes.
"""

from __future__ import annotations

import base64
import os
import re
import socket

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, env_file, unit as _unit, words
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags as _flags, host_facts, registration
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    files, journal as _journal, machine, places, probes, processes as _processes, secrets, settings, systemd,
)

#: Files that other layouts read. They are reported if they set a managed flag but this unit does not read them.
WELL_KNOWN = ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet",
              "/etc/kubernetes/kubelet.env")
PROPERTIES = ["LoadState", "ActiveState", "FragmentPath", "DropInPaths"]

#: Units that run a kubelet of their own, and what they are part of.
SERVICES = {"k3s": "k3s", "k3s-agent": "k3s", "rke2-server": "rke2", "rke2-agent": "rke2"}

#: Kubeconfigs with cluster-admin rights that installers create.
ADMIN_CONFS = ("/etc/kubernetes/admin.conf", "/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml")
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: Names that guides for installations without kubeadm give the unit of a cloud-controller-manager.
CONTROLLER_UNITS = ("cloud-controller-manager", "openstack-cloud-controller-manager")
#: File with the ID that k3s and RKE2 append to the Node's name if with-node-id is set.
NODE_ID = "/etc/rancher/node/id"
KUBEADM_CONFIG = "configmap:kube-system/kubeadm-config"


def read_file(path, secret=False):
    """Return what the planner needs of a file. A missing file is a fact, an unreadable one is a problem.

    The checksum is that of the file. The content of a I(secret) file has placeholders for secrets, which must stay on the host.
    """
    result = {"exists": False, "content": "", "sha256": "", "mode": "", "real_path": path, "problem": "", "changed": 0.0, "obstacle": "", "volatile": ""}
    try:
        result["real_path"] = files.resolve(path)
        content = files.read(path)
        if content is None:
            return result
        info = os.lstat(result["real_path"])
    except OSError as exc:
        result["problem"] = "cannot read {0}: {1}".format(path, exc.strerror)
        return result
    sha256 = _journal.digest(content)
    if secret:
        text = content.decode("utf-8", "surrogateescape")
        content = secrets.hide(text).encode("utf-8", "surrogateescape")
        if secrets.unclear(text):
            result["problem"] = ("{0} has secrets that cannot be separated from the rest, so its content stays on the host. "
                                 "Write each key on a line of its own, as in 'token: VALUE', without braces".format(path))
    result.update(exists=True, content=base64.b64encode(content).decode("ascii"), sha256=sha256, changed=info.st_ctime,
                  mode="{0:04o}".format(info.st_mode & 0o7777))
    return result


def text_of(entry):
    return base64.b64decode(entry["content"]).decode("utf-8", "replace") if entry["exists"] else None


def listed(result, directory, pattern="*"):
    """Return the paths in a directory. If it cannot be read, or a user other than root may change it, add a problem and
    return []."""
    try:
        return files.listing(directory, pattern)
    except OSError as exc:
        result["problems"].append("cannot read the directory {0}: {1}".format(directory, exc.strerror))
        return []


def walked(result, directory):
    """Return the files in and below a directory, as the kubelet and kubeadm walk it. If a directory cannot be read, or a user other than
    root may change it, add a problem and return []."""
    try:
        return files.walk(directory)
    except OSError as exc:
        result["problems"].append("cannot read the directory {0}: {1}".format(directory, exc.strerror))
        return []


def manifests_in(result, directory):
    """Return the files that the kubelet reads in a directory: every regular file whose name does not start with a dot."""
    return [path for path in listed(result, directory) if os.path.isfile(path)]


def unit_names():
    """Return the properties of every loaded unit that may run a kubelet on this host, by the unit's name."""
    names = ("kubelet",) + tuple(sorted(SERVICES))
    units = {name: systemd.unit_properties(name, PROPERTIES) for name in names}
    return {name: unit for name, unit in units.items() if unit.get("LoadState") == "loaded"}


def detect(result, patches_directory):
    units, identified = unit_names(), []
    active = [name for name in sorted(units) if units[name].get("ActiveState") in ("active", "activating", "reloading")]
    candidates = active or sorted(units)
    result["kubelet"] = dict(unit_files=[], environment_files=[], config_files=[], unread_files=[], version="", pid=0, flags=[],
                             **settings.kubelet_settings([]))
    if len(candidates) > 1:
        result["problems"].append("{0} each run a kubelet on this host. Stop and disable those that are not in use".format(
            " and ".join(name + ".service" for name in candidates)))
    elif not candidates:
        result["problems"].append(
            "systemd has not loaded kubelet.service or a service of k3s or RKE2, so the kubelet's layout is unknown. This collection can "
            "only change kubelets that systemd runs")
    elif candidates[0] == "kubelet":
        identified.append(detect_kubelet(result, units["kubelet"]))
    else:
        identified.append(detect_service(result, candidates[0], units[candidates[0]]))
    identified += detect_control_plane(result)
    logs = result["kubelet"]["pod_logs"]
    strays = [] if result["service"] else _processes.unrecognised(identified, COMPONENTS, logs)
    result["unrecognised"] = [
        {"component": seen.program, "pid": seen.process.pid, "place": _processes.whereabouts(seen, _processes.pod_folders(logs)),
         "flags": [_flags.render(flag.name, flag.value) for flag in _flags.find_flags(seen.process.argv)]} for seen in strays]
    result["notices"] += _processes.impostors(identified + [seen.process for seen in strays], logs)
    check_node_name(result)
    for path in [path for path in walked(result, patches_directory) if os.path.isfile(path)]:
        result["patches"].append(path)
        result["files"][path] = read_file(path)


def unit_sources(result, unit):
    """Read a unit's files and its environment files; return both lists and the parsed unit."""
    unit_files = [unit["FragmentPath"]] + unit.get("DropInPaths", "").split()
    for path in unit_files:
        result["files"][path] = read_file(path)
    try:
        parsed = _unit.parse_unit([(path, text_of(result["files"][path]) or "") for path in unit_files],
                                  systemd.specifiers(os.path.basename(unit["FragmentPath"])))
    except _unit.UnitRefused:  # the planner says why
        parsed = _unit.parse_unit([])
    environment_files = []
    for pattern in parsed.environment_files:
        folder, last = os.path.split(pattern)
        if re.search(r"[*?\[]", folder):
            result["problems"].append("{0}: EnvironmentFile={1} has a wildcard in a folder's name, which this collection does not follow. Name "
                                      "the folder".format(unit["FragmentPath"], pattern))
        environment_files += listed(result, folder, last) if re.search(r"[*?\[]", last) else [pattern]
    for path in environment_files:
        result["files"][path] = read_file(path)
    return unit_files, environment_files, parsed


def sources_of(unit):
    """Return the sources of a unit's command line as they are now. Raises UnitRefused."""
    local = {"files": {}, "problems": []}
    unit_files, environment_files, unused = unit_sources(local, unit)
    return _unit.sources(local["files"], {"unit_files": unit_files, "environment_files": environment_files})


def difference(result, component, unit, running):
    """Return the first difference between the arguments of a unit's process and those in its files, '' if they are the same or cannot be compared."""
    name = os.path.basename(unit["unit_files"][0])
    try:
        return compare.difference(_unit.sources(result["files"], unit), component, running.argv, systemd.specifiers(name))
    except _unit.UnitRefused:
        return ""  # the planner says why


def detect_kubelet(result, unit):
    """Add the facts of a kubelet with its own unit; return its process, None if it does not run."""
    running = _processes.of_unit("kubelet", "kubelet")
    argv = running.argv if running else []
    kubelet = result["kubelet"]
    kubelet.update(settings.kubelet_settings(argv))
    kubelet["unit_files"], kubelet["environment_files"], unused = unit_sources(result, unit)
    names = [os.path.basename(path) for path in kubelet["environment_files"]]
    result["layout"] = ("kubeadm" if "kubeadm-flags.env" in names else
                        "kubespray" if "/etc/kubernetes/kubelet.env" in kubelet["environment_files"] else "systemd")
    for path in WELL_KNOWN:
        if path not in kubelet["environment_files"] and os.path.exists(path):
            for value in env_file.parse(path, text_of(read_file(path)) or "").values():
                arguments = [word.value for word in words.split_words(value.chars)]
                kubelet["unread_files"] += [{"path": path, "flag": _flags.render(flag.name, flag.value)}
                                            for flag in _flags.find_flags(arguments)]
    if not running:
        result["problems"].append("the kubelet does not run. See 'systemctl status kubelet' on this host")
        return None
    kubelet["config_files"] = [settings.option(argv, "config", "/var/lib/kubelet/config.yaml")]
    drop_ins = settings.option(argv, "config-dir")
    kubelet["config_files"] += [path for path in walked(result, drop_ins) if path.endswith(".conf")] if drop_ins else []
    kubelet["config_files"] = [path for path in kubelet["config_files"] if os.path.lexists(path)]
    for path in kubelet["config_files"]:
        result["files"][path] = read_file(path)
    kubelet["serving"] = probes.kubelet_serving(argv, [text_of(result["files"][path]) or "" for path in kubelet["config_files"]])
    kubelet.update(pid=running.pid, started=_processes.started_at(running),
                   health=probes.baseline(lambda: probes.kubelet_health(settings.kubelet_settings(argv))))
    kubelet["difference"] = difference(result, "kubelet", kubelet, running)
    kubelet["flags"] = [_flags.render(name, value) for name, value in _unit.managed_flags(argv)]
    kubelet["version"] = version_of(result, "kubelet", "kubelet", running)
    result["registers"] = registration.of_kubelet(settings.option(argv, "hostname-override"), socket.gethostname())
    result["node_name"] = result["node_name"] or identity(settings.option(argv, "kubeconfig", "/etc/kubernetes/kubelet.conf")) \
        or result["registers"]["name"]
    return running


def identity(path):
    """Return the Node name in the kubelet's client certificate; '' if unknown. C(path): the certificate, or a kubeconfig with it or its path."""
    try:
        text = files.read_text(path) or ""
        named = re.search(r"^\s*client-certificate:\s*[\"']?([^\s\"'#]+)", text, re.MULTILINE)
        inline = re.search(r"^\s*client-certificate-data:\s*[\"']?([A-Za-z0-9+/=]+)", text, re.MULTILINE)
        text = files.read_text(named.group(1)) or "" if named else base64.b64decode(inline.group(1)).decode("ascii") if inline else text
        der = probes.first_certificate(text)
    except (OSError, ValueError):
        return ""
    name = registration.of_certificate(der)
    return name if host_facts.is_node_name(name) else ""


def version_of(result, component, unit, running):
    """Return the version of the running program, '' if it is unknown, so that other sources are used. If the program cannot
    be asked, add a notice with the reason."""
    version, reason = _processes.version_of(running, _processes.program_of(unit))
    if reason:
        result["notices"].append("the program of the running {0} cannot be asked for its version: {1}".format(component, reason))
    return version


def detect_service(result, name, unit):
    """Add the facts of k3s or RKE2, which run everything in one process; return that process, None if it does not run.

    Unit and environment files may contain the cluster's token, so they are read but not returned.
    """
    kind = SERVICES[name]
    local = {"files": {}, "problems": result["problems"]}
    unit_files, environment_files, parsed = unit_sources(local, unit)
    arguments = settings.long_options([word.value for word in parsed.exec_words[1:]])
    running = _processes.of_unit(name)
    environment = environment_of(local, environment_files, parsed)
    config_files = rancher_files(result, kind, arguments, environment)
    for path in config_files:
        result["files"][path] = read_file(path, secret=True)
    texts = [text_of(result["files"][path]) or "" for path in config_files]
    values = settings_of(kind, arguments, texts, environment)
    data = values.get("data-dir", ("", ""))[0] or "/var/lib/rancher/" + kind
    port = settings.option(arguments, "https-listen-port") or scalar(texts, "https-listen-port")
    changed = [time for path in config_files if result["files"][path]["exists"] for time in modified(result["files"][path]["real_path"])]
    result["layout"] = kind
    result["service"] = {
        "name": kind, "unit": name + ".service", "server": not name.endswith("-agent"),
        "arguments": secrets.public_arguments(arguments),
        "config_files": config_files, "data_directory": data, "port": int(port) if port.isdigit() else probes.RANCHER_PORT,
        "stale": bool(running and changed and max(changed) > _processes.started_at(running)),
        "environment": {key: value for key, (value, setting) in values.items() if setting.isupper()},
        "before": {path: place for place, command in _unit.before_start([(path, text_of(local["files"][path]) or "") for path in unit_files])
                   for path in config_files if path in command},
    }
    result["kubelet"]["static_pod_path"] = os.path.join(data, "agent", "pod-manifests")
    result["registers"] = registration.of_rancher(values, socket.gethostname(), (files.read_text(NODE_ID) or "").strip())
    result["node_name"] = result["node_name"] or identity(os.path.join(data, "agent", "client-kubelet.crt")) or result["registers"]["name"]
    result["notices"] += ["the environment of its unit has {1}, which {0} does not read".format(kind, name) for name, value in environment.items()
                          if name.startswith(kind.upper() + "_") and _flags.find_flags(value.split())]
    if running is None:
        result["problems"].append("{0} does not run. See 'systemctl status {0}' on this host".format(name))
        return None
    result["kubelet"].update(pid=running.pid, version=version_of(result, kind, name, running))
    result["service"]["health"] = probes.baseline(lambda: probes.rancher_health(name, data, result["service"]["port"]))
    return running


def rancher_files(result, kind, arguments, environment):
    """Return the configuration files of k3s or RKE2 in the order in which they are read. The environment overrides C(--config).

    In the folder C(config.yaml.d), dotted names and extensions in capitals count, too, but subfolders do not.
    """
    config = environment.get(kind.upper() + "_CONFIG_FILE") or settings.option(arguments, "config") or "/etc/rancher/{0}/config.yaml".format(kind)
    folder = config + ".d"
    return [config] + [path for path in walked(result, folder) if os.path.dirname(path) == folder and path.lower().endswith((".yaml", ".yml"))]


def modified(path):
    """Return when a file's content was last changed, as a list; [] if it was removed after it was read."""
    try:
        return [os.stat(path).st_mtime]
    except OSError:
        return []


def environment_of(result, paths, parsed):
    """Return the environment variables of a unit. Its environment files override Environment=."""
    variables = dict(parsed.environment)
    for path in paths:
        variables.update(env_file.parse(path, text_of(result["files"][path]) or ""))
    return {name: words.text_of(value.chars) for name, value in variables.items()}


def settings_of(kind, arguments, texts, environment):
    """Return the value of each needed setting of k3s or RKE2, and what sets it: the command line, else its files, else its environment."""
    by_key = {}
    for key in ("node-name", "with-node-id", "data-dir", "cloud-provider-name", "cloud-provider-config", registration.FROM_METADATA):
        variable = "{0}_{1}".format(kind, key.replace("-", "_")).upper()
        if "--" + key in arguments and key in registration.SWITCHES:
            by_key[key] = "true", "--" + key
        elif settings.option(arguments, key):
            by_key[key] = settings.option(arguments, key), "--" + key
        elif scalar(texts, key):
            by_key[key] = scalar(texts, key), key
        elif environment.get(variable) and key in registration.OF_ENVIRONMENT[kind]:
            by_key[key] = environment[variable], variable
    return by_key


def scalar(texts, key):
    """Return the last value of a top-level scalar in YAML files, '' without one."""
    return next((value for value in (settings.scalars(text).get(key) for text in reversed(texts)) if value), "")


def detect_control_plane(result):
    """Add the facts of control-plane components; return their processes."""
    if not result["service"]:  # k3s and RKE2 rewrite their manifests at every start
        for path in manifests_in(result, result["kubelet"]["static_pod_path"]):
            result["manifests"].append(path)
            result["files"][path] = read_file(path)
        for name in COMPONENTS:
            unit = systemd.unit_properties(name, PROPERTIES)
            if unit.get("LoadState") == "loaded":
                unit_files, environment_files, unused = unit_sources(result, unit)
                result["units"][name] = {"unit": name + ".service", "unit_files": unit_files, "environment_files": environment_files}
    result["other_units"] = [name + ".service" for name in CONTROLLER_UNITS
                             if systemd.unit_properties(name, PROPERTIES).get("ActiveState") in ("active", "activating", "reloading")]
    identified = []
    for name in COMPONENTS:
        processes = _processes.of_static_pod(name, result["kubelet"]["pod_logs"])
        identified += processes
        main = _processes.of_unit(name, name) if name in result["units"] else None
        for process in processes + ([main] if main else []):
            flags = [_flags.render(flag.name, flag.value) for flag in _flags.find_flags(process.argv)]
            result["components"][name] = {"pid": process.pid, "flags": flags, "version": "", "arguments": process.argv,
                                          "started": _processes.started_at(process)}
        # The newest process is the component, because two run while the kubelet replaces one with the other.
        for process in ([main] if main else processes[-1:]):
            argv = process.argv
            result["components"][name]["health"] = probes.baseline(lambda name=name, argv=argv: probes.component_health(name, argv))
        if main:
            identified.append(main)
            result["components"][name]["difference"] = difference(result, name, result["units"][name], main)
            result["components"][name]["version"] = version_of(result, name, name, main)
    find_admin_conf(result)
    return identified


def find_admin_conf(result):
    for path in ADMIN_CONFS:
        text = files.read_text(path)
        if text is not None:
            match = re.search(r"^\s+server:\s*[\"']?(https://[^\s\"']+)", text, re.MULTILINE)
            result["admin_conf"] = path
            result["api_server"] = match.group(1) if match else ""
            return


def check_node_name(result):
    """Refuse an invalid Node name, because names are used in paths of the API and in messages."""
    name = result["node_name"]
    if name and not host_facts.is_node_name(name):
        result["problems"].append("its kubelet's name {0!r} is not a valid Node name (lower case letters, digits, '-' and '.'). Check "
                                  "--hostname-override, or set ccm_install_node_name".format(name[:100]))
        result["node_name"] = ""


def detect_journal(result, directory, copied=None):
    """Add what the journal has recorded, and the state in which it was found. I(copied), if given, takes the place of a journal that is missing,
    unreadable, damaged or rolled back. A journal that cannot be read is a problem."""
    result["journal_found"] = dict(_journal.found(directory), machine=machine.identity())
    try:
        read_journal(result, _journal.opened(directory, copied))
    except _journal.JournalRefused as exc:
        problem = str(exc)
    except (AttributeError, IndexError, KeyError, TypeError):
        problem = ("{0} is JSON, but not a journal. A rollback needs it. Replace it with a good copy, or move it away".format(
            os.path.join(directory, "journal.json")))
    else:
        return
    result["journal_problem"] = problem
    result["problems"].append(problem)


def read_journal(result, journal):
    for name, entry in sorted(journal.files.items()):
        secret = entry["component"] in SERVICES.values()
        service = {key: value for key, value in (entry.get("service") or {}).items() if value}
        item = {"component": entry["component"], "service": service, "state": "unknown", "problem": "", "baselines": []}
        result["journal"][name] = item
        try:
            item["baselines"] = [reported(baseline, secret) for baseline in journal.baselines(name)]
        except _journal.JournalRefused as exc:
            item["problem"] = str(exc)
            if name == KUBEADM_CONFIG:
                result["problems"].append(str(exc))
        if name != KUBEADM_CONFIG:
            if name not in result["files"]:
                result["files"][name] = read_file(name, secret)
            now = result["files"][name]["sha256"]
            records = _journal.ours(entry, now)
            item["state"] = "altered" if records is None else "written" if records else "original"


def find_cloud_configs(result):
    """Add the cloud configurations that exist: those that flags name, and those that flags named before this collection removed the flags."""
    contents = [entry["content"] for entry in result["files"].values()]
    contents += [baseline["original"] for entry in result["journal"].values() for baseline in entry["baselines"]]
    paths = {path for content in contents for path in _flags.cloud_configs(base64.b64decode(content).decode("utf-8", "replace"))}
    result["cloud_configs"] = sorted(path for path in paths if os.path.isfile(path))


def reported(baseline, secret):
    """Return a baseline of the journal as data, with contents in base64. Those of a I(secret) file have placeholders."""
    def text(content):
        if content is not None and secret:
            content = secrets.hide(content.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        return base64.b64encode(content or b"").decode("ascii")

    return {"existed": baseline.original is not None, "original": text(baseline.original), "sha256": baseline.sha256,
            "copied": baseline.written is not None, "written": text(baseline.written), "written_sha256": baseline.written_sha256}


def check_writable(result, directory):
    """Report what would stop every change, and add to each file what would stop or undo its change."""
    parent = directory
    while not os.path.isdir(parent) and parent != "/":
        parent = os.path.dirname(parent)
    space = os.statvfs(parent)
    if space.f_bavail * space.f_frsize < 16 * 1024 * 1024:
        result["problems"].append("{0} has less than 16 MiB of free space for backups. Free some space".format(directory))
    if space.f_files and space.f_favail < 100:
        result["problems"].append("{0} has less than 100 free inodes for backups. Remove files that nobody needs".format(directory))
    known = places.of_this_host()
    gone = places.volatile(directory, known)
    if gone:
        result["problems"].append("{0} would lose the journal of the changes at the next start of the host: {1}. Set "
                                  "ccm_install_state_directory to a directory on a disk".format(directory, gone))
    for entry in result["files"].values():
        entry["obstacle"], entry["volatile"] = places.obstacle(entry["real_path"], known), places.volatile(entry["real_path"], known)
    if space.f_flag & os.ST_RDONLY:
        result["problems"].append("cannot write to {0}: the file system is read-only. Remount it writable".format(parent))

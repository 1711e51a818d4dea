# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which process is this host's kubelet, API server, controller manager, scheduler, k3s or RKE2.

A process is identified by where root put it, never by what it calls itself: any Pod may run a program whose C(argv[0]) is
C(kubelet). Two things prove a component:

- Of a unit: it is the MainPID that systemd reports of the active unit, and its control group is the unit's.
- Of a static Pod: its control group is the one of a static Pod of this host that has a container of the component's name.
  A static Pod's UID is 32 hexadecimal digits, which the kubelet computes from the manifest. The UID of every other Pod is a UUID
  that the API server assigns: no user chooses it, and the kubelet names the control group after it. Which static Pod runs which
  component is read from C(/var/log/pods/kube-system_NAME_UID/CONTAINER), folders that the kubelet makes as root.

The arguments of an identified process are data. Everything is read through one descriptor of C(/proc/PID), so that a PID
that is given to another process in between gives nothing instead of that process. Stdlib-only, for managed nodes (Python 3.8).
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files, systemd

PROC = "/proc"
POD_LOGS = "/var/log/pods"

#: Names that only a host's own components have a right to; others that bear them are reported.
COMPONENTS = ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "k3s", "rke2")

#: Bytes of one file of /proc; a command line has some KiB.
LIMIT = 1 << 18

#: Log folders of Pods that are looked at: there is one for each Pod, and for some time for each that is gone.
FOLDERS = 100000

#: How many processes that call themselves components are named one by one.
NAMED = 5

_UUID = "[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
_STATIC = re.compile("[0-9a-f]{32}")
#: A Pod's control group with the cgroupfs driver (kubepods/burstable/podUID) and with systemd's (kubepods-burstable-podUID.slice).
_POD_GROUP = re.compile(r"(?:[\w-]*kubepods(?:-besteffort|-burstable)?-)?pod([0-9a-f]{{32}}|{0})(?:\.slice)?".format(_UUID))


class Process(NamedTuple):
    """A running process; (pid, start) never comes twice on one boot."""

    pid: int
    start: int
    argv: List[str]

    @property
    def identity(self) -> Tuple[int, int]:
        return self.pid, self.start


class Seen(NamedTuple):
    """What the kernel says of one process. C(group): its path in systemd's hierarchy; C(pod): its Pod's UID, '' without one."""

    process: Process
    name: str
    parent: int
    group: str
    pod: str
    namespaces: Tuple[str, str]

    @property
    def program(self) -> str:
        """Return what the process calls itself."""
        return os.path.basename(self.process.argv[0]) if self.process.argv else ""


def look(pid: int, root: Optional[str] = None) -> Optional[Seen]:
    """Return what is known of one running process, None when it is gone. C(root): the root_group(), where it is known already."""
    try:
        folder = os.open(os.path.join(PROC, str(pid)), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        argv = [part.decode("utf-8", "replace") for part in _read(folder, "cmdline").split(b"\0")[:-1]]
        name, unused, rest = _read(folder, "stat").decode("utf-8", "replace").rpartition(")")
        fields = rest.split()
        groups = _read(folder, "cgroup").decode("utf-8", "replace")
        namespaces = (_namespace(folder, "pid"), _namespace(folder, "mnt"))
    except OSError:
        return None
    finally:
        os.close(folder)
    if fields[0] == "Z":
        return None
    process = Process(pid, int(fields[19]), argv)
    pod = pod_of(groups, root_group() if root is None else root)
    return Seen(process, name.partition("(")[2], int(fields[1]), control_group(groups), pod, namespaces)


def _read(folder: int, name: str) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as handle:
        return handle.read(LIMIT)


def _namespace(folder: int, kind: str) -> str:
    try:
        return os.readlink("ns/" + kind, dir_fd=folder)
    except OSError:
        return ""


def everything() -> List[Seen]:
    """Return every process of this host, by PID."""
    root = root_group()
    found = [look(int(entry), root) for entry in os.listdir(PROC) if entry.isdigit()]
    return sorted((seen for seen in found if seen is not None), key=lambda seen: seen.process.pid)


# -- control groups ----------------------------------------------------------------------------------------------------


def _paths(text: str) -> List[Tuple[str, str]]:
    """Return (controllers, path) of each line of /proc/PID/cgroup."""
    parts = [line.split(":", 2) for line in text.splitlines()]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def control_group(text: str) -> str:
    """Return the path in the hierarchy that systemd keeps: a named one of version 1, also beside version 2, or the only one of 2."""
    paths = dict(_paths(text))
    return paths.get("name=systemd", paths.get("", ""))


def root_group() -> str:
    """Return the control group below which systemd runs everything: not '' where the host is a container itself."""
    try:
        with open(os.path.join(PROC, "1", "cgroup"), encoding="utf-8", errors="replace") as handle:
            group = control_group(handle.read(LIMIT))
    except OSError:
        return ""
    return group[:-len("/init.scope")] if group.endswith("/init.scope") else group.rstrip("/")


def pod_of(text: str, root: str = "") -> str:
    """Return the UID of the Pod in whose control group a process is, '' without one.

    The first component that names a Pod counts, and only above services and scopes: what is below them, their own processes may
    have made, such as a user's in the groups that systemd delegates to the user's session.
    """
    found = {pod for pod in (_first_pod(path, root) for unused, path in _paths(text)) if pod}
    # Hierarchies that disagree prove nothing, but it is some Pod's.
    return found.pop() if len(found) == 1 else "?" if found else ""


def _first_pod(path: str, root: str) -> str:
    for part in (path[len(root):] if root and within(path, root) else path).split("/"):
        match = _POD_GROUP.fullmatch(part)
        if match:
            return match.group(1).replace("_", "-")
        if part == "user.slice" or part.endswith((".service", ".scope")):
            return ""
    return ""


def within(group: str, unit: str) -> bool:
    """Whether a control group is the unit's or below it."""
    unit = unit.rstrip("/")
    return bool(unit) and (group == unit or group.startswith(unit + "/"))


# -- units -------------------------------------------------------------------------------------------------------------


def of_unit(unit: str, name: str = "") -> Optional[Process]:
    """Return the main process of an active unit.

    Where the unit starts the component C(name) by way of a wrapper, the process of that name in the unit's control group.
    """
    seen = _main(unit)
    if seen is not None and name and seen.program != name:
        group = systemd.unit_properties(unit, ["ControlGroup"]).get("ControlGroup", "")
        wrapped = [other for other in everything() if other.program == name and not other.pod and within(other.group, group)]
        seen = wrapped[0] if wrapped else seen
    return seen.process if seen is not None else None


def _main(unit: str) -> Optional[Seen]:
    properties = systemd.unit_properties(unit, ["ActiveState", "MainPID", "ControlGroup"])
    pid = properties.get("MainPID", "")
    if properties.get("ActiveState") not in ("active", "reloading") or not pid.isdigit() or pid == "0":
        return None
    seen = look(int(pid))
    if seen is None or seen.pod:
        return None
    return seen if within(seen.group, properties.get("ControlGroup", "")) or _moved(seen) else None


def _moved(seen: Seen) -> bool:
    """Whether systemd's own child has left its unit's group, as a kubelet with kubeletCgroups does."""
    init = look(1)
    return init is not None and seen.parent == 1 and "" not in seen.namespaces and seen.namespaces == init.namespaces


# -- static Pods -------------------------------------------------------------------------------------------------------


def static_pods(component: str, logs: str = POD_LOGS) -> Dict[str, str]:
    """Return the log folder of the component's container in each of its static Pods, by UID; one for each version of the manifest."""
    found = {}
    for path in pod_folders(logs):
        namespace, name, uid = os.path.basename(path).split("_")
        folder = os.path.join(path, component)
        if namespace == "kube-system" and name and _STATIC.fullmatch(uid) and _is_directory(path) and _is_directory(folder):
            found[uid] = folder
    return found


def pod_folders(logs: str = POD_LOGS) -> List[str]:
    """Return the log folders of Pods: NAMESPACE_NAME_UID, of which no part can have another underscore."""
    try:
        return [path for path in files.listing(logs, limit=FOLDERS) if os.path.basename(path).count("_") == 2]
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    """Whether it is a directory itself, no link, and root's."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in files.owners()


def of_static_pod(component: str, logs: str = POD_LOGS) -> List[Process]:
    """Return the component's processes in its static Pods, oldest first; two while the kubelet replaces one by the other."""
    pods = static_pods(component, logs)
    found = [seen.process for seen in everything() if seen.pod in pods and seen.program == component] if pods else []
    return sorted(found, key=lambda process: (process.start, process.pid))


# -- what looks like a component and is none -----------------------------------------------------------------------------


def unrecognised(identified: Iterable[Optional[Process]], names: Iterable[str], logs: str = POD_LOGS) -> List[Seen]:
    """Return processes of these names that root started on this host and that are not identified.

    They are in a static Pod whose container has another name, or in a system service whose unit has another name. Processes of other
    Pods, of users' sessions and of containers that are hosts themselves (kind) are none of this host's components.
    """
    static = {os.path.basename(path).split("_")[2] for path in pod_folders(logs)}
    init, wanted = look(1), set(names)
    found = []
    for seen in _strangers(identified):
        parts = seen.group.split("/")
        service = not seen.pod and "user.slice" not in parts and any(part.endswith(".service") for part in parts)
        here = init is not None and seen.namespaces[0] == init.namespaces[0] != ""
        if seen.program in wanted and (service and here or bool(_STATIC.fullmatch(seen.pod)) and seen.pod in static):
            found.append(seen)
    return found


def _strangers(identified: Iterable[Optional[Process]]) -> List[Seen]:
    """Return the processes that are none of the identified ones, and no helpers of theirs."""
    known = [look(process.pid) for process in identified if process is not None]
    identities = {seen.process.identity for seen in known if seen is not None}
    groups = {seen.group for seen in known if seen is not None and not seen.pod}
    pods = {seen.pod for seen in known if seen is not None and seen.pod}
    found = []
    for seen in everything():
        # A component's own helpers, and another process of the same static Pod, are where root put them.
        own = seen.pod in pods if seen.pod else any(within(seen.group, group) for group in groups if group != "/")
        if not own and seen.process.identity not in identities:
            found.append(seen)
    return found


def impostors(identified: Iterable[Optional[Process]], logs: str = POD_LOGS) -> List[str]:
    """Return, as sentences, which processes bear a component's name without being this host's component."""
    found = []
    for seen in _strangers(identified):
        name = next((name for name in COMPONENTS if name == seen.program or name[:15] == seen.name), "")
        if name:
            found.append((seen, name))
    # A Pod may start as many processes as it likes: only those that are named are looked up.
    folders = pod_folders(logs) if found else []
    sentences = ["process {0} calls itself {1} but {2}: it is ignored".format(seen.process.pid, name, whereabouts(seen, folders))
                 for seen, name in found[:NAMED]]
    if len(found) > NAMED:
        sentences.append("{0} more processes call themselves like components of this host: they are ignored".format(len(found) - NAMED))
    return sentences


def whereabouts(seen: Seen, folders: List[str]) -> str:
    """Return, as the end of a sentence, where a process is. C(folders): the pod_folders()."""
    if not seen.pod:
        return "is in the control group {0}, of no unit that runs it".format(re.sub(r"[^\w./:@-]", "?", seen.group)[:120] or "(unknown)")
    for path in folders:
        namespace, name, uid = os.path.basename(path).split("_")
        if uid == seen.pod:
            return "belongs to Pod {0}/{1}".format(namespace, name)
    return "belongs to the Pod with the UID {0}".format(seen.pod)


# -- versions ------------------------------------------------------------------------------------------------------------


def version_of(running: Process, program: str) -> Tuple[str, str]:
    """Return the version of a component, such as 'v1.36.3' or '' when its program says none, and why the program was not asked.

    C(program) is what its unit starts. A program is asked only when root alone could have put it there and when it is the very
    file that runs; what /proc/PID/exe leads to is compared, and never run.
    """
    link = os.path.join(PROC, str(running.pid), "exe")
    try:
        runs = os.stat(link)
        paths = [path for path in (program, os.readlink(link)) if os.path.isabs(path)]
    except OSError as exc:
        return "", "its program cannot be seen: {0}".format(exc.strerror)
    reason = "its unit names no program"
    for path in paths:
        try:
            trusted = files.program(path)
            there = os.stat(trusted)
        except files.Untrusted as exc:
            reason = str(exc.strerror)
        except OSError:
            reason = "{0} is not there any more".format(path)
        else:
            if (there.st_dev, there.st_ino) == (runs.st_dev, runs.st_ino):
                match = re.search(r"v\d+\.\d+\.\S+", commands.run([trusted, "--version"], timeout=20).stdout)
                return match.group(0) if match else "", ""
            reason = "{0} was replaced after the process was started".format(path)
    return "", reason


def program_of(unit: str) -> str:
    """Return the absolute path of the program that a unit starts, '' when systemd names none."""
    match = re.search(r"path=(.+?) ;", systemd.unit_properties(unit, ["ExecStart"]).get("ExecStart", ""))
    return match.group(1) if match else ""


def started_at(running: Process) -> float:
    """Return when a process was started, in epoch seconds."""
    with open(os.path.join(PROC, "stat"), encoding="ascii", errors="replace") as handle:
        boot = next(int(line.split()[1]) for line in handle if line.startswith("btime "))
    return boot + running.start / float(os.sysconf("SC_CLK_TCK"))

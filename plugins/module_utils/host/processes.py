# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Identifies the processes of this host's kubelet, API server, controller manager, scheduler, k3s or RKE2.

A process is identified by its control group, never by its name alone, because any Pod may run a program whose C(argv[0]) is C(kubelet). Two
kinds of processes count as a component:

- The main process of a unit: it is the MainPID that systemd reports for the active unit, and either in the unit's control group, or a child of
  PID 1 with the namespaces of PID 1. If it is a wrapper, the component in the unit's control group counts.
- A process of a static Pod: it is in the control group of a static Pod of this host that has a container with the component's name.
  A static Pod's UID has 32 hexadecimal digits, which the kubelet computes from the manifest. The UID of every other Pod is a UUID from
  the API server, which no user can choose. The kubelet names the control group after the UID. The folders
  C(/var/log/pods/kube-system_NAME_UID/CONTAINER), which the kubelet creates as root, show which static Pod runs which component.

The arguments of an identified process are only data. Everything is read through one descriptor of C(/proc/PID), so that a reused PID
gives no result, and never the data of another process. The module uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files, systemd

PROC = "/proc"
POD_LOGS = "/var/log/pods"

#: Names of a host's own components. Other processes with these names are reported.
COMPONENTS = ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "k3s", "rke2")

#: Programs that become a unit's program: systemd's own, and the one that newer versions of systemd start for that. systemd calls a unit of
#: Type=simple active before the child executes its program: https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html#Type=
STARTERS = ("systemd", "systemd-executor")

#: Maximum size in bytes of one file of /proc. A command line has a few KiB.
LIMIT = 1 << 18

#: Maximum number of log folders of Pods. Each Pod has one, which stays for some time after the Pod is gone.
FOLDERS = 100000

#: Maximum number of processes that call themselves components and are listed one by one.
NAMED = 5

#: Maximum number of characters of a control group in a message. Users who start processes may choose its name.
GROUP_SHOWN = 120

#: Maximum number of seconds that a program may take to print its version.
VERSION_TIMEOUT = 20

_UUID = "[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
_STATIC = re.compile("[0-9a-f]{32}")
#: A Pod's control group with the cgroupfs driver (kubepods/burstable/podUID) and with systemd's (kubepods-burstable-podUID.slice).
_POD_GROUP = re.compile(r"(?:[\w-]*kubepods(?:-besteffort|-burstable)?-)?pod([0-9a-f]{{32}}|{0})(?:\.slice)?".format(_UUID))


class Process(NamedTuple):
    """A running process. (pid, start) is unique within one boot."""

    pid: int
    start: int
    argv: List[str]

    @property
    def identity(self) -> Tuple[int, int]:
        return self.pid, self.start


class Seen(NamedTuple):
    """The kernel's data of one process. C(file): the path of its program's file, '' if it cannot be read; C(group): its path in systemd's hierarchy;
    C(pod): the result of pod_of."""

    process: Process
    name: str
    parent: int
    file: str
    group: str
    pod: str
    namespaces: Tuple[str, str]

    @property
    def program(self) -> str:
        """Return the name in the process's own argv, '' without one. The process may choose it."""
        return os.path.basename(self.process.argv[0]) if self.process.argv else ""


def look(pid: int, root: Optional[str] = None) -> Optional[Seen]:
    """Return the data of one running process, None if it has ended. C(root): the root_group(), if it is already known."""
    try:
        folder = os.open(os.path.join(PROC, str(pid)), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        argv = [part.decode("utf-8", "replace") for part in _read(folder, "cmdline").split(b"\0")[:-1]]
        name, unused, rest = _read(folder, "stat").decode("utf-8", "replace").rpartition(")")
        fields = rest.split()
        groups = _read(folder, "cgroup").decode("utf-8", "replace")
        namespaces = (_link(folder, "ns/pid"), _link(folder, "ns/mnt"))
        program = _link(folder, "exe")
    except OSError:
        return None
    finally:
        os.close(folder)
    if fields[0] == "Z":
        return None
    process = Process(pid, int(fields[19]), argv)
    pod = pod_of(groups, root_group() if root is None else root)
    return Seen(process, name.partition("(")[2], int(fields[1]), program, control_group(groups), pod, namespaces)


def _read(folder: int, name: str) -> bytes:
    with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder), "rb") as handle:
        return handle.read(LIMIT)


def _link(folder: int, name: str) -> str:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError:
        return ""


def everything() -> List[Seen]:
    """Return every process of this host, sorted by PID."""
    root = root_group()
    processes = [look(int(entry), root) for entry in os.listdir(PROC) if entry.isdigit()]
    return sorted((seen for seen in processes if seen is not None), key=lambda seen: seen.process.pid)


# -- control groups ----------------------------------------------------------------------------------------------------


def _paths(text: str) -> List[Tuple[str, str]]:
    """Return (controllers, path) of each line of /proc/PID/cgroup."""
    parts = [line.split(":", 2) for line in text.splitlines()]
    return [(part[1], part[2]) for part in parts if len(part) == 3]


def control_group(text: str) -> str:
    """Return the path in systemd's hierarchy: the named one of cgroup version 1, or the only one of version 2."""
    paths = dict(_paths(text))
    return paths.get("name=systemd", paths.get("", ""))


def root_group() -> str:
    """Return the control group below which systemd runs everything.

    It is '' if PID 1 sees no groups above those of systemd, or if /proc cannot be read. It is not '' in a container that shares the
    cgroup namespace of its host.
    """
    try:
        with open(os.path.join(PROC, "1", "cgroup"), encoding="utf-8", errors="replace") as handle:
            group = control_group(handle.read(LIMIT))
    except OSError:
        return ""
    return group[:-len("/init.scope")] if group.endswith("/init.scope") else group.rstrip("/")


def pod_of(text: str, root: str = "") -> str:
    """Return the UID of the Pod in whose control group a process is; '' without one, '?' if the hierarchies disagree.

    The first part of a path that names a Pod is used, but only above services and scopes. Processes may create groups below those, for example
    where systemd delegates groups to a user's session.
    """
    pods = {pod for pod in (_first_pod(path, root) for unused, path in _paths(text)) if pod}
    # If the hierarchies disagree, the process belongs to some unknown Pod.
    return pods.pop() if len(pods) == 1 else "?" if pods else ""


def _first_pod(path: str, root: str) -> str:
    for part in (path[len(root):] if root and within(path, root) else path).split("/"):
        match = _POD_GROUP.fullmatch(part)
        if match:
            return match.group(1).replace("_", "-")
        if part == "user.slice" or part.endswith((".service", ".scope")):
            return ""
    return ""


def within(group: str, unit: str) -> bool:
    """Return whether a control group is the unit's or below it."""
    unit = unit.rstrip("/")
    return bool(unit) and (group == unit or group.startswith(unit + "/"))


# -- units -------------------------------------------------------------------------------------------------------------


def of_unit(unit: str, name: str = "") -> Optional[Process]:
    """Return the main process of an active unit, None without one.

    If the main process is a wrapper and the component C(name) runs in the unit's control group, return the component's process.
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
    if seen is None or seen.pod or _is_starting(seen):
        return None
    return seen if within(seen.group, properties.get("ControlGroup", "")) or _moved(seen) else None


def _is_starting(seen: Seen) -> bool:
    """Return whether systemd has started a process that has not executed the unit's program yet. Meanwhile the unit is already active, and the
    arguments are those of systemd, or empty."""
    return not seen.process.argv or os.path.basename(seen.file).partition(" ")[0] in STARTERS


def _moved(seen: Seen) -> bool:
    """Return whether a process that systemd started has left its unit's group, as a kubelet with kubeletCgroups does."""
    init = look(1)
    return init is not None and seen.parent == 1 and "" not in seen.namespaces and seen.namespaces == init.namespaces


# -- static Pods -------------------------------------------------------------------------------------------------------


def static_pods(component: str, logs: str = POD_LOGS) -> Dict[str, str]:
    """Return UID -> the log folder of the component's container in the static Pod with this UID. Each version of the manifest has a UID of its own."""
    folders = {}
    for path in pod_folders(logs):
        namespace, name, uid = os.path.basename(path).split("_")
        folder = os.path.join(path, component)
        if namespace == "kube-system" and name and _STATIC.fullmatch(uid) and _is_directory(path) and _is_directory(folder):
            folders[uid] = folder
    return folders


def pod_folders(logs: str = POD_LOGS) -> List[str]:
    """Return the log folders of Pods, named NAMESPACE_NAME_UID. No part of the name can contain an underscore."""
    try:
        return [path for path in files.listing(logs, limit=FOLDERS) if os.path.basename(path).count("_") == 2]
    except OSError:
        return []


def _is_directory(path: str) -> bool:
    """Return whether the path is a directory, not a link, and has a trusted owner."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid in files.owners()


def of_static_pod(component: str, logs: str = POD_LOGS) -> List[Process]:
    """Return the component's processes in its static Pods, oldest first. There are two while the kubelet replaces one with the other."""
    pods = static_pods(component, logs)
    processes = [seen.process for seen in everything() if seen.pod in pods and seen.program == component] if pods else []
    return sorted(processes, key=lambda process: (process.start, process.pid))


# -- processes that only look like components ----------------------------------------------------------------------------


def unrecognised(identified: Iterable[Optional[Process]], names: Iterable[str], logs: str = POD_LOGS) -> List[Seen]:
    """Return the processes with these names that are not identified, but are in a static Pod or a system service of this host.

    Their container or unit has another name than the component. Processes of other Pods, of user sessions, and of containers that are hosts
    themselves (kind) are not components of this host.
    """
    static = {os.path.basename(path).split("_")[2] for path in pod_folders(logs)}
    init, wanted = look(1), set(names)
    processes = []
    for seen in _strangers(identified):
        parts = seen.group.split("/")
        service = not seen.pod and "user.slice" not in parts and any(part.endswith(".service") for part in parts)
        here = init is not None and seen.namespaces[0] == init.namespaces[0] != ""
        if seen.program in wanted and (service and here or bool(_STATIC.fullmatch(seen.pod)) and seen.pod in static):
            processes.append(seen)
    return processes


def _strangers(identified: Iterable[Optional[Process]]) -> List[Seen]:
    """Return the processes that are neither identified nor helpers of identified ones."""
    known = [look(process.pid) for process in identified if process is not None]
    identities = {seen.process.identity for seen in known if seen is not None}
    groups = {seen.group for seen in known if seen is not None and not seen.pod}
    pods = {seen.pod for seen in known if seen is not None and seen.pod}
    processes = []
    for seen in everything():
        # Helpers of a component, and other processes of the same static Pod, are trusted.
        own = seen.pod in pods if seen.pod else any(within(seen.group, group) for group in groups)
        if not own and seen.process.identity not in identities:
            processes.append(seen)
    return processes


def impostors(identified: Iterable[Optional[Process]], logs: str = POD_LOGS) -> List[str]:
    """Return messages about processes that have a component's name but are not this host's component."""
    names = []
    for seen in _strangers(identified):
        name = next((name for name in COMPONENTS if name == seen.program or name[:15] == seen.name), "")
        if name:
            names.append((seen, name))
    # A Pod may start any number of processes, so only the listed ones are looked up.
    folders = pod_folders(logs) if names else []
    sentences = ["process {0} calls itself {1} but {2}. It is ignored".format(seen.process.pid, name, whereabouts(seen, folders))
                 for seen, name in names[:NAMED]]
    if len(names) > NAMED:
        sentences.append("{0} more processes have names of this host's components. They are ignored".format(len(names) - NAMED))
    return sentences


def whereabouts(seen: Seen, folders: List[str]) -> str:
    """Return the location of a process as the end of a sentence. C(folders): the pod_folders()."""
    if not seen.pod:
        group = re.sub(r"[^\w./:@-]", "?", seen.group)[:GROUP_SHOWN]
        return "is in the control group {0}, which belongs to no unit of this component".format(group or "(unknown)")
    for path in folders:
        namespace, name, uid = os.path.basename(path).split("_")
        if uid == seen.pod:
            return "belongs to Pod {0}/{1}".format(namespace, name)
    return "belongs to the Pod with the UID {0}".format(seen.pod)


# -- versions ------------------------------------------------------------------------------------------------------------


def version_of(running: Process, program: str) -> Tuple[str, str]:
    """Return the version of a component, such as 'v1.36.3' or '' if its program prints none, and why the program was not run ('' if it was).

    C(program) is the program that its unit starts. This path, or else that of /proc/PID/exe, is run only if root alone controls it and if it
    leads to the file of the running process. The link /proc/PID/exe itself is never run.
    """
    link = os.path.join(PROC, str(running.pid), "exe")
    try:
        runs = os.stat(link)
        paths = [path for path in (program, os.readlink(link)) if os.path.isabs(path)]
    except OSError as exc:
        return "", "its program cannot be inspected: {0}".format(exc.strerror)
    reason = "its unit names no program"
    for path in paths:
        try:
            trusted = files.program(path)
            there = os.stat(trusted)
        except files.Untrusted as exc:
            reason = str(exc.strerror)
        except OSError:
            reason = "{0} no longer exists".format(path)
        else:
            if (there.st_dev, there.st_ino) == (runs.st_dev, runs.st_ino):
                match = re.search(r"v\d+\.\d+\.\S+", commands.run([trusted, "--version"], timeout=VERSION_TIMEOUT).stdout)
                return match.group(0) if match else "", ""
            reason = "{0} was replaced after the process was started".format(path)
    return "", reason


def program_of(unit: str) -> str:
    """Return the absolute path of the program that a unit starts, '' if systemd reports none."""
    match = re.search(r"path=(.+?) ;", systemd.unit_properties(unit, ["ExecStart"]).get("ExecStart", ""))
    return match.group(1) if match else ""


def started_at(running: Process) -> float:
    """Return when a process was started, in epoch seconds, exactly enough to compare it with the times of files.

    btime in /proc/stat has whole seconds. With it, a process would seem older than a file that was written just before the process started.
    """
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + running.start / float(os.sysconf("SC_CLK_TCK"))

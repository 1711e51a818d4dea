# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A component on this host: replaces its files atomically, and waits until it runs with them.

It uses only the standard library of Python 3.8, because it runs on managed nodes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

from ansible_collections.outoftree.ccm.plugins.module_utils.edit import compare, unit
from ansible_collections.outoftree.ccm.plugins.module_utils.host import (
    commands, detect, election, files, logs, machine, probes, processes as _processes, secrets, settings, systemd,
)

POLL = 0.5
#: Services that run all components in one process.
WHOLE = ("k3s", "rke2")
#: A component that has started this many times since the change is crash-looping, so the wait ends.
CRASHES = 3


class Failed(Exception):
    """The component could not be changed, or did not become healthy."""


def read(path):
    return files.read(path)


def temporary(path):
    """Return the file's temporary name in the same folder. It begins with a dot, so that the kubelet does not read it."""
    folder, name = os.path.split(files.resolve(path))
    return os.path.join(folder, ".outoftree-ccm." + name)


def remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def show(content, component):
    text = "" if content is None else content.decode("utf-8", "backslashreplace")
    return secrets.hide_credentials(secrets.hide(text) if component in WHOLE else text)


class Component:
    """A component on this host: writes its files, makes the component use them, and waits until it works."""

    def __init__(self, module):
        self.module = module
        self.name = module.params["component"]
        self.timeout = module.params["timeout"]
        self.restarted_at = ""
        self.use(module.params["service"])

    def use(self, service):
        self.unit = service.get("unit") or ("kubelet" if self.name == "kubelet" else "")
        self.data_directory = service.get("data_directory") or ""
        self.port = service.get("port") or probes.RANCHER_PORT
        kubelet = None if self.unit else _processes.of_unit("kubelet", "kubelet")
        self.logs = settings.kubelet_settings(kubelet.argv if kubelet else [])["pod_logs"]

    def write(self, path, content, mode, owner):
        """Replace a file atomically, or remove it if C(content) is None. Raises OSError, also for a path that a user other than root controls."""
        real, new = files.resolve(path), temporary(path)
        if content is None:
            remove(real)
            return
        os.makedirs(os.path.dirname(real), exist_ok=True)
        remove(new)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
            self._keep_attributes(real, new)
            os.chown(new, owner[0], owner[1])
            os.chmod(new, mode)
            # Not atomic_move, which ends the module if it fails: the files that are already written would not be restored.
            os.replace(new, real)
        finally:
            remove(new)

    def _keep_attributes(self, real, new):
        """Give a file the SELinux label and the access list of the one that it replaces, or the label that belongs to its path."""
        if os.path.exists(real):
            shutil.copystat(real, new)
            os.utime(new)
            return
        context = self.module.selinux_default_context(real)
        if all(context):
            # If that fails, the file keeps the label that the kernel gave it, which is usually the same.
            with contextlib.suppress(OSError):
                os.setxattr(new, "security.selinux", ":".join(context).encode("ascii") + b"\0")

    def runs(self, flags, paths):
        """Return whether the component runs with its restored files. A run may have been killed before the restart."""
        processes = self.processes()
        if self.name not in WHOLE:
            return any(self._flags(process) == list(flags) for process in processes)
        # Removing a file changes the time of its folder.
        changed = [os.stat(path if os.path.exists(path) else os.path.dirname(path)).st_mtime for path in map(files.resolve, paths)]
        return bool(processes) and _processes.started_at(processes[0]) > max(changed)

    def processes(self):
        """Return the component's processes: the main process of its unit, or those of its static Pods."""
        if self.unit:
            running = _processes.of_unit(self.unit, "" if self.name in WHOLE else self.name)
            return [running] if running else []
        return _processes.of_static_pod(self.name, self.logs)

    def take_up(self, paths):
        """Restart a service with its new files. The kubelet restarts static Pods by itself. Raises Failed."""
        if not self.unit:
            return
        # If there is nothing to write, an earlier run was killed after it wrote the files, which may be unit files. systemd may also have loaded an older
        # version of the unit than the plan read.
        if not paths or any(map(unit.is_unit_file, paths)) or \
                systemd.unit_properties(self.unit, ["NeedDaemonReload"]).get("NeedDaemonReload") == "yes":
            done = commands.run(["systemctl", "daemon-reload"])
            if done.returncode != 0:
                raise Failed("'systemctl daemon-reload' failed: {0}".format(done.stderr.strip()))
        # systemd refuses to start a unit that crashed too often, even with good files. The command may fail: the unit may not be loaded.
        commands.run(["systemctl", "reset-failed", self.unit])
        self.restarted_at = machine.timestamp()
        done = commands.run(["systemctl", "restart", self.unit], timeout=max(90, self.timeout))
        if done.returncode != 0:
            raise Failed("'systemctl restart {0}' failed: {1}".format(self.unit, done.stderr.strip()))

    def others(self):
        """Return the lists of unmanaged arguments that a new process may have: those of the running one, and those in the files.
        Return [] for k3s, RKE2 and kubeadm's patches."""
        if self.name in WHOLE or self.name == "kubeadm-patches":
            return []
        lists = [compare.others(process.argv) for process in self.processes()[-1:]]
        properties = systemd.unit_properties(self.unit, detect.PROPERTIES) if self.unit else {}
        if properties.get("FragmentPath"):
            with contextlib.suppress(unit.UnitRefused, files.Untrusted):
                line = detect.sources_of(properties).command_line(systemd.specifiers(os.path.basename(properties["FragmentPath"])))
                # If a file was changed after the process was started, the next start takes it up.
                lists += [unit.unmanaged(line._replace(arguments=line.given))] if os.path.basename(line.program) == self.name else []
        return lists

    @staticmethod
    def lost(process, others):
        """Return how a process's unmanaged arguments differ from the first list in C(others); '' if they equal one of the lists, or there is no list."""
        running = [argument.value for argument in compare.others(process.argv)]
        differences = [compare.first_difference(expected, running, lambda argument: "") for expected in others]
        return "" if not all(differences) else differences[0] if differences else ""

    def wait(self, flags, old, folders, others=()):
        """Wait until a process that is not in C(old) has the flags and is good; return the seconds that it took. Raises Failed.

        Unless C(others) is empty, its unmanaged arguments must equal one of these lists. It is good when it is healthy twice in a row. But
        kube-controller-manager is healthy before it leads, so election.Election decides about it.
        """
        begun = time.monotonic()
        if self.name == "kubeadm-patches":
            return 0.0
        missing = "it has no process"
        judge = None
        while time.monotonic() - begun < self.timeout:
            candidates = [process for process in self.processes() if process.identity not in old]
            process = next((p for p in candidates if self._flags(p) == list(flags)), None)
            lost = self.lost(process, others) if process is not None else ""
            if process is None:
                missing = "there is no new process with {0}".format(" ".join(flags) or "no cloud flag")
            else:
                missing = "the change would also have changed other arguments: " + lost if lost else self._health(process)
            # A wrapper may not have started the component yet.
            if lost and old and os.path.basename(process.argv[0]) == self.name:
                raise Failed(missing)
            if process is not None and not missing:
                if judge is None or judge.process.identity != process.identity:
                    judge = self._judge(process)
                missing = judge.missing()
                if not missing:
                    return round(time.monotonic() - begun, 1)
                time.sleep(1)
                continue
            judge = None
            starts = systemd.restarts(self.unit) if self.unit else logs.container_starts(self.name, folders, self.logs)
            if starts >= CRASHES:
                raise Failed("it is crash-looping ({0})".format(missing))
            time.sleep(POLL)
        raise Failed("after {0} s: {1}".format(self.timeout, missing))

    def _judge(self, process):
        return election.Election(self.name, process, self.logs) if self.name in election.LEASES else election.Twice(process)

    def _flags(self, process):
        if self.name in WHOLE:  # its kubelet is part of the process, and its flags are not visible
            return []
        return ["--{0}={1}".format(name, value) for name, value in unit.managed_flags(process.argv)]

    def _health(self, process):
        if self.name == "kubelet":
            return probes.kubelet_health(settings.kubelet_settings(process.argv))
        if self.name in WHOLE:
            return probes.rancher_health(self.unit, self.data_directory, self.port)
        return probes.component_health(self.name, process.argv)

    def log(self, since):
        if self.unit:
            return logs.kubelet_log(since, unit=self.unit)
        return logs.pod_log(self.name, since, logs=self.logs) or logs.kubelet_log(since, about=self.name)

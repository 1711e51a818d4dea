# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last log lines of a failed component, and how many times it was started.

It uses only the standard library of Python 3.8, because it runs on managed nodes. The module files opens the log files.
"""

from __future__ import annotations

import os
import re
from typing import Iterable, List

from ansible_collections.outoftree.ccm.plugins.module_utils.host import commands, files, processes


def pod_log(component: str, since: float, lines: int = 12, logs: str = processes.POD_LOGS) -> List[str]:
    """Return the last lines of a static Pod's newest log that was written since C(since) (epoch seconds) and is not empty; [] without such a log.

    A container that has just started may have logged nothing yet.
    """
    paths = []
    for folder in processes.static_pods(component, logs).values():
        for path in _listed(folder):
            try:
                paths.append((os.stat(files.resolve(path)).st_mtime, path))
            except OSError:
                continue
    for written, path in sorted(paths, reverse=True):
        if written < since:
            break
        try:
            text = files.tail(path, 64 * 1024)
        except OSError:
            continue
        # The CRI's form is '<time> <stream> <tag> <message>'.
        words = [re.sub(r"^\S+ (?:stdout|stderr) [FP] ?", "", line)[:400] for line in text.splitlines()]
        words = [line for line in words if line.strip()]
        if words:
            return words[-lines:]
    return []


def pod_directories(component: str, logs: str = processes.POD_LOGS) -> List[str]:
    """Return the log folders of a static Pod: one for each version of its manifest that has logs."""
    return sorted(processes.static_pods(component, logs).values())


def container_starts(component: str, known: Iterable[str], logs: str = processes.POD_LOGS) -> int:
    """Return the number of starts of the container that started most often, according to the log folders not in C(known); 0 without logs."""
    numbers = [int(name[:-4]) for directory in set(pod_directories(component, logs)) - set(known)
               for name in map(os.path.basename, _listed(directory)) if name[:-4].isdigit()]
    return max(numbers) + 1 if numbers else 0


def _listed(folder: str) -> List[str]:
    """Return the containers' logs in one of the kubelet's folders."""
    try:
        return files.listing(folder, "*.log")
    except OSError:
        return []


def kubelet_log(since: float, lines: int = 12, about: str = "", unit: str = "kubelet") -> List[str]:
    """Return a unit's last journal lines since a time: lines that contain C(about), or else errors, or else any lines."""
    done = commands.run(["journalctl", "-u", unit, "--since", "@{0}".format(int(since)), "-n", "5000", "--no-pager", "-o", "cat"])
    text = [line[:400] for line in done.stdout.splitlines() if line.strip()]
    errors = [line for line in text if re.match(r"[EF]\d{4} |Error", line)]
    return ([line for line in text if about and about in line] or errors or text)[-lines:]

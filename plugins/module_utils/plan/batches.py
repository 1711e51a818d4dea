# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches of workers: their sizes, what is wrong with the operator's settings, and how long the rest takes. Pure."""

from __future__ import annotations

import re
from typing import Any, List, Sequence

#: Maximum pause, and maximum time of a health command, in seconds.
DAY = 86400

#: Minimum time limit, in seconds, of the command that restarts a service.
RESTART = 90

#: Changes of a control plane between two renewals of the Lease: kubeadm's patches, kube-controller-manager, kube-apiserver, the kubelet.
STEPS = 4

#: Seconds of a batch for everything else: connections, reading journals, copying them to the cluster.
READING = 300


def problems(serial: Any, pause: Any, command: Any, timeout: Any, parallel: Any = 10) -> List[str]:
    """Return what is wrong with the settings of the batches, as sentences."""
    texts = []
    steps = serial if isinstance(serial, (list, tuple)) else [serial]
    if not steps or any(_size(step, 100) is None for step in steps):
        texts.append("ccm_install_worker_serial is {0!r}: set a number of workers such as 5, a share such as '10%', or a list of both".format(
            list(steps) if isinstance(serial, (list, tuple)) else serial))
    if _seconds(pause) is None:
        texts.append("ccm_install_batch_pause is {0!r}: set a number of seconds from 0 to {1}".format(pause, DAY))
    if not _seconds(timeout):
        texts.append("ccm_install_batch_command_timeout is {0!r}: set a number of seconds from 1 to {1}".format(timeout, DAY))
    if not re.fullmatch(r"\s*(100|[1-9]\d?)\s*", "" if isinstance(parallel, bool) else str(parallel)):
        texts.append("ccm_install_adopt_parallel is {0!r}: set a number of Nodes from 1 to 100".format(parallel))
    if not isinstance(command, (list, tuple)) or not all(isinstance(word, str) for word in command):
        texts.append("ccm_install_batch_command is {0!r}: set a list with the program and its arguments, such as [/usr/local/bin/check, --all]".format(
            command))
    elif command and not command[0].strip():
        texts.append("ccm_install_batch_command names no program: set a list with the program and its arguments")
    elif len(command) == 1 and re.search(r"\s", command[0].strip()):
        texts.append("ccm_install_batch_command is one word with spaces, {0!r}: set a list with the program and its arguments. No shell "
                     "reads it".format(command[0]))
    return texts


def _seconds(value: Any) -> Any:
    """Return the value as a number of seconds; None if it is not such a number, or is longer than a day."""
    if isinstance(value, bool) or not re.fullmatch(r"\s*\d{1,6}\s*", str(value)) or int(value) > DAY:
        return None
    return int(value)


def _size(step: Any, workers: int) -> Any:
    """Return the size of a batch, at least 1, None if the step is not valid. Ansible rounds shares down."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*(%?)\s*", "" if isinstance(step, bool) else str(step))
    if match is None or int(match.group(1)) == 0 or match.group(2) and int(match.group(1)) > 100:
        return None
    return max(1, workers * int(match.group(1)) // 100) if match.group(2) else int(match.group(1))


def sizes(serial: Any, workers: int) -> List[int]:
    """Return the sizes of the batches, as Ansible makes them from C(serial). The last step repeats. Raises ValueError."""
    steps = list(serial) if isinstance(serial, (list, tuple)) else [serial]
    counts: List[int] = []
    rest = workers
    while rest > 0:
        size = _size(steps[min(len(counts), len(steps) - 1)], workers) if steps else None
        if size is None:
            raise ValueError("ccm_install_worker_serial is {0!r}".format(serial))
        counts.append(min(size, rest))
        rest -= size
    return counts


def longest(serial: Any, workers: int, forks: int, gate: int, node: int, between: int) -> int:
    """Return how many seconds a batch of workers, or one control plane, takes at most. The run's Lease must not expire before that time.

    C(gate): how long the run waits for a component at most, in seconds. C(node): how long it waits for all Nodes of a batch. C(between): the
    pause and the health command together. C(forks): how many hosts change at a time. The time of a host includes waiting for another run, a
    restart, waiting for the component, and a second restart and wait if the change is undone.
    """
    host = 3 * gate + 2 * max(RESTART, gate)
    size = max(sizes(serial, workers) or [1])
    return max(-(-size // max(1, forks)) * host, STEPS * host) + node + between + READING


def seconds_left(done: Sequence[int], seconds: Sequence[float], left: Sequence[int]) -> float:
    """Return the seconds that the batches C(left) take, from the sizes and seconds of those that are done.

    A batch takes a fixed time (restart, heartbeat) and a time for each worker: a least-squares line, whose two parts are not negative.
    If all batches had the same size, the second part is unknown. The mean time is then used for each batch. It is too short for a larger
    batch, and too long for a smaller one.
    """
    if not done or len(done) != len(seconds):
        return 0.0
    mean_size, mean = sum(done) / float(len(done)), sum(seconds) / float(len(seconds))
    spread = sum((size - mean_size) ** 2 for size in done)
    slope = sum((size - mean_size) * (took - mean) for size, took in zip(done, seconds)) / spread if spread else 0.0
    slope = min(max(0.0, slope), mean / mean_size if mean_size else 0.0)
    return sum(mean + slope * (size - mean_size) for size in left) if slope else mean * len(left)


def duration(seconds: float) -> str:
    """Return a duration as a text with its unit: seconds, minutes or hours."""
    if seconds < 90:
        return "{0:.0f} s".format(seconds)
    return "{0:.0f} min".format(seconds / 60.0) if seconds < 5400 else "{0:.1f} h".format(seconds / 3600.0)


def progress(serial: Any, workers: int, begun: Sequence[float], now: float) -> str:
    """Return the line that announces a batch: its workers and its number and, after the first batch, the time so far and the estimated rest.

    C(begun): when each earlier batch and this one began, in seconds. C(now): the current time on the same clock.
    """
    batches = sizes(serial, workers)
    number = len(begun)
    before = sum(batches[:number - 1])
    size = batches[number - 1] if number <= len(batches) else workers - before
    who = "Worker {0}".format(before + 1) if size == 1 else "Workers {0} to {1}".format(before + 1, before + size)
    text = "{0} of {1} (batch {2} of {3})".format(who, workers, number, len(batches))
    if number < 2:
        return text
    took = [second - first for first, second in zip(begun, begun[1:])]
    done = batches[:number - 1]
    left = seconds_left(done, took, batches[number - 1:])
    # If all finished batches have the smallest size, larger ones take longer than their mean time.
    bound = "at least" if len(set(done)) == 1 and done[0] == min(batches) < max(batches) else "about"
    return "{0}: {1} so far, {2} {3} left".format(text, duration(now - begun[0]), bound, duration(left))

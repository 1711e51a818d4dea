# SPDX-License-Identifier: Apache-2.0
"""Reads what a process has used from /proc, and what an API server has written from its metrics. Parsing is pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024.0

_SAMPLE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")
RESOURCES = ("nodes", "services", "events")


@dataclass(frozen=True)
class Usage:
    """Usage of a process. `cpu`: seconds of user and system time so far; `peak`: its highest resident memory, in
    MiB."""

    cpu: float
    peak: float


def usage(pid: int) -> Usage:
    folder = Path("/proc") / str(pid)
    return Usage(cpu_seconds((folder / "stat").read_text()), peak_mib((folder / "status").read_text()))


def cpu_seconds(stat: str) -> float:
    """Return the CPU seconds in /proc/PID/stat. The name in parentheses may contain anything, even parentheses."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(status: str) -> float:
    """Return VmHWM of /proc/PID/status in MiB, or 0.0 without it."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) / MIB if found else 0.0


def api_writes(metrics: str) -> dict[str, int]:
    """Return how many writes of relevant resources an API server has answered so far, such as {"PATCH nodes": 2000}."""
    found: dict[str, int] = {}
    for sample in _SAMPLE.finditer(metrics):
        labels = dict(_LABEL.findall(sample["labels"]))
        if labels.get("verb") in WRITES and labels.get("resource") in RESOURCES:
            key = " ".join(filter(None, (labels["verb"], labels["resource"], labels.get("subresource"))))
            found[key] = found.get(key, 0) + round(float(sample["value"]))
    return found


def difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {key: count - before.get(key, 0) for key, count in sorted(after.items()) if count > before.get(key, 0)}


def queue(metrics: str, name: str) -> tuple[int, int]:
    """Return (finished, waiting) items of the work queue `name` from a text of metrics."""
    label = f'name="{name}"'
    finished = samples(metrics, "workqueue_work_duration_seconds_count", label)
    return int(finished), int(samples(metrics, "workqueue_depth", label))


def lag(metrics: str) -> dict[str, int]:
    """Return the number of samples of the event loop's lag in metrics, and of those above 50 ms, such as {"taken": 120,
    "above": 1}.
    """
    taken = samples(metrics, "ccm_event_loop_lag_seconds_bucket", 'le="+Inf"')
    within = samples(metrics, "ccm_event_loop_lag_seconds_bucket", 'le="0.05"')
    return {"taken": int(taken), "above": int(taken - within)}


def samples(metrics: str, name: str, label: str) -> float:
    """Return the sum of the samples of a metric that have this label."""
    found = 0.0
    for line in metrics.splitlines():
        metric, brace, rest = line.partition("{")
        if brace and metric == name and label in rest:
            found += float(rest.rpartition(" ")[2])
    return found

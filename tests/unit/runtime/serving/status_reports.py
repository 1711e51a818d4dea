# SPDX-License-Identifier: Apache-2.0
"""Status reports for tests: of a healthy leader, of a troubled one, and one whose every text is hostile."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm.serving.status_report import (
    Breaker,
    Budget,
    Calls,
    CloudState,
    Count,
    Held,
    Process,
    Queue,
    Series,
    Status,
    Unfinished,
)


def report(**changes: Any) -> Status:
    """Return the report of a healthy leader. `changes`: fields to replace."""
    process = Process(
        identity="cp1_6f1c",
        role="leader",
        leader="cp1_6f1c",
        lease="kube-system/cloud-controller-manager",
        version="0.1.0",
        provider="sim",
        cluster="demo",
        uptime=7200.0,
        controllers=["cloud-node", "service"],
        problems=[],
    )
    cloud = CloudState(
        answered=2.0,
        failing=None,
        error="",
        under_way=1,
        concurrency=10,
        calls=[Calls("instances.list", 40, 0, {}, 0.12)],
        budgets=[Budget("all calls", 10.0, 20.0, 18.0, 0.0)],
        breakers=[],
    )
    whole = Status(
        process=process,
        nodes=[Count("ready", 3), Count("waits for initialisation", 0)],
        services=[Count("has an address", 2)],
        unfinished=[],
        unfinished_in_all=0,
        held=[],
        held_in_all=0,
        queues=[Queue("Nodes", 0, 0.0, 0, 0.0, 0, 0)],
        clouds=[cloud],
        step=20.0,
        history=[Series("cloud calls per minute", [0.0, 3.0, 6.0])],
    )
    return msgspec.structs.replace(whole, **changes)


def troubled() -> Status:
    """Return the report of a leader with a failing cloud, a failing object, and a deletion on hold."""
    well = report()
    return report(
        unfinished=[
            Unfinished("Node", "worker-9", "failing", 130.0, 4, "the cloud lists no instance named 'worker-9'")
        ],
        unfinished_in_all=30,
        held=[Held("Node", "worker-3", "ListingDoubted", "Ready Nodes are missing from the listing", 600.0)],
        held_in_all=1,
        queues=[Queue("Nodes", 2, 3.0, 1, 0.5, 4, 1)],
        clouds=[
            msgspec.structs.replace(
                well.clouds[0],
                failing=95.0,
                error="503 from the cloud",
                calls=[Calls("instances.list", 40, 7, {"Transient": 6, "timeout": 1}, 0.12)],
                budgets=[Budget("all calls", 10.0, 20.0, -3.0, 12.0)],
                breakers=[Breaker("instances", True, 7, 15.0, "503 from the cloud")],
            )
        ],
    )


def written_by(text: str) -> Status:
    """Return a report in which every text is `text`."""
    plain = msgspec.to_builtins(troubled())
    return msgspec.convert(_replaced(plain, text), Status)


def _replaced(data: Any, text: str) -> Any:
    if isinstance(data, str):
        return text
    if isinstance(data, list):
        return [_replaced(each, text) for each in data]
    if isinstance(data, dict):
        return {key: _replaced(value, text) for key, value in data.items()}
    return data

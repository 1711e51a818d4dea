# SPDX-License-Identifier: Apache-2.0
"""Figures of tests that compare a provider with its vendor's own controller, for the table of docs/providers/index.md.

A test confirms a figure of `results/PROVIDER.yml`, and fails if the figure differs. ``make record-comparison`` runs the
tests with `RECORD_COMPARISON=1`, which writes the figures instead, and ``make docs`` renders the table.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import yaml

RESULTS = Path(__file__).parent / "results"

#: The operations whose calls are counted, in the table's order.
OPERATIONS = ("nodes initialised", "create", "unchanged", "node joins", "node leaves", "port added", "delete")
#: Facts in words, such as "9 of 9".
FACTS = ("nodes equal", "load balancers equal", "taken over by ours", "taken over by theirs", "faults survived")
#: How far the vendor's count may be from the recorded one, as a share: its retries and waits depend on the machine.
THEIR_SPREAD = 0.35


def confirm(provider: str, fact: str, value: str) -> None:
    """Check a fact against the recorded one, or record it. Raises AssertionError if they differ."""
    assert fact in FACTS, f"{fact}: choose from {FACTS}"
    written = read(provider)
    if _recording():
        _record(provider, {fact: value})
        return
    assert written.get(fact) == value, f"{provider}: {fact}: {value}, and {written.get(fact)} is written"


def confirm_calls(provider: str, operation: str, *, ours: int, theirs: int | None) -> None:
    """Check counts of calls to the cloud: `ours` must not exceed the recorded one, `theirs` must be close to it.

    `theirs` is None if the vendor's controller cannot run here.
    """
    assert operation in OPERATIONS, f"{operation}: choose from {OPERATIONS}"
    written = read(provider)
    calls = written.get("calls", {})
    if _recording():
        _record(provider, {"calls": {operation: {"ours": ours, "theirs": theirs}}})
        return
    found = calls.get(operation)
    assert found is not None, f"{provider}: calls of {operation!r} are not written"
    assert ours <= found["ours"], f"{provider}: {operation}: {ours} calls, and {found['ours']} are written"
    assert (theirs is None) == (found["theirs"] is None), f"{provider}: {operation}: {found}"
    if theirs is not None:
        spread = abs(theirs - found["theirs"])
        assert spread <= max(2, THEIR_SPREAD * found["theirs"]), f"{provider}: {operation}: theirs {theirs}, {found}"


def read(provider: str) -> dict[str, Any]:
    """Return what is recorded about a provider: FACTS by their names, `calls` by operation, and `evidence` and
    `beside`, which are written by hand."""
    path = RESULTS / f"{provider}.yml"
    return dict(yaml.safe_load(path.read_text()) or {}) if path.exists() else {}


def _recording() -> bool:
    return os.environ.get("RECORD_COMPARISON") == "1"


def _record(provider: str, facts: dict[str, Any]) -> None:
    """Add facts to the recorded ones, under a lock, because files of tests run side by side."""
    folder = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        written = read(provider)
        calls = {**written.get("calls", {}), **facts.get("calls", {})}
        merged = {**written, **facts, **({"calls": calls} if calls else {})}
        head = "# SPDX-License-Identifier: Apache-2.0\n# Written by the tests: make record-comparison\n"
        (RESULTS / f"{provider}.yml").write_text(head + yaml.safe_dump(merged, sort_keys=True, width=120))
    finally:
        os.close(folder)

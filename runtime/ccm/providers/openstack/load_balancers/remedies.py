# SPDX-License-Identifier: Apache-2.0
"""Remedies that were tried after a failure. No I/O.

Octavia can fail repeatedly at the same task, and each attempt is work for Octavia. A remedy is therefore tried once. If
the failure persists, the failure is reported. The framework then waits longer after each report (5 s to 300 s), and the
remedy may be tried once more.
"""

from __future__ import annotations


class Remedies:
    def __init__(self) -> None:
        self._tried: set[str] = set()

    def first(self, remedy: str) -> bool:
        """Return whether the remedy is new since `clear`, and record it as tried."""
        if remedy in self._tried:
            return False
        self._tried.add(remedy)
        return True

    def clear(self) -> None:
        """Forget all remedies, after a success or after a failure was reported."""
        self._tried.clear()

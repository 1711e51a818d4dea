# SPDX-License-Identifier: Apache-2.0
"""What was done about a failure. Pure.

Octavia can fail the same thing again and again, and each attempt costs it work. So a remedy is tried once. If the
failure is still there, it is reported: the framework then waits longer after each report (5 s to 300 s), and the remedy
may be tried once more.
"""

from __future__ import annotations


class Remedies:
    def __init__(self) -> None:
        self._tried: set[str] = set()

    def first(self, remedy: str) -> bool:
        """Whether it was not tried since `clear`. From now on it was."""
        if remedy in self._tried:
            return False
        self._tried.add(remedy)
        return True

    def clear(self) -> None:
        """After a success, and when a failure was reported."""
        self._tried.clear()

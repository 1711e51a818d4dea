# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes from single requests how long a URL did not answer while a run changed the cluster, and says so in a sentence. Pure.

A gap begins with the start of the first request that fails, and ends with the next answer. So it may begin later than
the outage by the pause between two requests, and end later by that pause and the time of two requests: the last one that fails, and the one that is
answered.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

Row = Dict[str, Any]

#: Maximum number of gaps that are listed, the longest first. All gaps are counted.
MOST_GAPS = 20


class Measurement:
    """The attempts so far. Times are seconds since the first attempt began."""

    def __init__(self) -> None:
        self.milliseconds: List[float] = []
        self.errors: Dict[str, int] = {}
        self.gaps: List[Row] = []
        self.gap: Optional[Row] = None
        self.seconds = 0.0

    def add(self, began: float, ended: float, error: str) -> None:
        """Count an attempt. C(error) is '' for an answer."""
        self.seconds = ended
        if error:
            self.errors[error] = self.errors.get(error, 0) + 1
            self.gap = self.gap or {"at": began, "requests": 0, "errors": {}}
            self.gap["requests"] += 1
            self.gap["errors"][error] = self.gap["errors"].get(error, 0) + 1
            return
        self.milliseconds.append((ended - began) * 1000)
        if self.gap:
            self._close(ended)

    def _close(self, ended: float) -> None:
        if self.gap:
            self.gaps.append(dict(self.gap, at=round(self.gap["at"], 1), ms=round((ended - self.gap["at"]) * 1000)))
        self.gap = None

    def result(self) -> Row:
        """Return {requests, answered, errors, seconds, median_ms, slowest_ms, gaps, gap_count, disrupted_ms, longest_ms, answers_now}.

        A gap that did not end counts up to the last attempt.
        """
        open_gap = self.gap is not None
        self._close(self.seconds)
        times = sorted(self.milliseconds)
        by_length = sorted(self.gaps, key=lambda gap: -gap["ms"])
        failed = sum(self.errors.values())
        return {
            "requests": len(times) + failed, "answered": len(times), "errors": self.errors, "seconds": round(self.seconds, 1),
            "median_ms": round(times[len(times) // 2], 1) if times else None, "slowest_ms": round(times[-1], 1) if times else None,
            "gaps": by_length[:MOST_GAPS], "gap_count": len(self.gaps), "disrupted_ms": sum(gap["ms"] for gap in self.gaps),
            "longest_ms": by_length[0]["ms"] if by_length else 0, "answers_now": bool(times) and not open_gap,
        }


def sentences(url: str, result: Row) -> List[str]:
    """Return what a result means, for the summary of a run."""
    if not result.get("requests"):
        return ["{0} was not measured: {1}".format(url, result.get("why") or "no request was sent")]
    text = "{0}: {answered} of {requests} requests answered in {seconds:.0f} s".format(url, **result)
    if result["median_ms"] is not None:
        text += ", median {median_ms:.0f} ms, slowest {slowest_ms:.0f} ms".format(**result)
    if not result["gap_count"]:
        return [text + ". No disruption."]
    kinds = ", ".join("{0} {1}".format(count, kind) for kind, count in sorted(result["errors"].items()))
    longest = result["gaps"][0]
    text += ". Disrupted for {disrupted_ms} ms ({0}): {gap_count} gap(s), the longest {longest_ms} ms, {1:.0f} s after the start".format(
        kinds, longest["at"], **result)
    return [text + ("." if result["answers_now"] else ". It did not answer at the end.")]

# SPDX-License-Identifier: Apache-2.0
"""Plots as SVG; the same figures make the same file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from . import table

COLOURS = {"peer": "#8a8f98", "ours": "#2563eb"}
STYLE = {"svg.hashsalt": "bench", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
PANELS = (
    ("seconds", "seconds to all initialised"),
    ("cpu", "CPU seconds"),
    ("peak", "peak memory, MiB"),
    ("cloud_calls", "cloud calls"),
)
#: Bars: the bench, which of its runs, and the label.
BARS = (
    ("nodes", {"tuning": "defaults"}, "1,000 Nodes, defaults"),
    ("nodes", {"tuning": "tuned"}, "1,000 Nodes, tuned"),
    ("limited", {}, "1,000 Nodes, cloud limited"),
    ("restart", {}, "restart, 500 Services"),
    ("routes", {}, "100 routes, cloud limited"),
    ("handover", {}, "handover"),
)


def draw(results: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    matplotlib.rcParams.update(STYLE)
    runs = {name: table.medians(result["runs"]) for name, result in results.items()}
    if "growth" in runs:
        _save(_growth(runs["growth"]), folder / "growth.svg")
    _save(_bars(runs), folder / "bars.svg")


def _growth(runs: Sequence[Mapping[str, Any]]) -> Any:
    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(12, 3))
    for axes, (key, title) in zip(panels, PANELS, strict=True):
        for side, colour in COLOURS.items():
            points = sorted((run["size"], run[key]) for run in runs if run["side"] == side)
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, color=colour, label=side)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("Nodes")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[-1].set_yscale("log")
    panels[-1].set_ylim(bottom=1)
    panels[0].legend(frameon=False)
    figure.tight_layout()
    return figure


def _bars(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Plot the seconds of the peer and of our runtime, on a logarithmic scale."""
    found = [
        (title, {side: _seconds(runs[bench], side, wanted) for side in COLOURS})
        for bench, wanted, title in BARS
        if bench in runs
    ]
    figure, axes = pyplot.subplots(figsize=(8, 0.8 + 0.5 * len(found)))
    for offset, (side, colour) in zip((-0.2, 0.2), COLOURS.items(), strict=True):
        places = [number + offset for number in range(len(found))]
        values = [seconds[side] for _, seconds in found]
        bars = axes.barh(places, values, height=0.38, color=colour, label=side)
        axes.bar_label(bars, [f"{value:.2g} s" if value < 10 else f"{value:.0f} s" for value in values], padding=3)
    axes.set_yticks(range(len(found)), [title for title, _ in found])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.legend(frameon=False)
    axes.margins(x=0.12)
    figure.tight_layout()
    return figure


def _seconds(runs: Sequence[Mapping[str, Any]], side: str, wanted: Mapping[str, Any]) -> float:
    return next(
        float(run["seconds"])
        for run in runs
        if run["side"] == side and all(run[key] == value for key, value in wanted.items())
    )


def _save(figure: Any, file: Path) -> None:
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)

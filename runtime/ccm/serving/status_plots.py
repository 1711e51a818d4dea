# SPDX-License-Identifier: Apache-2.0
"""Small SVG plots of the last hour. No I/O."""

from __future__ import annotations

import html

from ccm.base.text import QUOTED, printable, shorten

from .status_report import Series

WIDTH, HEIGHT, TOP, BOTTOM = 240, 68, 20, 1
#: Seconds that the horizontal axis shows.
HOUR = 3600.0


def plot(series: Series, step: float, *, bad: bool = False) -> str:
    """Return an `svg` element. It shows no text (only a `title`), because labels would shrink with the plot, and
    terminal browsers would run them together.

    The right edge is now. If the process has run for less than an hour, the line begins further to the right.
    """
    values = series.values
    most = max([*values, 0.0])
    scale = most if most > 0 else 1.0
    points = []
    for number, value in enumerate(values):
        ago = (len(values) - 1 - number) * step
        across = WIDTH * (1 - ago / HOUR)
        up = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * max(0.0, value) / scale
        points.append((across, up))
    line = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
    area = f"{points[0][0]:.1f},{HEIGHT - BOTTOM} {line} {points[-1][0]:.1f},{HEIGHT - BOTTOM}"
    name = html.escape(printable(shorten(series.name, QUOTED)), quote=True)
    kind = ' class="bad"' if bad else ""
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"{kind}><title>{name}</title>'
        f'<polygon class="area" points="{area}"/><polyline class="line" points="{line}"/></svg>'
    )

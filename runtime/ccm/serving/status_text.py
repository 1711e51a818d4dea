# SPDX-License-Identifier: Apache-2.0
"""A status report as lines of text, safe for a terminal. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ccm.base.text import printable, shorten

from .status_report import Series, Status, advice, headline
from .status_tables import Table, tables

#: The maximum length of a cell, in characters before escaping.
LONGEST_CELL = 300
BARS = "▁▂▃▄▅▆▇█"
#: The width of a plot, in characters.
PLOT = 60


def lines(status: Status) -> list[str]:
    return list(_lines(status))


def _lines(status: Status) -> Iterator[str]:
    yield _clean(headline(status))
    for sentence in advice(status):
        yield f"! {_clean(sentence)}"
    for table in tables(status):
        yield ""
        yield _title(table.title)
        yield from _rows(table)
    if plotted := [each for each in status.history if each.values]:
        minutes = max(len(each.values) for each in plotted) * status.step / 60
        yield ""
        yield f"LAST {minutes:.0f} MINUTES"
        names = [_clean(each.name) for each in plotted]
        width = max(map(len, names))
        for name, series in zip(names, plotted, strict=True):
            now, most = series.values[-1], max(series.values)
            yield f"  {name.ljust(width)}  {plot(series)}  now {now:.3g}, at most {most:.3g}"


def _title(title: str) -> str:
    """Return the title in capitals, except for the name of a cloud."""
    what, colon, cloud = title.partition(":")
    return what.upper() + colon + _clean(cloud)


def _rows(table: Table) -> Iterator[str]:
    if not table.rows:
        yield f"  {table.empty}"
    else:
        rows = [[_clean(cell) for cell in row] for row in table.rows]
        head = [] if table.head[0] == "What" else [[cell.upper() for cell in table.head]]
        every = [*head, *rows]
        widths = [max(len(row[column]) for row in every) for column in range(len(table.head))]
        for row in every:
            cells = [
                cell.rjust(width) if column in table.numbers else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield "  " + "  ".join(cells).rstrip()
    if table.note:
        yield f"  {_clean(table.note)}"


def plot(series: Series) -> str:
    """Return one character for each of at most `PLOT` intervals: its largest value, relative to the largest of all."""
    values = compressed(series.values, PLOT)
    most = max(values, default=0.0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(len(BARS) - 1, int(value / most * (len(BARS) - 1) + 0.5))] for value in values)


def compressed(values: Sequence[float], width: int) -> list[float]:
    """Return at most `width` values, each the largest of its interval."""
    if len(values) <= width:
        return list(values)
    edges = [number * len(values) // width for number in range(width + 1)]
    return [max(values[start:end]) for start, end in itertools.pairwise(edges)]


def _clean(text: str) -> str:
    return printable(shorten(text, LONGEST_CELL))

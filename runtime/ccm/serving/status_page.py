# SPDX-License-Identifier: Apache-2.0
"""A status report as HTML: no scripts, nothing from other hosts, readable in a terminal browser. No I/O.

Every text goes through `html.escape`, because names, annotations and errors come from strangers. The header `POLICY`
makes browsers refuse scripts, forms, frames and requests in any case.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator

from ccm.base.text import printable, shorten

from .status_plots import plot
from .status_report import Status, advice, headline
from .status_tables import Table, tables

#: The maximum length of a cell, in characters before escaping.
LONGEST_CELL = 500

STYLE = """
:root { color-scheme: light dark; --ink: #1c2127; --soft: #5b6670; --line: #d5dae0; --page: #fff; --box: #f5f7f9;
  --warn: #8a3b00; --warn-page: #fff4e5; --mark: #1565c0; --bad: #c62828; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa5b1; --line: #38414a; --page: #14181c;
  --box: #1d2329; --warn: #ffc58a; --warn-page: #33240f; --mark: #64b5f6; --bad: #ef9a9a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.25rem 3rem; max-width: 78rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.25rem; margin: .25rem 0; }
h2 { font-size: 1rem; margin: 0 0 .4rem; }
p { margin: .25rem 0; overflow-wrap: anywhere; }
.lead, .note { color: var(--soft); }
.note { font-size: .87rem; }
.warn { background: var(--warn-page); color: var(--warn); border-left: 4px solid; padding: .5rem .75rem;
  margin: .75rem 0; }
.warn ul { margin: 0; padding-left: 1.1rem; overflow-wrap: anywhere; }
main { display: grid; gap: 1rem; grid-template-columns: repeat(6, minmax(0, 1fr)); margin-top: 1rem; }
section { grid-column: span 6; background: var(--box); border: 1px solid var(--line); border-radius: 6px;
  padding: .75rem .9rem; overflow-x: auto; }
.third { grid-column: span 2; } .half { grid-column: span 3; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; color: var(--soft); font-weight: 600; white-space: nowrap; }
th, td { padding: .2rem .9rem .2rem 0; vertical-align: top; border-top: 1px solid var(--line); }
thead th { border-top: 0; }
td { overflow-wrap: break-word; max-width: 22rem; }
th:last-child, td:last-child { padding-right: 0; overflow-wrap: anywhere; }
th.n, td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wide td:nth-child(2):not(.n) { overflow-wrap: anywhere; min-width: 9rem; }
.wide td:last-child { min-width: 14rem; width: 45%; max-width: none; }
.plots { display: grid; gap: .75rem; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { font-size: .87rem; color: var(--soft); }
svg { display: block; width: 100%; height: auto; background: var(--page); border: 1px solid var(--line); }
svg .area { fill: var(--mark); opacity: .18; } svg .line { fill: none; stroke: var(--mark); stroke-width: 1.5; }
svg.bad .area { fill: var(--bad); } svg.bad .line { stroke: var(--bad); }
.plot { position: relative; } .plot::before, .axis { color: var(--soft); font-size: .75rem; line-height: 1.2; }
.plot::before { content: attr(data-most); position: absolute; left: .25rem; top: .1rem; }
.axis { display: flex; justify-content: space-between; }
.axis::before { content: attr(data-from); } .axis::after { content: attr(data-to); }
@media (max-width: 60rem) { .half { grid-column: span 6; } }
@media (max-width: 42rem) { body { padding: .75rem; } .third { grid-column: span 6; }
  .plots { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  :is(.wide, .half) thead { display: none; }
  :is(.wide, .half) tr { display: block; border-top: 1px solid var(--line); padding: .3rem 0; }
  :is(.wide, .half) :is(td, td.n, td:last-child) { display: grid; grid-template-columns: 6.5rem minmax(0, 1fr);
    width: auto; min-width: 0; max-width: none; border: 0; padding: .1rem 0; text-align: left; white-space: normal;
    overflow-wrap: anywhere; }
  :is(.wide, .half) td::before { content: attr(data-label); color: var(--soft); }
  :is(.wide, .half) td:empty { display: none; } }
"""

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: The Content-Security-Policy of the page: its own style, and nothing else.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

#: Title -> the width of a table that needs less than the whole row.
_WIDTHS = {
    "Process": "third",
    "Nodes": "third",
    "Services of type LoadBalancer": "third",
    "Queues": "half",
    "Call budget": "half",
}
_WIDE = "wide"
#: Words in the names of series that should be zero.
_BAD = ("failures", "failing")


def page(status: Status) -> str:
    return "".join(_page(status))


def _page(status: Status) -> Iterator[str]:
    yield '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(f'{status.process.role}: cloud-controller-manager')}</title>"
    yield f"<style>{STYLE}</style></head>\n<body>\n"
    yield f"<h1>Cloud controller manager: {_text(status.process.role)}</h1>\n"
    yield f'<p class="lead">{_text(headline(status))}</p>\n'
    if sentences := advice(status):
        items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
        yield f'<div class="warn" role="alert"><ul>{items}</ul></div>\n'
    yield "<main>\n"
    shown = tables(status)
    order = ("Process", "Nodes", "Services of type LoadBalancer", "Slowest and stuck", "Held deletions")
    first = [table for table in shown if table.title in order]
    for table in first:
        yield from _section(table)
    yield from _plots(status)
    for table in sorted((each for each in shown if each not in first), key=lambda each: _width(each) == _WIDE):
        yield from _section(table)
    yield "</main>\n</body></html>\n"


def _section(table: Table) -> Iterator[str]:
    yield f'<section class="{_width(table)}"><h2>{_text(table.title)}</h2>\n'
    if not table.rows:
        yield f'<p class="note">{_text(table.empty)}</p>'
    else:
        yield "<table>"
        if table.head[0] != "What":
            yield "<thead><tr>" + "".join(
                f"<th{_class(table, column)}>{_text(cell)}</th>" for column, cell in enumerate(table.head)
            )
            yield "</tr></thead>"
        yield "<tbody>\n"
        for row in table.rows:
            cells = "".join(
                f'<td{_class(table, column)} data-label="{_text(table.head[column])}">{_text(cell)}</td>'
                for column, cell in enumerate(row)
            )
            yield f"<tr>{cells}</tr>\n"
        yield "</tbody></table>"
    if table.note:
        yield f'<p class="note">{_text(table.note)}</p>'
    yield "</section>\n"


def _width(table: Table) -> str:
    """Return the width of a table. A title may end with the name of a cloud, which does not matter here."""
    return _WIDTHS.get(table.title.partition(":")[0], _WIDE)


def _plots(status: Status) -> Iterator[str]:
    plotted = [each for each in status.history if len(each.values) > 1]
    yield "<section><h2>The last hour</h2>\n"
    if not plotted:
        yield '<p class="note">This process has run for less than two samples.</p>'
    yield '<div class="plots">\n'
    for series in plotted:
        bad = any(word in series.name for word in _BAD)
        most = f"{max(series.values):.3g}"
        yield f'<figure><div class="plot" data-most="{most}">{plot(series, status.step, bad=bad)}</div>'
        yield '<div class="axis" data-from="1 h ago" data-to="now"></div>'
        yield f"<figcaption>{_text(series.name)}: {series.values[-1]:.3g} now, {most} at most</figcaption></figure>\n"
    yield "</div></section>\n"


def _class(table: Table, column: int) -> str:
    return ' class="n"' if column in table.numbers else ""


def _text(text: str) -> str:
    return html.escape(printable(shorten(text, LONGEST_CELL)), quote=True)

# SPDX-License-Identifier: Apache-2.0
"""The page, the text and the plots of a status report: their content, and that strangers' text cannot break them."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re

import msgspec
import pytest

from ccm.serving import status_page, status_plots, status_tables, status_text
from ccm.serving.status_report import Series, advice, duration, headline
from ccm.serving.statusz import chosen

from .status_reports import report, troubled, written_by

MARKUP = """"'><script>alert(1)</script><img src=//evil.example onerror=alert(2)></style></title>&amp;"""
#: The only elements that the page uses.
ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "ul", "li", "main", "section"),
    *("table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "svg", "polygon", "polyline"),
}


class Elements(html.parser.HTMLParser):
    """The elements, attributes and text that a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("content", [report(), troubled(), written_by(MARKUP)], ids=["well", "troubled", "hostile"])
def test_the_page_has_no_element_but_its_own(content):
    page = status_page.page(content)
    seen = Elements(page)
    assert set(seen.found) <= ELEMENTS and seen.open == []
    assert not {name for name in seen.attributes if name.startswith("on")}
    assert seen.attributes & {"src", "href", "action", "style"} == set()


def test_markup_of_strangers_is_shown_as_text():
    page = status_page.page(written_by(MARKUP))
    assert "<script" not in page and "<img" not in page
    assert Elements(page).text.count("<script>alert(1)</script>") >= 20


def test_control_characters_are_shown_as_escapes():
    for shown in ("\n".join(status_text.lines(written_by("a\x1b[2J\nb"))), status_page.page(written_by("a\x1b[2J"))):
        assert "\x1b" not in shown and "\\x1b[2J" in shown


def test_long_texts_are_shortened():
    long = "x" * 1_000_000
    assert len(status_page.page(written_by(long))) < 100_000
    assert len("\n".join(status_text.lines(written_by(long)))) < 50_000


def test_the_policy_allows_the_style_of_the_page_and_nothing_else():
    style = re.search(r"<style>(.*)</style>", status_page.page(report()), re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in status_page.POLICY
    assert "default-src 'none'" in status_page.POLICY and "unsafe" not in status_page.POLICY


def test_a_leader_for_which_all_is_well():
    lines = status_text.lines(report())
    assert lines[0] == "cp1_6f1c leads: it holds the Lease kube-system/cloud-controller-manager."
    assert advice(report()) == [] and not any(line.startswith("!") for line in lines)
    assert "  ready                         3" in lines and "  Everything is as it should be." in lines
    assert "  No deletion is held." in lines and "  All are closed: no group of calls fails." in lines
    assert 'class="warn"' not in status_page.page(report())


def test_each_of_several_clouds_is_named():
    alone, failing = report().clouds[0], troubled().clouds[0]
    both = [msgspec.structs.replace(alone, name="openstack"), msgspec.structs.replace(failing, name="static")]
    found = report(clouds=both)
    assert advice(found) == [
        "Cloud static has failed for 95 s: 503 from the cloud",
        "Cloud static failed 7 times in a row: calls of the group instances are not made for 15 s.",
        "Cloud static asked for a pause of all calls: 12 s are left.",
    ]
    titles = [line for line in status_text.lines(found) if line.startswith("CLOUD CALLS")]
    assert titles == ["CLOUD CALLS: openstack", "CLOUD CALLS: static"]
    page = status_page.page(found)
    assert '<section class="half"><h2>Call budget: static</h2>' in page and "Breakers: openstack" in page


def test_what_is_wrong_comes_first():
    assert advice(troubled()) == [
        "The cloud has failed for 95 s: 503 from the cloud",
        "The cloud failed 7 times in a row: calls of the group instances are not made for 15 s.",
        "The cloud asked for a pause of all calls: 12 s are left.",
        "Objects whose last attempt failed: 1.",
        "Deletions that a rule holds: 1.",
    ]
    text = "\n".join(status_text.lines(troubled()))
    assert "Node  worker-9  failing" in text and "no instance named 'worker-9'" in text
    assert "Node  worker-3  ListingDoubted  10 min  Ready Nodes are missing" in text
    assert "The first 1 of 30." in text
    assert "timeout 1, Transient 6" in text or "Transient 6, timeout 1" in text
    page = status_page.page(troubled())
    assert page.index('class="warn"') < page.index("<main>")


def test_page_and_text_have_the_same_tables():
    for found in (report(), troubled()):
        page, text = status_page.page(found), "\n".join(status_text.lines(found))
        for table in status_tables.tables(found):
            assert f"<h2>{table.title}</h2>" in page and table.title.upper() in text
            for row in table.rows:
                assert len(row) == len(table.head)


@pytest.mark.parametrize(
    ("role", "leader", "text"),
    [
        ("standby", "cp2_1", "cp1_6f1c is a standby. cp2_1 leads by the Lease kube-system/cloud-controller-manager."),
        ("standby", "", "It knows no leader"),
        ("alone", "", "cp1_6f1c works without leader election."),
    ],
)
def test_a_standby_says_where_the_leader_is(role, leader, text):
    process = msgspec.structs.replace(report().process, role=role, leader=leader)
    assert text in headline(report(process=process))


@pytest.mark.parametrize(
    ("query", "accept", "expected"),
    [
        (None, "", "html"),
        (None, "*/*", "html"),
        (None, "text/html,application/xhtml+xml;q=0.9", "html"),
        (None, "application/json", "json"),
        (None, "text/plain;q=0.5, text/html", "text"),
        ("text", "application/json", "text"),
        ("xml", "", None),
    ],
)
def test_the_format_is_chosen_by_the_request(query, accept, expected):
    assert chosen(query, accept) == expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (-1, "0 s"), (0.26, "0.3 s"), (45, "45 s"), (150, "2 min"), (7200, "2 h")]
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


def test_a_plot_has_now_at_its_right_edge():
    svg = status_plots.plot(Series("calls", [0.0, 5.0, 10.0]), 20.0)
    points = re.search(r'<polyline class="line" points="([^"]*)"', svg).group(1).split()
    across = [float(point.split(",")[0]) for point in points]
    up = [float(point.split(",")[1]) for point in points]
    assert across[-1] == status_plots.WIDTH
    assert across[1] - across[0] == pytest.approx(status_plots.WIDTH * 20 / 3600, abs=0.11)
    floor = status_plots.HEIGHT - status_plots.BOTTOM
    assert up == [floor, pytest.approx((floor + status_plots.TOP) / 2, abs=0.1), status_plots.TOP]


def test_a_terminal_browser_shows_a_plot_by_its_caption_alone():
    """Axis labels are in attributes, which only the style sheet displays."""
    text = Elements(status_page.page(report())).text
    assert "cloud calls per minute: " in text and "at most" in text
    assert "1 h ago" not in text and "1 h ago" in status_page.page(report())


def test_a_plot_of_zeros_is_a_flat_line():
    svg = status_plots.plot(Series("failing", [0.0, 0.0]), 20.0, bad=True)
    assert 'class="bad"' in svg and "nan" not in svg and "inf" not in svg


def test_the_text_plots_the_largest_value_of_each_interval():
    values = [0.0] * 180
    values[100] = 8.0
    shown = status_text.plot(Series("calls", values))
    assert len(shown) == status_text.PLOT and shown.count("█") == 1 and shown.index("█") == 33

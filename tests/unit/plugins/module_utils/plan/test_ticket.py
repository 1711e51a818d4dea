# SPDX-License-Identifier: Apache-2.0
"""The report for a change ticket says what changes, why, at which risk, who approved, and what happened. Text from hosts stays text."""

from __future__ import annotations

import html.parser
from typing import Any

import markdown_it
import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import ticket

EVIL = "<script>alert(1)</script>\n\u202e| `x` [a](javascript:b) ![i](//evil) &amp; \"q\" '# h"
REQUEST = {"change": "CHG-7", "reason": "in-tree providers are gone", "approved_by": "Alice", "planned_at": "20261123T090000Z"}


def edit(host: str, **more: Any) -> dict[str, Any]:
    return {"host": host, "component": "kubelet", "file": "/f", "flag": "--a", "now": None, "then": "", "why": "because", "risk": "restarts", **more}


def report(*edits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"go": True, "edits": list(edits), "problems": [], "warnings": [], "notes": [], **more}


def outcome(**more: Any) -> dict[str, Any]:
    hosts = [{"host": f"w-{n}", "state": "changed", "detail": "journal: copy in Secret x"} for n in range(6)]
    return {"ok": True, "seconds": 61.4, "hosts": hosts, "failed": [], "lines": [], "checks": [], **more}


@pytest.mark.parametrize(("path", "form"), [
    ("a.md", "markdown"), ("A.MARKDOWN", "markdown"), ("a.html", "html"), ("a.htm", "html"), ("a.json", "json"), ("a", "json"), ("html", "json"),
])
def test_the_suffix_selects_the_form(path: str, form: str) -> None:
    assert ticket.form(path) == form


def test_a_ticket_has_what_why_risk_who_and_what_happened() -> None:
    edits = [edit(f"w-{n}") for n in range(6)] + [edit("cp", then=None, now="aws", why="other")]
    text = ticket.markdown(ticket.parts("Migration", report(*edits), REQUEST, outcome(checks=[{"name": "nodes", "ok": False, "detail": "d"}])))
    for said in ("# Migration", "is complete", "CHG-7", "Alice", "7 edit(s) on 7 host(s)", "## Why", "in-tree providers are gone",
                 "- because\n- other\n", "## Risk\n\n- restarts\n", "The run took 61 s", "| nodes | failed | d |"):
        assert said in text, said
    assert "| 6 hosts: w-0...w-5 | kubelet | /f | \\--a | \\- | '' |" in text
    assert "| cp | kubelet | /f | \\--a | aws | (removed) |" in text
    assert "| 6 hosts: w-0...w-5 | changed |  |" in text


@pytest.mark.parametrize(("go", "done", "state"), [
    (True, {}, "can start (GO)"), (False, {}, "cannot start (NO-GO)"), (True, outcome(ok=False), "is not complete"), (True, outcome(), "is complete"),
])
def test_the_state_of_the_run(go: bool, done: dict[str, Any], state: str) -> None:
    content = ticket.parts("t", report(go=go), REQUEST, done)
    assert content[1][1][1] == ["State", f"The run {state}."]
    assert (("text", "Nothing was changed yet.") in content) is not bool(done)


@pytest.mark.parametrize(("ok", "state"), [(True, "All checks passed."), (False, "Checks failed.")])
def test_checks_alone_have_no_plan(ok: bool, state: str) -> None:
    checks = [{"name": "nodes", "ok": ok, "detail": "d"}]
    content = ticket.parts("t", report(notes=["n"]), REQUEST, outcome(ok=ok, hosts=[], checks=checks))
    assert [value for kind, value in content if kind == "heading"] == ["t", "Notes", "Checks"]
    assert content[1][1][1] == ["State", state] and content[-1][1][1] == ["nodes", "ok" if ok else "failed", "d"]


@pytest.mark.parametrize("text", [
    "plain words, 1.5 GB (two); a-b: c! {d} + e = f", "*a* b*c", "_a_ b __c__ d_e", "[a](b) ![c](d) [e]: f", "`a` \\ | ~~b~~", "- a", "+ a", "* a",
    "# a", "1. a", "12) a", "1234. a", "= a", "> a", "<b>a</b> &amp; &#35;", "https://example.com/a_b a@example.com www.example.com", "a <https://b>",
])
def test_markdown_shows_a_text_as_it_is(text: str) -> None:
    """A parser of CommonMark, with tables and deleted text, reads the text in a list, a paragraph and a table."""
    parser = markdown_it.MarkdownIt().enable(["table", "strikethrough"])
    shown = [token for token in parser.parse(ticket.markdown([("heading", "t"), ("list", [text]), ("text", text), ("table", [["a"], [text]])]))
             if token.type == "inline"]
    assert [token.content and "".join(each.content for each in token.children or []) for token in shown] == ["t", text, text, "a", text]
    assert {each.type for token in shown for each in token.children or []} <= {"text", "text_special"}


@pytest.mark.parametrize(("run_id", "shown"), [
    ("20261123T090000Z", "2026-11-23 09:00:00 UTC"), ("", "-"), ("yesterday", "yesterday"), ("20261123T090000Z\n", "20261123T090000Z\n"),
])
def test_the_time_of_the_plan_is_for_people(run_id: str, shown: str) -> None:
    assert ticket.parts("t", report(), {**REQUEST, "planned_at": run_id}, {})[1][1][3] == ["Planned at", shown]


def test_what_is_not_given_is_said() -> None:
    page = ticket.page(ticket.parts("t", report(), dict.fromkeys(REQUEST, ""), {}))
    assert "Nobody is named (approved_by of ccm_install_report_details)." in page and "The plan has no edit, so there is no risk." in page


def test_problems_warnings_and_notes_have_headings_only_if_there_are_any() -> None:
    kinds = [value for kind, value in ticket.parts("t", report(problems=["p"], notes=["n"]), REQUEST, {}) if kind == "heading"]
    assert kinds == ["t", "What", "Why", "Risk", "Problems", "Notes", "What happened"]


class Tags(html.parser.HTMLParser):
    """The tags, the names of attributes, and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, unused in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def everywhere() -> list[ticket.Part]:
    """Return a report that has markup from outside in each place."""
    evil = edit(**dict.fromkeys(("host", "component", "file", "flag", "now", "then", "why", "risk"), EVIL))
    hosts = [{"host": EVIL, "state": EVIL, "detail": EVIL}]
    done = outcome(hosts=hosts, lines=[EVIL], checks=[{"name": EVIL, "ok": True, "detail": EVIL}])
    lists = {"problems": [EVIL], "warnings": [EVIL], "notes": [EVIL]}
    return ticket.parts(EVIL, report(evil, **lists), dict.fromkeys(REQUEST, EVIL), done)


def test_html_has_no_markup_but_its_own() -> None:
    text = ticket.page(everywhere())
    page = Tags(text)
    assert page.tags == {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li", "table", "tr", "th", "td"}
    assert page.attributes == {"lang", "charset", "http-equiv", "content", "name"}
    assert text.count("alert(1)") == 23 and "<script" not in text and "\u202e" not in text
    assert "default-src 'none'" in text


def test_markdown_shows_the_text_of_strangers_as_text() -> None:
    text = ticket.markdown(everywhere())
    assert "<" not in text and "[a](" not in text and "![" not in text and "\u202e" not in text
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in table} == {3, 4, 7}


def test_a_text_has_a_limit() -> None:
    assert len(ticket.page([("heading", "x" * 9000)])) < 2 * ticket.LONGEST + 2000

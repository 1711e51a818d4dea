# SPDX-License-Identifier: Apache-2.0
"""Finds the commands that pages show, and checks commands.yml, which lists what runs each of them.

This module only reads pages and the text of tests; it runs nothing. Tests take their commands from here, so that a page
and its test cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("commands.yml")
TESTING = ROOT / "docs" / "testing.md"
MARK = "<!-- Written by `make docs` from tools/docs/commands.yml -->\n"
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "runtime/**/README.md", "roles/*/README.md")
#: The languages of fenced blocks with commands. A block of `console` may also show what the commands print.
SHELLS = ("bash", "console", "sh", "shell")

_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_HERE = re.compile(r"<<-?\s*'?(\w+)'?")


def pages() -> list[str]:
    """Return the paths of all pages, from the checkout's root."""
    return sorted({str(path.relative_to(ROOT)) for pattern in PAGES for path in ROOT.glob(pattern)})


def blocks(text: str) -> Iterator[list[str]]:
    """Yield the commands of each shell block of a page, without the comments after them.

    A backslash at the end of a line and a here-document continue a command. In a block with lines that start with `$ `,
    only these are commands.
    """
    for indent, language, body in _FENCE.findall(text):
        if language not in SHELLS:
            continue
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield list(_joined(lines))


def _joined(lines: list[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        command = re.sub(r"\s+# .*$", "", line)
        while command.endswith("\\"):
            command += "\n" + next(rest)
        if end := _HERE.search(command):
            for more in rest:
                command += "\n" + more
                if more == end[1]:
                    break
        if command.strip() and not command.startswith("#"):
            yield command


def commands(page: str) -> list[str]:
    """Return all commands of a page, in their order."""
    return [command for block in blocks((ROOT / page).read_text()) for command in block]


def command(page: str, beginning: str) -> str:
    """Return the only command of a page that begins like this. Raises LookupError if there is none, or several."""
    found = [command for command in commands(page) if command.startswith(beginning)]
    if len(found) != 1:
        raise LookupError(f"{page} has {len(found)} commands that begin with {beginning!r}")
    return found[0]


@dataclass(frozen=True)
class Entry:
    """Commands of a page, by their beginnings, with the file or folder of the test that runs them, or why none does."""

    page: str
    beginnings: tuple[str, ...]
    by: str = ""
    #: A text that the test contains if it runs the commands; by default the path of the page.
    says: str = ""
    excused: str = ""


@cache
def entries() -> list[Entry]:
    """Read the list. Raises TypeError for an unknown key."""
    listed = yaml.safe_load(LIST.read_text())
    return [Entry(page, tuple(row.pop("commands")), **row) for page, rows in listed.items() for row in map(dict, rows)]


def fitting(command: str, mine: list[Entry]) -> list[Entry]:
    """Return the entries with the longest beginning that fits the command: exactly one, unless the list is wrong."""
    fits = [(len(text), entry) for entry in mine for text in entry.beginnings if command.startswith(text)]
    return [entry for length, entry in fits if length == max(each for each, _ in fits)]


def problems() -> Iterator[str]:
    """Yield a sentence for each fault of the list."""
    known = {page: commands(page) for page in pages()}
    for page in {entry.page for entry in entries()} - set(known):
        yield f"{page}: no such page"
    for page, shown in known.items():
        mine = [entry for entry in entries() if entry.page == page]
        for command in shown:
            if len(found := fitting(command, mine)) != 1:
                yield f"{page}: {len(found)} entries for `{command}`; there must be one"
        for entry in mine:
            for beginning in entry.beginnings:
                if not any(command.startswith(beginning) for command in shown):
                    yield f"{page}: no command begins with `{beginning}`"
    for entry in entries():
        yield from _of_entry(entry)


def _of_entry(entry: Entry) -> Iterator[str]:
    if bool(entry.by) == bool(entry.excused):
        yield f"{entry.page}, {entry.beginnings}: give either `by` or `excused`"
    if entry.by:
        place = ROOT / entry.by
        if not place.exists():
            yield f"{entry.page}: {entry.by} does not exist"
        elif (says := entry.says or entry.page) not in _text(place):
            yield f"{entry.page}: {entry.by} does not contain {says!r}, so it cannot run {entry.beginnings}"


@cache
def _text(place: Path) -> str:
    """Return the text of a test: of its file, or of all files of a molecule scenario and those that scenarios share."""
    folders = [place, ROOT / "molecule" / "common"] if place.is_relative_to(ROOT / "molecule") else [place]
    files = [file for each in folders for file in ([each] if each.is_file() else sorted(each.rglob("*.*")))]
    return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


#: Program that is neither a pytest test nor a molecule scenario -> the command that starts it.
STARTED_BY = {
    "tools/packaging/ee.py": "`make ee`",
    "tools/packaging/newcomer.py": "`make newcomer`",
    "tools/packaging/release.py": "`make release-check`",
}


def _runner(by: str) -> str:
    if by in STARTED_BY:
        return STARTED_BY[by]
    if by.startswith("molecule/"):
        return f"`{by}`"
    return f"[`{'/'.join(Path(by).parts[-2:])}`](../{by})"


def table() -> str:
    """Return a Markdown table of the tests that run the commands of each page."""
    rows = ["| Page | Run | By | Not run, and why |", "|---|---|---|---|"]
    for page in pages():
        mine = [entry for entry in entries() if entry.page == page]
        if not (shown := commands(page)):
            continue
        ran = sum(all(entry.by for entry in fitting(command, mine)) for command in shown)
        by = ", ".join(dict.fromkeys(_runner(entry.by) for entry in mine if entry.by)) or "-"
        excused = [f"{', '.join(f'`{text.strip()}`' for text in e.beginnings)}: {e.excused}" for e in mine if e.excused]
        path = ROOT / page
        link = f"../{page}" if not page.startswith("docs/") else str(path.relative_to(ROOT / "docs"))
        title = re.search(r"^# (.*)$", path.read_text(), re.MULTILINE)
        name = "README" if page == "README.md" or title is None else title[1].replace("`", "")
        rows.append(f"| [{name}]({link}) | {ran} of {len(shown)} | {by} | {' '.join(excused) or '-'} |")
    return "\n".join(rows) + "\n"


def filled(text: str) -> str:
    """Return docs/testing.md with the current table after its comment. Raises ValueError without the comment."""
    if MARK not in text:
        raise ValueError(f"{TESTING}: there is no line {MARK!r}")
    return re.sub(re.escape(MARK) + r"\n(\|.*\n)*", lambda _: f"{MARK}\n{table()}", text)


def main() -> None:
    TESTING.write_text(filled(TESTING.read_text()))


if __name__ == "__main__":
    main()

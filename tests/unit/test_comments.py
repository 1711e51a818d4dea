# SPDX-License-Identifier: Apache-2.0
"""Comments and docstrings name only what a reader can find: documents of this tree, behaviours of the parity page."""

from __future__ import annotations

import functools
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
ROOMS = ("runtime", "plugins", "roles", "tests", "tools", "suite", "molecule", "extensions")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
#: "reference 7.6", "section 5.3", "(4.4)": chapters of documents that are not in this tree. Chapters of an RFC may be
#: named.
CHAPTER = re.compile(
    r"(?<!RFC )\b(?:reference|[Ss]ections?) \(?(?:[A-Z]?[0-9])|\bbehaviour reference\b|\([1-9]\.[0-9](?:\.[0-9])?\)"
)
#: Documents, from the root of the tree.
DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.md\b")
#: IDs of upstream's behaviours: of its controllers, of the application, and its weaknesses.
BEHAVIOUR = re.compile(r"(?<![\w#./])[NATLSRCW][1-9][0-9]{0,2}(?![\w./])")


@functools.cache
def comments(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of each comment, and of each string that is a statement."""
    found = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        alone = before in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and alone):
            found.append((token.start[0], token.string))
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
    return found


def named(pattern: re.Pattern[str], sources: list[Path] = SOURCES) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each match of `pattern` in a comment."""
    for path in sources:
        if not pattern.search(path.read_text()):
            continue  # most files have no match at all, and need not be tokenized
        for line, text in comments(path):
            for match in pattern.finditer(text):
                yield f"{path.relative_to(ROOT)}:{line}", match[0]


def test_no_chapter_of_a_document_that_is_not_here():
    mine = f"tests/unit/{Path(__file__).name}:"
    assert [found for found in named(CHAPTER) if not found[0].startswith(mine)] == []


def test_documents_that_are_named_exist():
    found = list(named(DOCUMENT))
    assert len(found) > 10
    assert [(where, name) for where, name in found if not (ROOT / name).is_file()] == []


def test_behaviours_that_the_runtime_names_are_on_the_parity_page():
    known = {
        id_ for path in (ROOT / "tools/parity/behaviours").glob("*.yml") for id_ in yaml.safe_load(path.read_text())
    }
    rooms = [path for path in SOURCES if path.is_relative_to(ROOT / "runtime/ccm/controllers")]
    found = list(named(BEHAVIOUR, rooms))
    assert len(found) > 10
    assert [(where, id_) for where, id_ in found if id_ not in known] == []


@pytest.mark.parametrize(
    ("text", "chapters"),
    [
        ('"""Leader migration (reference 7.6): why."""', 1),
        ("# as upstream (4.4): not going", 1),
        ("# Rules: sections 2.2-2.5", 1),
        ("# reference W11", 1),
        ("# RFC section 5 says so; reference material; it took (0.36) s", 0),
        ("x = 'reference 7.6'", 0),
    ],
)
def test_what_counts_as_a_chapter(tmp_path: Path, text: str, chapters: int):
    file = tmp_path / "module.py"
    file.write_text(text + "\n")
    assert sum(len(CHAPTER.findall(comment)) for _, comment in comments(file)) == chapters

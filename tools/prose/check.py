# SPDX-License-Identifier: Apache-2.0
"""Checks the project's words: python tools/prose/check.py [--all] [FILE ...]

Reads Markdown without its code, the texts of YAML that people read, and Python's comments, docstrings and messages.
Prints `file:line: "anew": write "again"`. A line with the comment `prose: keep` is not checked.
"""

from __future__ import annotations

import argparse
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TERMS = Path(__file__).with_name("terms.yml")
#: The comment of a line that uses a word on purpose.
KEEP = "prose: keep"
#: The keys of YAML whose values people read. A changelog fragment is read whole.
_KEYS = {
    "body", "changelog", "description", "details", "fail_msg", "label", "msg", "name", "notes", "placeholder",
    "requirements", "short_description", "success_msg", "summary", "title",
}  # fmt: skip
#: What is not prose in a text: code, targets of links, values in f-strings and templates, Ansible's markup.
_CODE = re.compile(r"``.+?``|`[^`]*`|\]\([^)]*\)|https?://\S+|\{\{.*?\}\}|\{[^{}]*\}|\b[BCEILMOPRUV]+\([^)]*\)")
#: Python's tokens that are text: one for each string up to 3.11, one for each part of an f-string from 3.12 on.
_TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
Lines = Iterator[tuple[int, str]]


@functools.cache
def terms() -> list[tuple[re.Pattern[str], str]]:
    """Return each pattern, and what to write instead."""
    listed = yaml.safe_load(TERMS.read_text())["terms"]
    return [(re.compile(rf"\b(?:{term['match']})\b", re.IGNORECASE), term["write"]) for term in listed]


def markdown(text: str) -> Lines:
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        elif not fence:
            yield number, line


def python(text: str) -> Lines:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (SyntaxError, tokenize.TokenError):
        return
    for token in tokens:
        # A text of one word is a key or a name.
        if token.type == tokenize.COMMENT or (token.type in _TEXTS and " " in token.string.strip()):
            yield from enumerate(token.string.splitlines(), token.start[0])


def yaml_text(text: str, whole: bool = False) -> Lines:
    lines = text.splitlines()
    read = {number for number, line in enumerate(lines) if re.match(r"\s*#", line)}
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError:
        documents = []  # a template of YAML: its comments are read
    for document in documents:
        for node in _people_read(document, whole):
            last = node.end_mark.line + (1 if node.end_mark.column else 0)
            read |= set(range(node.start_mark.line, max(last, node.start_mark.line + 1)))
    yield from ((number + 1, lines[number]) for number in sorted(read) if number < len(lines))


def _people_read(node: Any, read: bool) -> Iterator[yaml.ScalarNode]:
    """Yield the texts below a node that people read: all if `read`, otherwise those below one of `_KEYS`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _people_read(value, read or key.value in _KEYS)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _people_read(value, read)
    elif isinstance(node, yaml.ScalarNode) and read and " " in node.value:
        yield node


def problems(path: str, text: str) -> Iterator[str]:
    kind = Path(path).suffix
    if kind == ".md":
        lines = markdown(text)
    elif kind == ".py":
        lines = python(text)
    elif kind in (".yml", ".yaml"):
        lines = yaml_text(text, whole=path.startswith("changelogs/"))
    else:
        return
    kept = {number for number, line in enumerate(text.splitlines(), 1) if KEEP in line}
    for number, line in lines:
        prose = _CODE.sub(" ", line)
        for pattern, write in terms():
            for match in pattern.finditer(prose):
                if number not in kept:
                    yield f'{path}:{number}: "{match[0]}": write "{write}"'


def files(*globs: str) -> list[str]:
    """Return the existing files that git tracks or does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    command += [f":(glob){each}" for each in globs]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [path for path in listed if path and (ROOT / path).is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(description="Report words that this project does not use.")
    parser.add_argument("--all", action="store_true", help="read every file, not only those on the list of terms.yml")
    parser.add_argument("files", nargs="*", metavar="FILE", help="read only these, of those on the list")
    asked = parser.parse_args()
    chosen = files("**") if asked.all else files(*yaml.safe_load(TERMS.read_text())["finished"])
    found = [
        problem
        for path in chosen
        if not asked.files or path in asked.files
        for problem in problems(path, (ROOT / path).read_text(errors="replace"))
    ]
    print(*found, sep="\n", end="\n" if found else "")
    if found:
        print(f"{len(found)} words: see CONTRIBUTING.md, Words; a line that must quote one has a comment `{KEEP}`")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

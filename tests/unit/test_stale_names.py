# SPDX-License-Identifier: Apache-2.0
"""Names in backticks, or in C() in the collection, exist if comments and docstrings use them.

Only names with an underscore or a dot are checked, because other words are often plain text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.unit.test_comments import ROOT, comments
from tools.prose import check

#: Names of other projects.
EXTERNAL = {
    "api.RetryError",  # Kubernetes
    "CommonNameUserConversion",  # Kubernetes
    "cunescape_one",  # systemd
    "get_units_ansible_python_path",  # Ansible
    "parse_env_file_internal",  # systemd
    "perftools",  # pprof
    "replace_env",  # systemd
    "unichar_is_valid",  # systemd
}
WORD = re.compile(r"[A-Za-z_]\w*")
_PATH = rf"{WORD.pattern}(?:\.{WORD.pattern})*"
NAME = re.compile(rf"`({_PATH})(?:\([^`\n]*\))?`|\bC\(({_PATH})\)")


def stale(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (part, name) for each marked name in Python files that has a part which `texts` contain nowhere outside of
    marks. Marks are backticks and C().

    `texts`: path -> text. Only the first such part of a name is yielded. If `texts` has a module or package MODULE, the
    part `Class` of MODULE.Class must occur in its files.
    """
    words: set[str] = set()
    named: dict[str, None] = {}
    homes: dict[str, list[str]] = {}
    for path, text in texts.items():
        words.update(WORD.findall(path))
        code = text
        if path.endswith(".py"):
            named |= dict.fromkeys(found[1] or found[2] for found in NAME.finditer(text))
            code = NAME.sub("", text)
            for home in {Path(path).stem, Path(path).parent.name}:
                homes.setdefault(home, []).append(code)
        words.update(WORD.findall(code))
    for name in named:
        parts = name.split(".")
        if not parts[1:] and "_" not in name:
            continue
        for home, part in zip(["", *parts], parts, strict=False):
            is_elsewhere = part[0].isupper() and home in homes
            if part not in words:
                yield part, name
                break
            elif is_elsewhere and not any(re.search(rf"\b{part}\b", code) for code in homes[home]):
                yield f"{home}.{part}", name


@functools.cache
def tree() -> dict[str, str]:
    """Return each text file of the repository by its path, without this one."""
    texts = {}
    for path in check.files("**"):
        if ROOT / path == Path(__file__):
            continue
        try:
            texts[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return texts


@functools.cache
def stale_here() -> list[tuple[str, str]]:
    return list(stale(tree()))


def places(name: str) -> list[str]:
    """Return FILE:LINE of the start of each comment or docstring that contains the name."""
    marked = [f"`{name}`", f"`{name}(", f"C({name})"]
    return [
        f"{path}:{line}"
        for path, text in tree().items()
        if path.endswith(".py") and any(mark in text for mark in marked)
        for line, comment in comments(ROOT / path)
        if any(mark in comment for mark in marked)
    ]


def test_names_in_comments_exist() -> None:
    names = [name for part, name in stale_here() if part not in EXTERNAL]
    assert [f"{place}: {name}" for name in names for place in places(name)] == []


def test_external_names_are_needed() -> None:
    assert EXTERNAL - {part for part, _ in stale_here()} == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# As `old_name` does.", ["old_name"]),
        ("# As C(old_name) does.", ["old_name"]),
        ("# As `old_name(1)` does.", ["old_name"]),
        ("# As `new_name`, `key_of_yaml`, `session.Session` and `package.Session` do; old_name.", []),
        ("# As `session.Api` does.", ["session.Api"]),
        ("# As `session.gone` does.", ["gone"]),
        ("# As `reviews` does.", []),
    ],
)
def test_what_is_stale(text: str, expected: list[str]) -> None:
    texts = {
        "package/session.py": "class Session: new_name = 1",
        "package/api/calls.py": "class Api: pass",
        "a.yml": "key_of_yaml: 1",
        "b.py": text.replace("; old_name", ""),
    }
    assert [part for part, _ in stale(texts)] == expected

# SPDX-License-Identifier: Apache-2.0
"""Molecule scenarios look only for sentences that the playbooks and the runtime print.

Without this test, a sentence that nothing prints any more would be noticed only when its scenario runs on a cluster,
before a release.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
_QUOTED = r"""(?:'([^'\n]*)'|"([^"\n]*)")"""
_OUTPUT = r"\w+(?:\.results\[\d\])?\.(?:stdout|stderr|msg)\b"
#: `x is search('...')`, and `'...' in x.stdout`.
_LOOKED_FOR = re.compile(rf"search\(\s*{_QUOTED}|{_QUOTED}\s+(?:not )?in {_OUTPUT}")
#: Wildcards of a regular expression, and numbers, which differ in each run.
_OPEN = re.compile(r"""\.\*|\\.|\[[^]]*\]|[.()|?*+{}^$]|\d+""")
#: Placeholders that a program or a template fills in, and the character that replaces them here.
_PLACE, _FILLED = re.compile(r"\{\{.*?\}\}|\{[^{}\s]*\}|%[sd]", re.DOTALL), "\0"
#: Pieces that a program composes of two texts, or that are not the project's.
COMPOSED = {
    "error checking if node",
    "journal: copy in Secret kube-system/outoftree-ccm-journal-",
    "because the journal on the host is missing",
    "; ServiceAccount kube-system/csr-approver",
    "## Replace cloud-provider-openstack",
    "takeover, DaemonSet kube-system/",
    "takeover, Deployment kube-system/",
}


def looked_for() -> set[tuple[str, str]]:
    """Return (file, piece) of each piece of a sentence that a scenario looks for, of three words or more."""
    return {
        (str(path.relative_to(REPOSITORY)), " ".join(piece.split()))
        for path in (REPOSITORY / "molecule").glob("**/*.yml")
        for found in _LOOKED_FOR.finditer(path.read_text())
        for piece in _OPEN.split(next(filter(None, found.groups()), ""))
        if len(piece.split()) >= 3
    }


def _texts() -> Iterator[str]:
    for folder in ("plugins", "runtime/ccm", "runtime/simcloud", "tools/bed"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            yield from map(_text, ast.walk(ast.parse(path.read_text())))
    for folder in ("roles", "playbooks"):
        for path in (REPOSITORY / folder).rglob("*"):
            if path.suffix in (".yml", ".j2", ".sh"):
                yield path.read_text()


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else _FILLED for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@functools.cache
def printed() -> tuple[Sequence[str], Mapping[str, Sequence[int]]]:
    """Return the words of all texts in programs and playbooks, and the positions of each word."""
    words = [word for text in _texts() for word in _PLACE.sub(_FILLED, text).split()]
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[_FILLED if _FILLED in word else word].append(place)
    return words, places


def is_printed(piece: str) -> bool:
    """Return whether a text has these words. The first and the last word may be cut. A third of the words, or one, may
be filled in by the program."""
    first, *inner, last = piece.split()
    words, places = printed()
    for place in (*places.get(inner[0], ()), *places.get(_FILLED, ())):
        there = words[max(place - 1, 0) : place + len(inner) + 1]
        if len(there) == len(inner) + 2:
            alike = (there[0].endswith(first), *map(str.__eq__, there[1:-1], inner), there[-1].startswith(last))
            other = [word for word, same in zip(there, alike, strict=True) if not same]
            if len(other) <= max(1, len(there) // 3) and all(_FILLED in word for word in other):
                return True
    return False


@pytest.mark.parametrize(("where", "piece"), sorted(looked_for()))
def test_what_a_scenario_looks_for_is_printed(where: str, piece: str) -> None:
    assert is_printed(piece) != (piece in COMPOSED), f"{where} looks for {piece!r}, which nothing prints"


def test_a_sentence_of_yesterday_is_noticed() -> None:
    assert not is_printed("it is not this collection")
    assert is_printed("the controller is not this collection")
    assert is_printed("rolls out cloud-provider-openstack"), "the name is filled in"


@functools.cache
def _announced() -> frozenset[str]:
    """Return the names of all tasks that Ansible announces when it runs a playbook. It does not announce imports."""
    entries = [
        entry
        for folder in ("roles", "playbooks")
        for path in (REPOSITORY / folder).rglob("*.yml")
        for entry in yaml.safe_load(path.read_text()) or []
        if isinstance(entry, dict)
    ]
    names = set()
    for entry in entries:
        for key in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            entries.extend(entry.get(key, ()))
        if not {"hosts", "block"} & entry.keys() and not any("import_" in key for key in entry):
            names.add(str(entry.get("name", "")))
    return frozenset(names)


def _stages() -> list[dict[str, object]]:
    variables = yaml.safe_load((REPOSITORY / "molecule/outage/inventory/scenario.yml").read_text())["all"]["vars"]
    return [stage for name, stages in variables.items() if name.endswith("_stages") for stage in stages]


@pytest.mark.parametrize("stage", _stages(), ids=lambda stage: stage["task"])
def test_a_run_is_killed_at_a_task_that_exists(stage: dict[str, object]) -> None:
    # interrupt.py compares a part of the line of the task.
    assert stage.keys() <= {"task", "after", "seconds", "how"}, "quote a name with a comma or a colon"
    assert any(str(stage["task"]) in name for name in _announced()), f"no playbook announces {stage['task']!r}"


_TASK_LINE = re.compile(r"^TASK \[outoftree\.ccm\.\w+ : (.*?)\]", re.MULTILINE)


def test_outputs_in_documentation_show_tasks_that_exist() -> None:
    pages = {path.name: _TASK_LINE.findall(path.read_text()) for path in (REPOSITORY / "docs").rglob("*.md")}
    assert any(pages.values())
    assert not {(page, name) for page, names in pages.items() for name in names if name not in _announced()}

# SPDX-License-Identifier: Apache-2.0
"""Compares the runtime with upstream by the IDs in its tests: `make parity` writes docs/reference/parity.md.

`behaviours/*.yml` say what upstream does, one sentence for each ID. A test shows a behaviour if its name or parameter
has the ID: `test_N22_...`, `[N5-N15-zoned]`. `notes/*.yml` say where the runtime differs on purpose, which behaviours
do not apply, and how each weakness (W) was removed:

    N12: {kind: different, why: one sentence}
    N33: {kind: not-applicable, why: one sentence}
    W4: {kind: removed, how: one sentence, evidence: name of a test, of a metric, or the path of a file}   # or: kept

This program runs no tests. What the page says is true only if the tests pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "reference" / "parity.md"
#: The table of cases from other projects' tests, which `make peers-tests` writes.
PEERS = ROOT / "tests/peers/results.md"
#: The folders of the runtime's tests. Tests of the collection have no IDs.
SUITES = ("tests/unit/runtime", "tests/integration/runtime", "tests/integration/engine", "tests/integration/faults")
WEAKNESSES = "weaknesses"
#: File of behaviours -> title of its section, in the page's order.
SECTIONS = {
    "nodes": "Node controller",
    "addresses": "Addresses and taints",
    "lifecycle": "Node lifecycle controller",
    "services": "Service controller",
    "routes": "Route controller",
    "application": "Application",
    WEAKNESSES: "Weaknesses of upstream",
}
SAME, DIFFERENT, NOT_APPLICABLE, MISSING = "same", "different", "not applicable", "**missing**"
#: Kind of a note -> the key of its sentence.
BEHAVIOUR_KINDS = {"different": "why", "not-applicable": "why"}
WEAKNESS_KINDS = {"removed": "how", "kept": "how"}
_ID = re.compile(r"(?<![A-Za-z0-9])[NALSRCTW]\d+(?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Note:
    kind: str
    text: str
    evidence: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, order=True)
class Test:
    """A test function with all its parameters."""

    file: str
    function: str


@dataclass(frozen=True, slots=True)
class Parity:
    #: Section -> ID -> upstream's behaviour.
    sections: Mapping[str, Mapping[str, str]]
    notes: Mapping[str, Note]
    #: ID -> the tests with this ID in their name or parameters.
    shown_by: Mapping[str, tuple[Test, ...]]
    #: Name of each test function, with or without an ID -> a file with that function.
    functions: Mapping[str, str]

    def ids(self) -> list[str]:
        return [id_ for behaviours in self.sections.values() for id_ in behaviours]

    def status(self, id_: str) -> str:
        note = self.notes.get(id_)
        if note is not None and note.kind == "not-applicable":
            return NOT_APPLICABLE
        if id_.startswith("W"):
            return MISSING if note is None else note.kind
        if id_ not in self.shown_by:
            return MISSING
        return SAME if note is None else note.kind


class ParityError(Exception):
    """A file of behaviours or notes is wrong, or no tests were found."""


def ids_of(node_id: str) -> list[str]:
    """Return the IDs in a test's name and parameters. The file's name does not count."""
    return _ID.findall(node_id.partition("::")[2])


def collect_node_ids(collected: Sequence[str] = ()) -> list[str]:
    """Return the node IDs of all tests of the runtime. `collected`: the node IDs of whole files that pytest has already
    collected. A suite whose files all occur there is not collected again, because that takes fifteen seconds of CPU
    time."""
    files = {node_id.partition("::")[0] for node_id in collected}
    suites = [suite for suite in SUITES if not files >= set(_files(suite))]
    known = [node_id for suite in SUITES if suite not in suites for node_id in collected if node_id.startswith(suite)]
    if not suites:
        return known
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *suites]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ParityError(f"the tests cannot be collected:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    return known + [line for line in done.stdout.splitlines() if "::" in line]


def _files(suite: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in (ROOT / suite).rglob("test_*.py")]


def load(node_ids: Iterable[str], *, here: Path = HERE) -> Parity:
    sections = {name: _mapping(here / "behaviours" / f"{name}.yml") for name in SECTIONS}
    notes: dict[str, Note] = {}
    for path in sorted((here / "notes").glob("*.yml")):
        for id_, document in _mapping(path).items():
            if id_ in notes:
                raise ParityError(f"{path.name}: {id_} has a note in {notes[id_].source} already")
            notes[id_] = _note(id_, document, path.name)
    shown_by: dict[str, dict[Test, None]] = defaultdict(dict)
    functions: dict[str, str] = {}
    for node_id in node_ids:
        file, _, name = node_id.partition("::")
        function = name.partition("[")[0]
        functions.setdefault(function.rpartition("::")[2], file)
        for id_ in ids_of(node_id):
            shown_by[id_][Test(file, function)] = None
    return Parity(sections, notes, {id_: tuple(tests) for id_, tests in shown_by.items()}, functions)


def _mapping(path: Path) -> dict:
    root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise ParityError(f"{path.name}: not a mapping of IDs")
    ids = [key.value for key, _ in root.value] if root is not None else []
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise ParityError(f"{path.name}: more than one entry for {', '.join(twice)}")
    return yaml.safe_load(path.read_text()) or {}


def _note(id_: str, document: object, source: str) -> Note:
    kinds = WEAKNESS_KINDS if id_.startswith("W") else BEHAVIOUR_KINDS
    if not isinstance(document, dict) or document.get("kind") not in kinds:
        raise ParityError(f"{source}: {id_}: kind must be one of {', '.join(kinds)}")
    key = kinds[document["kind"]]
    if not isinstance(text := document.get(key), str) or not text.strip():
        raise ParityError(f"{source}: {id_}: {key!r} must be a sentence")
    if unknown := document.keys() - {"kind", key, "evidence"}:
        raise ParityError(
            f"{source}: {id_}: unknown {', '.join(sorted(map(str, unknown)))!r} (a sentence with a comma needs quotes)"
        )
    evidence = document.get("evidence") or []
    evidence = [evidence] if isinstance(evidence, str) else evidence
    return Note(document["kind"], " ".join(text.split()), tuple(map(str, evidence)), source)


def missing(parity: Parity) -> list[str]:
    """Return behaviours that have neither a test nor a note that says why, and weaknesses without a note."""
    return [id_ for id_ in parity.ids() if parity.status(id_) == MISSING]


def contradictions(parity: Parity) -> list[str]:
    """Return a sentence for each note or test that contradicts the behaviours or another one, and for each evidence
    that is missing or does not exist."""
    known = set(parity.ids())
    found = [f"{note.source}: {id_} is no behaviour" for id_, note in parity.notes.items() if id_ not in known]
    for id_, tests in parity.shown_by.items():
        if id_ not in known:
            found.append(f"{_where(tests)}: {id_} is no behaviour")
        elif parity.status(id_) == NOT_APPLICABLE:
            found.append(f"{parity.notes[id_].source}: {id_} does not apply, but {_where(tests)} carries it")
    for id_, note in parity.notes.items():
        for evidence in note.evidence:
            if not is_evidence(evidence, parity.functions):
                found.append(f"{note.source}: {id_}: {evidence!r} is neither a test, a metric nor a file")
        if note.kind == "removed" and not note.evidence and id_ not in parity.shown_by:
            found.append(
                f"{note.source}: {id_} is removed, but neither evidence nor a test that carries {id_} shows it"
            )
    return found


def is_evidence(text: str, functions: Mapping[str, str]) -> bool:
    """Return whether a text is a test function's name, a metric that the runtime exports, or the path of a file."""
    if text in functions:
        return True
    if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", text):
        # A counter is declared without the ending "_total" of its samples.
        names = {f'"{text}"', f'"{text.removesuffix("_total")}"'}
        sources = (path.read_text() for path in (ROOT / "runtime" / "ccm").rglob("*.py"))
        return any(name in source for source in sources for name in names)
    return bool(text) and (ROOT / text).is_file()


def _where(tests: Iterable[Test]) -> str:
    return ", ".join(f"{test.file}::{test.function}" for test in tests)


HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make parity`: do not edit. The sentences are in tools/parity/behaviours and tools/parity/notes. -->
# Parity with upstream

This page lists the behaviours of `k8s.io/cloud-provider` v0.37, the framework of other cloud-controller-managers, and
says whether this runtime behaves in the same way. Each behaviour has an ID, which is part of the names or parameters of
our tests. The links lead to these tests. V1 and V2 are upstream's two interfaces for instances.

- *same*: this runtime does what upstream does.
- *different*: this runtime does something else on purpose. The tests show it, and the table says why.
- *not applicable*: this runtime has no part that could do it. The table says why.
"""


PEERS_HEAD = """## Test tables of peers

`make peers-tests` reads the test tables of released controllers and of upstream's libraries, and gives their cases to
our functions. If a result differs, a sentence in [tests/peers/known.yml](../../tests/peers/known.yml) explains it: our
function does something else on purpose (*different*), refuses what the peer accepts (*stricter*), or the case alone
does not say enough (*not comparable*). The run fails if such a sentence is missing, or if the case of a sentence
agrees.
"""


def render(parity: Parity) -> str:
    parts = [HEAD, *_summary(parity)]
    for name, title in SECTIONS.items():
        parts += ["", f"## {title}", ""]
        parts += _weaknesses(parity) if name == WEAKNESSES else _behaviours(parity, name)
    parts += ["", PEERS_HEAD, PEERS.read_text().partition("\n")[2].rstrip()]
    return "\n".join(parts) + "\n"


def _summary(parity: Parity) -> list[str]:
    lines = ["| | behaviours | same | different | not applicable |", "|---|---:|---:|---:|---:|"]
    total = [0, 0, 0, 0]
    for name, title in SECTIONS.items():
        if name == WEAKNESSES:
            continue
        statuses = [parity.status(id_) for id_ in parity.sections[name]]
        row = [len(statuses), *(statuses.count(status) for status in (SAME, DIFFERENT, NOT_APPLICABLE))]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(_row(f"[{title}](#{title.lower().replace(' ', '-')})", *row))
    lines.append(_row("**all**", *total))
    of_weaknesses = [parity.status(id_) for id_ in parity.sections[WEAKNESSES]]
    removed, kept = of_weaknesses.count("removed"), of_weaknesses.count("kept")
    lines += [
        "",
        f"Of the {len(of_weaknesses)} weaknesses of upstream in the last table, this runtime removes {removed} and "
        f"keeps {kept}, with the reason.",
    ]
    if absent := missing(parity):
        lines += ["", f"Not shown yet: {', '.join(absent)}."]
    return lines


def _behaviours(parity: Parity, section: str) -> list[str]:
    lines = ["| ID | upstream: case → behaviour | ours | shown by |", "|---|---|---|---|"]
    for id_, behaviour in parity.sections[section].items():
        note = parity.notes.get(id_)
        ours = parity.status(id_) + ("" if note is None else f": {note.text}")
        lines.append(_row(id_, behaviour.replace("->", "→"), ours, _proofs(parity, id_)))
    return lines


def _weaknesses(parity: Parity) -> list[str]:
    lines = ["| ID | upstream | ours | shown by |", "|---|---|---|---|"]
    for id_, weakness in parity.sections[WEAKNESSES].items():
        note = parity.notes.get(id_)
        ours = parity.status(id_) + ("" if note is None else f": {note.text}")
        lines.append(_row(id_, weakness, ours, _proofs(parity, id_)))
    return lines


def _proofs(parity: Parity, id_: str) -> str:
    """Return links to the tests that have the ID, and to the evidence that its note names."""
    note = parity.notes.get(id_)
    evidence = () if note is None else note.evidence
    tests = set(parity.shown_by.get(id_, ()))
    carried = {test.function for test in tests}
    tests |= {
        Test(parity.functions[name], name) for name in evidence if name in parity.functions and name not in carried
    }
    links = [f"[{Path(test.file).stem}::{test.function}](../../{test.file})" for test in sorted(tests)]
    for name in evidence:
        if name not in parity.functions:
            links.append(f"[{Path(name).name}](../../{name})" if "/" in name else f"`{name}`")
    return ", ".join(links)


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    try:
        parity = load(collect_node_ids())
    except ParityError as error:
        print(error, file=sys.stderr)
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(parity))
    wrong = contradictions(parity) + [f"{id_}: nothing shows it, and no note says why" for id_ in missing(parity)]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

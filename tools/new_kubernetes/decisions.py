# SPDX-License-Identifier: Apache-2.0
"""Reads, checks and writes what was decided about each difference of a minor. decisions/1.37.yml is a list of

    - {decision: fact, why: one sentence, ids: [ID, ...]}

`fact`: a row of plugins/module_utils/facts/versions.py; `parity`: a row of docs/reference/parity.md; `done`: a change
in this project, which `why` names; `ignored`: nothing here depends on it, and `why` says why. `make new-kubernetes`
adds new differences with `decision: open`, which `make lint` refuses for a supported minor:

    python -m tools.new_kubernetes.decisions
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tools.docs import kubernetes_versions

FOLDER = Path(__file__).parent / "decisions"
OPEN = "open"
DECISIONS = ("fact", "parity", "done", "ignored")
#: The first minor whose differences were listed.
FIRST = (1, 37)
Entry = Mapping[str, Any]
#: The first and the last supported minor.
Window = tuple[tuple[int, int], tuple[int, int]]


def load(path: Path) -> list[Entry]:
    return yaml.safe_load(path.read_text()) or [] if path.exists() else []


def decided(entries: Sequence[Entry]) -> dict[str, Entry]:
    return {id: entry for entry in entries for id in entry.get("ids") or ()}


def merged(entries: Sequence[Entry], ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return the entries with exactly these IDs: IDs that are no longer differences are removed, new IDs are open."""
    now = list(ids)
    kept = []
    for entry in entries:
        left = [id for id in entry.get("ids") or () if id in set(now)]
        if left and entry.get("decision") != OPEN:
            kept.append({**entry, "ids": left})
    settled = {id for entry in kept for id in entry["ids"]}
    if left := [id for id in now if id not in settled]:
        kept.append({"decision": OPEN, "why": "", "ids": left})
    return kept


def text(entries: Sequence[Entry], title: str) -> str:
    """Return the text of the file: comments with the licence, the title and what to do, then the entries."""
    body = yaml.safe_dump(list(entries), sort_keys=False, allow_unicode=True, width=10**6)
    head = f"# {title} Written by `make new-kubernetes`; decide what is open."
    return f"# SPDX-License-Identifier: Apache-2.0\n{head}\n{body}"


def problems(name: str, entries: Sequence[Entry]) -> list[str]:
    """Return what is wrong with the file of a supported minor."""
    found, seen = [], set()
    for number, entry in enumerate(entries, 1):
        where, ids = f"{name}: entry {number}", entry.get("ids") or []
        decision, why = entry.get("decision"), entry.get("why")
        if set(entry) != {"decision", "why", "ids"}:
            found.append(f"{where}: it has the keys decision, why and ids, and no others")
        elif decision == OPEN:
            found.append(f"{where}: {len(ids)} differences have no decision, such as {ids[0]!r}")
        elif decision not in DECISIONS:
            found.append(f"{where}: decision must be one of {', '.join(DECISIONS)}")
        elif not isinstance(why, str) or not why.strip():
            found.append(f"{where}: why must be a sentence")
        found += [f"{where}: {id!r} is decided twice" for id in ids if id in seen]
        seen |= set(ids)
    return found


def check(window: Window, folder: Path = FOLDER) -> list[str]:
    """Return the problems with the files of all supported minors from FIRST on."""
    found = []
    for minor in range(max(FIRST, window[0])[1], window[1][1] + 1):
        path = folder / f"{FIRST[0]}.{minor}.yml"
        if not path.exists():
            found.append(f"{path.name} is missing: run `make new-kubernetes VERSION={path.stem}`")
        else:
            found += problems(path.name, load(path))
    return found


def supported() -> Window:
    """Return the first and the last supported minor of the table of facts."""
    window: Window = kubernetes_versions.load().SUPPORTED
    return window


if __name__ == "__main__":
    wrong = check(supported())
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)

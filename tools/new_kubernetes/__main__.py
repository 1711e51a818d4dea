# SPDX-License-Identifier: Apache-2.0
"""Lists what a Kubernetes minor changes for this project, from the newest sources on Go's module proxy; builds nothing.

    python -m tools.new_kubernetes [VERSION [--against VERSION]]

VERSION is a minor, such as 1.38. Before a minor is released, its alphas, betas and candidates are compared. Each
difference gets an ID in tools/new_kubernetes/decisions/VERSION.yml; those without a decision fail `make lint` once the
minor is supported. Without VERSION nothing is written: the last supported minor and the next one are each compared with
the one before. The status is 1 if a difference of the supported one has no decision, or if the next one is released.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bed"))

from bed.errors import BedError  # noqa: E402
from bed.minors import Minor, minor_of, show  # noqa: E402
from bed.progress import Progress  # noqa: E402

from . import decisions  # noqa: E402
from .differences import KINDS, differences, kind_of, things  # noqa: E402
from .sources import NoSuchMinor, components, fetch, listed, modules_of, newest, read  # noqa: E402


def compare(old: Minor, new: Minor, progress: Progress) -> tuple[list[str], list[str]]:
    """Return the differences, and lines that say what was compared. Raises BedError."""
    known = listed(modules_of(components()), progress)
    sides = []
    # The new minor comes first: if neither exists, the message is about the requested one.
    for minor in (new, old):
        with progress.step(f"Sources of Kubernetes {show(minor)}"):
            sides.insert(0, (minor, *fetch(minor, known, progress)))
    # Compare only modules that both minors have: all of another module would count as new, or gone.
    both = [module for module in known if all(module in chosen for _, chosen, _, _ in sides)]
    old_side, new_side = (
        read(minor, {module: chosen[module] for module in both}, {module: folders[module] for module in both}, progress)
        for minor, chosen, folders, _ in sides
    )
    lines = [f"{module}  {old_side.versions[module]} -> {new_side.versions[module]}" for module in both]
    lines += [f"{module}  not compared: it has no version of one of them" for module in known if module not in both]
    lines += [line for *_, skipped in sides for line in skipped]
    return differences(things(old_side), things(new_side)), lines


def report(ids: Sequence[str], lines: Sequence[str], entries: Sequence[decisions.Entry]) -> str:
    """Return the report as text: what was compared, then each difference with its decision."""
    known = decisions.decided(entries)
    parts = ["Modules:", *(f"  {line}" for line in lines)]
    for kind, title in KINDS.items():
        rows = [id for id in ids if kind_of(id) == kind]
        parts += ["", f"{title}: {len(rows) or 'no difference'}"]
        parts += [f"  {id.partition(' ')[2]}  [{known.get(id, {}).get('decision', decisions.OPEN)}]" for id in rows]
    counts = Counter(known.get(id, {}).get("decision", decisions.OPEN) for id in ids)
    parts += ["", f"{len(ids)} differences: " + (", ".join(f"{n} {name}" for name, n in sorted(counts.items())) or "-")]
    return "\n".join(parts)


def shown(new: Minor, old: Minor, progress: Progress, *, write: bool) -> list[str]:
    """Print a report; if `write`, write the file of decisions. Return what has no decision. Raises BedError."""
    ids, lines = compare(old, new, progress)
    path = decisions.FOLDER / f"{show(new)}.yml"
    entries = decisions.load(path)
    print(report(ids, lines, entries))
    settled = {id for entry in entries if entry["decision"] != decisions.OPEN for id in entry["ids"]}
    left = [id for id in ids if id not in settled]
    if write and (ids or entries):
        title = f"Differences of Kubernetes {show(new)} from {show(old)}."
        path.write_text(decisions.text(decisions.merged(entries, ids), title))
    print(f"\n{len(left)} differences have no decision in {path.relative_to(ROOT)}." if left else "\nAll are decided.")
    return left


def weekly(progress: Progress) -> int:
    """Run the scheduled check: has the last supported minor changed, and is there a new one? Return 1 if the last
    supported minor has a difference without a decision, or if the next minor is released; else 0.
    """
    _, last = decisions.supported()
    left = shown(last, before(last), progress, write=False)
    coming = last[0], last[1] + 1
    print(f"\nThe next minor, {show(coming)}:\n")
    try:
        shown(coming, last, progress, write=False)
        released = is_released(coming, listed(["k8s.io/kubernetes"], progress)["k8s.io/kubernetes"])
    except NoSuchMinor as error:
        print(error)
        released = False
    if released:
        print(f"\nKubernetes {show(coming)} is released: MAINTAINERS.md says what to do.")
    return 1 if left or released else 0


def before(minor: Minor) -> Minor:
    return minor[0], minor[1] - 1


def is_released(minor: Minor, versions: Sequence[str]) -> bool:
    return "-" not in (newest(minor, versions) or "-")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", metavar="VERSION", nargs="?", default="", help="a minor, such as 1.38")
    parser.add_argument("--against", metavar="VERSION", default="", help="default: the minor before it")
    asked = parser.parse_args(arguments)
    try:
        if not asked.version:
            return weekly(Progress())
        new = minor_of(asked.version)
        shown(new, minor_of(asked.against) if asked.against else before(new), Progress(), write=True)
    except BedError as error:
        print(f"new-kubernetes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

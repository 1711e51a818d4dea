# SPDX-License-Identifier: Apache-2.0
"""`make peers-tests`: runs the test tables of other projects, the peers, on our functions.

    python -m tests.peers [--only SUITE] [--rows TEST]

Fails if a case disagrees, or needs a value that the peer's sources do not define, and known.yml does not explain it; if
known.yml explains a case that agrees; or if the number of rows changed. Otherwise a run of all suites writes
results.md, which parity.md in docs/reference includes; it fails if that changes the file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/bed"))

from bed.errors import BedError  # noqa: E402
from bed.progress import Progress  # noqa: E402

from . import adapters, compare, page, tables  # noqa: E402
from .suite import Suite  # noqa: E402

KNOWN = Path(__file__).parent / "known.yml"


def suites() -> dict[str, Suite]:
    names = (entry.name for entry in pkgutil.iter_modules(adapters.__path__))
    modules = [importlib.import_module(f"{adapters.__name__}.{name}") for name in names]
    return {module.SUITE.name: module.SUITE for module in modules}


def known(path: Path = KNOWN) -> dict[str, Mapping[str, Any]]:
    return yaml.safe_load(path.read_text()) or {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="SUITE", choices=sorted(suites()), help="one suite: " + ", ".join(suites()))
    parser.add_argument("--rows", metavar="TEST", help="print what the peer's test has, and compare nothing")
    asked = parser.parse_args()
    ours = {name: suite for name, suite in suites().items() if asked.only in (None, name)}
    roots = {name: root for name, root in tables.roots().items() if name in ours}
    try:
        read = tables.read(roots, Progress())
    except BedError as error:
        print(f"peers-tests: {error}", file=sys.stderr)
        return 1
    if asked.rows:
        chosen = [tests[asked.rows] for files in read.values() for tests in files.values() if asked.rows in tests]
        print(json.dumps(chosen, indent=1))
        return 0
    notes = known()
    results = [compare.compare(suite, read[name], notes.get(name, {})) for name, suite in ours.items()]
    findings = [finding for result in results for finding in result.findings]
    table = page.table(results, roots)
    print("\n".join(table))
    print("\n".join(findings), file=sys.stderr, end="\n" if findings else "")
    if not findings and asked.only is None and page.is_stale(table):
        findings = ["tests/peers/results.md was stale: run `make parity`, and commit both pages"]
        print(*findings, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Reads what runs of pytest wrote about their tests (JUnit XML), with the properties of tests/conftest.py."""

from __future__ import annotations

import functools
import shlex
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Test:
    """One test. `outcome`: "passed", "failed" or "skipped" in the last try; `reason`: why it failed or was skipped.
    `tries`: how many times it ran. `cpu`: its processor seconds, None if unknown. `quarantine`: the day from which its
    failures do not count, "" if they count.
    """

    name: str
    seconds: float
    outcome: str
    reason: str = ""
    tries: int = 1
    cpu: float | None = None
    quarantine: str = ""
    #: What the test did not check; from the property `unchecked` in the file.
    unchecked: str = ""

    @property
    def file(self) -> str:
        return file_of(self.name.partition("::")[0])[0]

    @property
    def node_id(self) -> str:
        """Return the test's name as pytest's command line takes it; "" for a part that has no tests."""
        module, separator, function = self.name.partition("::")
        file, classes = file_of(module)
        return "::".join((file, *classes, function)) if separator and file else ""

    @property
    def command(self) -> str:
        """Return the command, from the repository's root, that runs only this test; for a part without tests, the
        command of its make target.
        """
        if not self.node_id:
            return f"make {self.name}"
        return f"build/venv/bin/pytest -q {shlex.quote(self.node_id)}"


@functools.cache
def file_of(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the file and the classes that a module's name in JUnit stands for; ("", ()) if there is no such file."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        path = "/".join(parts[:end]) + ".py"
        if (ROOT / path).is_file():
            return path, tuple(parts[end:])
    return "", ()


def read(path: Path) -> list[Test]:
    """Return the tests of a JUnit file of pytest. The file has a case for each try; the last try counts."""
    tests: dict[str, Test] = {}
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}".removeprefix("::")
        failure = next((case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None)
        skipped = case.find("skipped")
        outcome = "failed" if failure is not None else "skipped" if skipped is not None else "passed"
        reason = "" if skipped is None else skipped.get("message") or skipped.text or "no reason given"
        if failure is not None:
            reason = (failure.get("message") or "").partition("\n")[0][:300]
        properties = {each.get("name"): each.get("value", "") for each in case.iter("property")}
        tests[name] = Test(
            name,
            float(case.get("time", 0)),
            outcome,
            reason.strip(),
            tries=1 + (tests[name].tries if name in tests else 0),
            cpu=float(properties["cpu"]) if "cpu" in properties else None,
            quarantine=properties.get("quarantine", ""),
            unchecked=properties.get("unchecked", ""),
        )
    return list(tests.values())

# SPDX-License-Identifier: Apache-2.0
"""Run the tests of one module once for each mutant of it, each in a fork of this process, which has loaded pytest
already. Files are never changed: the fork imports the mutant's source instead of the module's.

Reads {"module", "path", "tests", "sources"} as JSON from stdin; writes a line for each source: "noticed", "survived" or
"endless" (it ran several times as long as the tests take). The first source is the module as it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import time
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: What tests load that is not ours: loaded once, before the forks.
_SLOW = (
    "aiohttp",
    "ansible.template",
    "hypothesis",
    "msgspec",
    "prometheus_client",
    "pytest",
    "pytest_asyncio",
    "yaml",
)

#: Seconds that tests may take with a change, besides five times as long as without.
PATIENCE = float(os.environ.get("MUTATION_PATIENCE", "10"))


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text."""

    def __init__(self, module: str, path: str, source: str) -> None:
        self.module, self.path, self.source = module, path, source

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def pytest_sessionstart(self) -> None:
        """As a plugin of pytest, whose own finder (it rewrites assertions) came in front of this one."""
        assert self.module not in sys.modules, f"{self.module} was imported before the tests"
        sys.meta_path.remove(self)
        sys.meta_path.insert(0, self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, self.path, "exec"), module.__dict__)


def main() -> int:
    job = json.load(sys.stdin)
    for name in _SLOW:
        importlib.import_module(name)
    limit = None
    for source in job["sources"]:
        began = time.monotonic()
        outcome = run(Instead(job["module"], job["path"], source), job["tests"], limit)
        print(outcome, flush=True)
        if limit is None:
            if outcome != "survived":
                return 1  # the tests fail without any change
            limit = PATIENCE + 5 * (time.monotonic() - began)
    return 0


def run(finder: Instead, tests: list[str], limit: float | None) -> str:
    child = os.fork()
    if child == 0:
        os.setsid()
        _test(finder, tests)
    deadline = time.monotonic() + limit if limit is not None else None
    pause = 0.01
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"
        if deadline is not None and time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "endless"
        time.sleep(pause)


def _test(finder: Instead, tests: list[str]) -> None:
    """In the fork: run the tests, say nothing, and end without anything that only the parent should do."""
    import pytest

    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        sys.meta_path.insert(0, finder)
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:faulthandler"]
        code = int(pytest.main([*options, *tests], plugins=[finder]))
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())

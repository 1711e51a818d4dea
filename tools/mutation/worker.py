# SPDX-License-Identifier: Apache-2.0
"""Run the tests of one module once for each mutant of it. Files are never changed.

Reads a job from each line of stdin, as JSON: {"module", "path", "tests", "sources"}; the first source is the unchanged
module. Writes a line of JSON for each job: {"outcomes", "why", "seconds"}. An outcome is "noticed", "survived" or
"endless" (it ran several times as long as the tests take). If there are fewer outcomes than sources, `why` has the
reason. The seconds are processor time.

Pytest collects the tests once, and runs them once to learn which statements each test runs. For each mutant, a fork
puts the changed code into its function. The fork then runs the tests that run the changed statement, until one fails:
first those that noticed an earlier change of the function, then the quickest, for a few seconds. In three cases this
cannot show the change: the statement ran while tests were collected, the function made an inner function then, or the
changed function has another number of free variables. Such a mutant is imported in a separate process.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.util
import itertools
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from .mutants import functions, is_docstring

#: Libraries that tests import; they are imported once, before the forks.
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
#: pytest's options. pytest rewrites no assertions, because it would install an import hook that comes before `Instead`.
_OPTIONS = (
    "-s",
    "-q",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:faulthandler",
    "--timeout=0",
)

#: Seconds that tests with a change may sleep, in addition to five times their duration without it. Waiting for a
#: processor does not count as sleep: otherwise a busy machine would make changes look noticed.
PATIENCE = float(os.environ.get("MUTATION_PATIENCE", "10"))
#: Processor seconds that a test with a change may use, in addition to five times those without it.
PROCESSOR = min(PATIENCE / 10, 1.0)
#: Processor seconds for the tests of one change. Those in the module's own file all run, even if they take longer. Some
#: tests draw a hundred clusters; what the first tests do not notice, the others rarely do.
BUDGET = 5.0
#: Bytes of memory for a fork: an endless loop that collects something fails before the machine runs out of memory.
MEMORY = 4 << 30
#: How many examples a property test runs. They are the same in each run, so that scores can be compared.
EXAMPLES = 50


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a text. With `entered`, each statement in a function reports its line."""

    def __init__(self, module: str, path: str, source: str, entered: Callable[[int], None] | None = None) -> None:
        self.module, self.path, self.source, self.entered = module, path, source, entered
        self.code: CodeType | None = None

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def pytest_sessionstart(self) -> None:
        """Check, as a plugin of pytest, that no other plugin has imported the module in another way."""
        loaded = sys.modules.get(self.module)
        assert loaded is None or loaded.__loader__ is self, f"{self.module} was imported before the tests"

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.source)
        if self.entered is not None:
            module.__dict__["__entered__"] = self.entered
            for function in functions(tree):
                _report_statements(function)
        self.code = compile(tree, self.path, "exec")
        exec(self.code, module.__dict__)


def _report_statements(function: ast.AST) -> None:
    """Let each statement report its line before it runs."""
    for node in list(ast.walk(function)):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                block[:] = [each for statement in block for each in (*_report(statement), statement)]


def _report(statement: ast.stmt) -> list[ast.stmt]:
    if is_docstring(statement):
        return []
    call = ast.parse(f"__entered__({statement.lineno})").body[0]
    for node in ast.walk(call):
        ast.copy_location(node, statement)
    return [call]


def statement_of(tree: ast.AST, before: list[str], after: list[str]) -> int:
    """Return the first line of the innermost statement that differs between both sources."""
    pairs = enumerate(itertools.zip_longest(before, after), 1)
    line = next(line for line, (old, new) in pairs if old != new)
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0))).lineno


def function_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a module's outermost functions, methods included, in the order of the source."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 1:  # CO_OPTIMIZED: of a function, not of a class
                yield constant
            else:
                yield from function_codes(constant)


def inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions inside a function."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from inner_codes(constant)


class Session:
    """A plugin of pytest that runs the collected tests for each mutant, instead of once."""

    def __init__(self, finder: Instead, sources: list[str], report: Callable[[str], None]) -> None:
        self.finder, self.sources, self.report = finder, sources, report
        self.entered: set[int] = set()
        finder.entered = self.entered.add
        self.failed = False
        self.problem = ""
        self.tree = ast.parse(sources[0])
        self.items: list[Any] = []
        self.own: set[int] = set()
        self.lines: list[set[int]] = []
        self.seconds: list[tuple[float, float]] = []
        self.noticed: dict[int, Counter[int]] = {}
        #: Functions that made an inner function while tests were collected: the inner function keeps its original code.
        self.made_at_import: set[int] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed = self.failed or report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        self.items = session.items
        for item in self.items:
            _give_examples(item)
        self.own = {index for index, item in enumerate(self.items) if item.path == self.items[0].path}
        at_import = set(self.entered)
        code = self.finder.code
        assert code is not None, f"no test imports {self.finder.module}"
        loaded = {id(each): index for index, each in enumerate(function_codes(code))}
        nested = {id(inner): index for index, each in enumerate(function_codes(code)) for inner in inner_codes(each)}
        found: dict[int, list[FunctionType]] = {}
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and id(each.__code__) in loaded:
                found.setdefault(loaded[id(each.__code__)], []).append(each)
            elif isinstance(each, FunctionType) and id(each.__code__) in nested:
                self.made_at_import.add(nested[id(each.__code__)])
        gc.collect()
        gc.freeze()
        outcome, told = in_fork(self._learn, math.inf)
        if outcome != "survived":
            self.problem = told
            self.report("noticed")
            return True
        self.report("survived")
        learned = json.loads(told)
        self.lines, self.seconds = [set(each["lines"]) for each in learned], [tuple(e["seconds"]) for e in learned]
        before = list(function_codes(compile(self.sources[0], self.finder.path, "exec")))
        for source in self.sources[1:]:
            self.report(self._try(before, source, found, at_import))
        return True

    def _learn(self) -> tuple[bool, str]:
        learned = []
        for item in self.items:
            self.entered.clear()
            began, busy = _slept(), time.process_time()
            self._run(item)
            if self.failed:
                return False, f"{item.nodeid} fails without any change"
            seconds = _slept() - began, time.process_time() - busy
            learned.append({"lines": sorted(self.entered), "seconds": seconds})
        return True, json.dumps(learned)

    def _try(
        self, before: list[CodeType], source: str, functions: dict[int, list[FunctionType]], at_import: set[int]
    ) -> str:
        after = list(function_codes(compile(source, self.finder.path, "exec")))
        index = next(index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
        new, statement = after[index], statement_of(self.tree, self.sources[0].splitlines(), source.splitlines())
        changed = functions.get(index, [])
        if any(len(each.__code__.co_freevars) != len(new.co_freevars) for each in changed):
            return "alone"
        noticed = self.noticed.setdefault(index, Counter())
        chosen = [item for item, lines in enumerate(self.lines) if statement in lines]
        chosen.sort(key=lambda item: (-noticed[item], self.seconds[item][1]))
        spent = itertools.accumulate(self.seconds[item][1] for item in chosen)
        chosen = [item for item, seconds in zip(chosen, spent, strict=True) if seconds <= BUDGET or item in self.own]

        def run() -> tuple[bool, str]:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            for each in changed:
                each.__code__ = new
            for item in chosen:
                # The timer's signal ends the process.
                signal.setitimer(signal.ITIMER_PROF, PROCESSOR + 5 * self.seconds[item][1])
                self._run(self.items[item])
                if self.failed:
                    return False, str(item)
            return True, ""

        outcome, told = in_fork(run, PATIENCE + 5 * sum(self.seconds[item][0] for item in chosen))
        if outcome == "noticed" and told:
            noticed[int(told)] += 1
        early = statement in at_import or index in self.made_at_import
        return "alone" if outcome == "survived" and early else outcome

    def _run(self, item: Any) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _give_examples(item: Any) -> None:
    import hypothesis

    function = getattr(item.obj, "__func__", item.obj)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None:
        new = hypothesis.settings(own, max_examples=min(EXAMPLES, own.max_examples))
        function._hypothesis_internal_use_settings = new


def main() -> int:
    for name in _SLOW:
        importlib.import_module(name)
    for line in sys.stdin:
        before = _busy()
        outcomes, why = do(json.loads(line))
        print(json.dumps({"outcomes": outcomes, "why": why, "seconds": _busy() - before}), flush=True)
    return 0


def _busy() -> float:
    """Return the processor seconds that all ended forks have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _slept(process: int | str = "self") -> float:
    """Return the time of a clock that stops while a process runs or waits for a processor."""
    running, waiting, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    return time.monotonic() - (int(running) + int(waiting)) / 1e9


def do(job: dict[str, Any]) -> tuple[list[str], str]:
    """Return the outcomes of a job and, if there are too few, why: what pytest reported, or the last lines printed."""
    sources = job["sources"]
    with tempfile.TemporaryFile() as printed:

        def all_together() -> tuple[bool, str]:
            outcomes: list[str] = []
            finder = Instead(job["module"], job["path"], sources[0])
            for descriptor in (1, 2):
                os.dup2(printed.fileno(), descriptor)
            session = Session(finder, sources, outcomes.append)
            _run_pytest(job["tests"], finder, session)
            return len(outcomes) == len(sources), json.dumps([outcomes, session.problem])

        _, told = in_fork(all_together, math.inf)
        printed.seek(0)
        why = printed.read().decode(errors="replace").strip()[-500:]
    outcomes, problem = json.loads(told or '[[], ""]')
    limits = math.inf, 0.0
    if "alone" in outcomes:
        began, busy = time.monotonic(), _busy()
        if alone(job, sources[0], *limits) != "survived":
            return [], "its tests fail when they are run once more"
        limits = PATIENCE + 5 * (time.monotonic() - began), PROCESSOR + 5 * (_busy() - busy)
    ended = [
        alone(job, source, *limits) if outcome == "alone" else outcome
        for outcome, source in zip(outcomes, sources, strict=False)
    ]
    return ended, "" if len(ended) == len(sources) else problem or why or "the worker ended early"


def alone(job: dict[str, Any], source: str, patience: float, processor: float) -> str:
    """Import the mutant in a separate process, run all tests until one fails, and return the outcome."""
    finder = Instead(job["module"], job["path"], source)

    def run() -> tuple[bool, str]:
        signal.setitimer(signal.ITIMER_PROF, processor)  # 0 means no limit
        return _run_pytest(job["tests"], finder, "-x") == 0, ""

    outcome, _ = in_fork(run, patience)
    return outcome


def _run_pytest(tests: list[str], *more: Any) -> int:
    import hypothesis
    import pytest

    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation", derandomize=True, database=None, deadline=None, phases=phases, max_examples=EXAMPLES
    )
    hypothesis.settings.load_profile("mutation")
    plugins = [each for each in more if not isinstance(each, str)]
    sys.meta_path.insert(0, plugins[0])
    return int(pytest.main([*_OPTIONS, *(each for each in more if isinstance(each, str)), *tests], plugins=plugins))


def in_fork(work: Callable[[], tuple[bool, str]], patience: float) -> tuple[str, str]:
    """Run `work`, which returns whether all passed and a text, in a fork. Return the outcome and the text.

    The outcome is "survived", "noticed" or "endless". The fork is killed when it has slept longer than `patience`.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(work, writer)
    os.close(writer)
    os.set_blocking(reader, False)
    began, told = _slept(child), b""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        told += _read(reader)
        if not done and _slept(child) - began > patience:
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            done = child
        if done:
            os.close(reader)
            code = os.waitstatus_to_exitcode(status)
            return "survived" if code == 0 else "endless" if code < 0 else "noticed", told.decode()
        time.sleep(0.002)


def _read(reader: int) -> bytes:
    found = b""
    try:
        while piece := os.read(reader, 1 << 16):
            found += piece
    except BlockingIOError:
        pass
    return found


def _work(work: Callable[[], tuple[bool, str]], writer: int) -> None:
    """Run `work` in the fork: write only to the parent, and exit without the clean-up, which the parent does."""
    code = 1
    try:
        os.setpgrp()  # a group to end as a whole; a session of its own would have a priority of its own
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        passed, text = work()
        with os.fdopen(writer, "w") as pipe:
            pipe.write(text)
        code = 0 if passed else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""The mutants are the intended ones, and a worker distinguishes a test that notices a mutant from one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tools.mutation.__main__ import EQUIVALENT, Equivalent, Workers, equivalents, is_found
from tools.mutation.mutants import mutants
from tools.mutation.targets import EXCLUDED, ROOT, Target, candidates, only_decides, targets


@pytest.mark.parametrize(
    ("statement", "changes"),
    [
        ("return a < b", {"a < b -> a <= b"}),
        ("return a and not b", {"a and (not b) -> a or not b", "not b -> b"}),
        ("return a in b and 1 < c <= d", None),
        ("if found: return None", {"found -> not found"}),
        ("return [x for x in a if x]", {"x -> not x"}),
        ("while True: break", {"True -> not True", "True -> False", "break -> continue"}),
        ("return a + 1", {"a + 1 -> a - 1", "1 -> 2"}),
        ("a += 1", {"a += 1 -> a -= 1", "1 -> 2"}),
        ("return min(a, b)", {"min(a, b) -> max(a, b)"}),
        ("notify(a)", {"notify(a) -> pass"}),
        ("return f'{a + 1}' + 'text'", set()),
        ("x: int | None = a", set()),
        ("return zip(a, b, strict=True)", set()),
        ("'''text'''", set()),
    ],
)
def test_what_is_changed(statement: str, changes: set[str] | None) -> None:
    found = {each.change for each in mutants(f"def f(a, b):\n    {statement}\n")}
    if changes is None:
        assert len(found) == 5  # in, and, both comparisons of the chain, the number
    else:
        assert found == changes


def test_settings_annotations_and_decorators_stay() -> None:
    source = 'LIMIT = 3\n\n@cache(maxsize=1)\ndef f(a: "1 < 2" = LIMIT) -> 3 | 4:\n    """Text."""\n    return a\n'
    assert mutants(source) == []


def test_every_mutant_is_the_module_with_one_place_changed() -> None:
    for target in targets("route_rules"):
        source = target.path.read_text()
        for each in mutants(source):
            compile(each.source, target.name, "exec")
            assert each.source != source and each.text in source


UTILS = "plugins/module_utils/**/*.py"
TWICE = "def first(a):\n    return a + b\n\nclass C:\n    def second(self, a):\n        return a + b\n"


@pytest.mark.parametrize(("function", "left"), [("", []), ("first", ["second"]), ("second", ["first"])])
def test_an_equivalent_is_of_every_such_line_or_of_one_function(function: str, left: list[str]) -> None:
    target = Target(ROOT / "it.py", "it", ())
    known = Equivalent("it.py", "return a + b", "a + b -> a - b", function)
    assert [each.function for each in mutants(TWICE) if not known.is_it(target, each)] == left


def test_an_equivalent_of_another_file_is_none_here() -> None:
    known = Equivalent("other.py", "return a + b", "a + b -> a - b")
    assert not any(known.is_it(Target(ROOT / "it.py", "it", ()), each) for each in mutants(TWICE))


def test_every_equivalent_is_a_change_that_can_still_be_made() -> None:
    every = targets()
    assert [(each.file, each.line, each.change) for each in equivalents() if not is_found(each, every)] == []


def test_every_equivalent_says_why() -> None:
    for entries in yaml.safe_load(EQUIVALENT.read_text()).values():
        assert all(each.keys() - {"in"} == {"line", "change", "why"} and each["why"].endswith(".") for each in entries)


def test_every_module_that_only_decides_has_tests() -> None:
    found = targets()
    assert len(found) > 30
    assert [each.name for each in found if not each.tests] == []
    assert [str(test) for each in found for test in each.tests if not test.exists()] == []


@pytest.mark.parametrize("pattern", ["runtime/ccm/**/*_rules.py", "runtime/ccm/cloud/toolkit/*.py", UTILS])
def test_no_module_is_forgotten(pattern: str) -> None:
    found = {str(path.relative_to(ROOT)) for path in ROOT.glob(pattern) if path.name != "__init__.py"}
    assert found
    assert found - {each.name for each in targets()} - EXCLUDED.keys() == set()


def test_each_excluded_module_exists_and_says_why() -> None:
    assert EXCLUDED.keys() - set(candidates()) == set()
    assert all(why.endswith(".") for why in EXCLUDED.values())
    assert not EXCLUDED.keys() & {each.name for each in targets()}


@pytest.mark.parametrize(
    ("name", "docstring", "expected"),
    [
        ("odd_rules.py", "Odd.", True),
        ("odd.py", "Odd: pure decisions.", True),
        ("odd.py", "Odd. Pure.", True),
        ("odd.py", "Odd.\n\nNo I/O: callers read.", True),
        ("odd.py", "It purely asks servers.", False),
        ("odd.py", "", False),
    ],
)
def test_a_new_module_is_found_by_its_name_or_docstring(
    tmp_path: Path, name: str, docstring: str, expected: bool
) -> None:
    path = tmp_path / name
    path.write_text(f'"""{docstring}"""\n')
    assert only_decides(path) is expected


@pytest.fixture(scope="module")
def worker() -> Iterator[Workers]:
    """Yield one worker for all tests: it imports what tests load, which takes two seconds, and forks for each job."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUTATION_PATIENCE", "5")
        with Workers(1) as workers:
            yield workers


def outcomes(worker: Workers, folder: Path, source: str, test: str, *changes: tuple[str, str]) -> list[str]:
    """Return the worker's outcomes for the module, and for each change in it."""
    (folder / "ccm_sample.py").write_text(source)
    (folder / "test_sample.py").write_text(test)
    sources = [source, *(source.replace(*change) for change in changes)]
    tests = [str(folder / "test_sample.py")]
    job = {"module": "ccm_sample", "path": str(folder / "ccm_sample.py"), "tests": tests, "sources": sources}
    found: list[str] = worker.do(job)["outcomes"]
    return found


OLDER = "def older(a, b):\n    return a > b\n"


def test_a_worker_tells_who_noticed(worker: Workers, tmp_path: Path) -> None:
    test = "from ccm_sample import older\n\ndef test_it():\n    assert older(2, 1) and not older(1, 2)\n"
    endless = ("return a > b", "while True: pass")
    found = outcomes(worker, tmp_path, OLDER, test, (">", ">="), (">", "<"), endless, (">", "=="))
    assert found == ["survived", "survived", "noticed", "endless", "noticed"]


def test_a_worker_does_not_wait_for_ever(worker: Workers, tmp_path: Path) -> None:
    test = "from ccm_sample import older\n\ndef test_it():\n    assert older(2, 1)\n"
    change = ("return a > b", "__import__('threading').Event().wait()")
    assert outcomes(worker, tmp_path, OLDER, test, change, (">", ">=")) == ["survived", "endless", "survived"]


def test_a_worker_shows_changes_of_what_runs_before_the_tests(worker: Workers, tmp_path: Path) -> None:
    test = "import ccm_sample\n\nFOUND = ccm_sample.older(2, 1)\n\ndef test_it():\n    assert FOUND\n"
    assert outcomes(worker, tmp_path, OLDER, test, (">", ">="), (">", "<")) == ["survived", "survived", "noticed"]


def test_a_worker_shows_changes_of_methods_that_no_longer_call_their_base(worker: Workers, tmp_path: Path) -> None:
    source = "class Odd(Exception):\n    def __init__(self, a, b):\n        super().__init__(a)\n"
    test = "from ccm_sample import Odd\n\ndef test_it():\n    assert str(Odd('a', 'b')) == 'a'\n"
    assert outcomes(worker, tmp_path, source, test, ("super().__init__(a)", "pass")) == ["survived", "noticed"]


def test_a_worker_knows_changes_of_functions_that_were_made_at_import(worker: Workers, tmp_path: Path) -> None:
    source = "def over(limit):\n    def check(a):\n        return a > limit\n    return check\n"
    test = "import ccm_sample\n\nOVER = ccm_sample.over(1)\n\ndef test_it():\n    assert OVER(2)\n"
    assert outcomes(worker, tmp_path, source, test, (">", "<"), (">", ">=")) == ["survived", "noticed", "survived"]


def test_what_no_test_calls_survives(worker: Workers, tmp_path: Path) -> None:
    test = "import ccm_sample\n\ndef test_it():\n    assert ccm_sample.older\n"
    assert outcomes(worker, tmp_path, OLDER, test, (">", "<")) == ["survived", "survived"]


def test_a_test_that_fails_without_any_change_is_a_problem(worker: Workers, tmp_path: Path) -> None:
    test = "from ccm_sample import older\n\ndef test_it():\n    assert older(1, 2)\n"
    assert outcomes(worker, tmp_path, OLDER, test, (">", "<")) == ["noticed"]


def test_a_worker_does_one_job_after_another(worker: Workers, tmp_path: Path) -> None:
    (tmp_path / "ccm_sample.py").write_text(OLDER)
    for name, says in (("test_good.py", "older(2, 1)"), ("test_bad.py", "older(1, 2)")):
        (tmp_path / name).write_text(f"from ccm_sample import older\n\ndef test_it():\n    assert {says}\n")
    job = {"module": "ccm_sample", "path": str(tmp_path / "ccm_sample.py"), "sources": [OLDER, OLDER.replace(">", "<")]}
    found = [worker.do({**job, "tests": [str(tmp_path / f"test_{name}.py")]}) for name in ("good", "bad", "good")]
    assert [each["outcomes"] for each in found] == [["survived", "noticed"], ["noticed"], ["survived", "noticed"]]
    assert [each["why"] for each in found] == ["", found[1]["why"], ""] and all(each["seconds"] > 0 for each in found)
    assert found[1]["why"].endswith("test_bad.py::test_it fails without any change")

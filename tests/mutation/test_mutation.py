# SPDX-License-Identifier: Apache-2.0
"""The changes are those that were meant, and a worker tells a test that notices from one that does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import mutants
from tests.mutation.targets import ROOT, targets


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


def test_every_module_that_only_decides_has_tests() -> None:
    found = targets()
    assert len(found) > 30
    assert [each.name for each in found if not each.tests] == []


def test_a_worker_tells_who_noticed(tmp_path: Path) -> None:
    (tmp_path / "ccm_sample.py").write_text("def older(a, b):\n    return a > b\n")
    test = tmp_path / "test_sample.py"
    test.write_text("from ccm_sample import older\n\ndef test_it():\n    assert older(2, 1) and not older(1, 2)\n")
    source = (tmp_path / "ccm_sample.py").read_text()
    loop = "def older(a, b):\n    while True: pass\n"
    sources = [source, source.replace(">", ">="), source.replace(">", "<"), loop]
    job = {"module": "ccm_sample", "path": str(tmp_path / "ccm_sample.py"), "tests": [str(test)], "sources": sources}
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "MUTATION_PATIENCE": "1"}
    command = [sys.executable, "-m", "tests.mutation.worker"]
    done = subprocess.run(
        command, cwd=tmp_path, input=json.dumps(job), capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["survived", "survived", "noticed", "endless"]

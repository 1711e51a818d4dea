# SPDX-License-Identifier: Apache-2.0
"""The key under which a compiled program is cached, and the error for a program that the bed does not know."""

from pathlib import Path

import pytest

from bed import go_programs
from bed.errors import BedError
from bed.go_programs import Program
from bed.progress import Progress


@pytest.mark.parametrize(("package", "changes"), [(".", True), ("example.com/other/cmd/program", False)])
def test_a_source_belongs_to_the_program_of_its_own_package(tmp_path: Path, package: str, changes: bool) -> None:
    program = Program(tmp_path, package, "a program")
    (tmp_path / "go.mod").write_text("module m")
    (tmp_path / "main.go").write_text("package main")
    before = go_programs._digest(program)
    (tmp_path / "main.go").write_text("package main // more")
    assert (go_programs._digest(program) != before) is changes
    (tmp_path / "go.mod").write_text("module n")
    assert go_programs._digest(program) != before


def test_a_program_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(BedError, match=r"program nothing is not one the bed knows.*e2e, agnhost, coredns"):
        go_programs.ensure("nothing", Progress())

# SPDX-License-Identifier: Apache-2.0
"""The Python that runs modules in tests of the collection behaves as Python: streams, folder, environment, status."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.collection import interpreter


def run(script: str, *arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [interpreter.interpreter(), *arguments], input=script, text=True, capture_output=True, cwd=folder,
        env=os.environ | variables,
    )  # fmt: skip


def test_it_runs_a_module_where_and_as_its_client_was_started(tmp_path: Path):
    script = "import os, sys\nprint(__name__, os.getcwd(), os.environ['IT'])\nprint('b', file=sys.stderr)\nsys.exit(3)"
    done = run(script, folder=tmp_path, IT="a b")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"__main__ {tmp_path} a b\n", "b\n")


def test_one_knows_nothing_of_another(tmp_path: Path):
    run("import os, json; os.environ['IT'] = 'x'; json.changed = True", folder=tmp_path)
    done = run("import os, json; print('IT' in os.environ, hasattr(json, 'changed'))")
    assert done.stdout == "False False\n"


def test_nothing_of_ansible_is_there_before():
    assert run("import sys; print([name for name in sys.modules if name.startswith('ansible')])").stdout == "[]\n"


@pytest.mark.parametrize(
    ("script", "status"), [("", 0), ("raise SystemExit", 0), ("raise SystemExit('bad')", 1), ("raise KeyError('k')", 1)]
)
def test_its_status_is_that_of_python(script: str, status: int):
    assert run(script).returncode == status == subprocess.run([sys.executable, "-c", script], stderr=-3).returncode


def test_an_exception_is_shown():
    assert "KeyError: 'k'" in run("raise KeyError('k')").stderr


def test_what_is_to_be_done_at_the_end_is_done(tmp_path: Path):
    run("import atexit, pathlib; atexit.register(pathlib.Path('ended').touch)", folder=tmp_path)
    assert (tmp_path / "ended").exists()


def test_with_arguments_python_itself_runs():
    assert run("", "-c", "import sys; print(sys.executable)").stdout == f"{sys.executable}\n"


def test_what_an_archive_brings_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interpreter, "COMPILED", tmp_path / "compiled")
    calls = []

    def compile_source(name: str, source: bytes):
        calls.append(name)
        return compile(source, name, "exec")

    for value in (b"A = 1", b"A = 2", b"A = 1"):
        names: dict[str, int] = {}
        exec(interpreter.compiled(compile_source, "a.py", value), names)
        assert names["A"] == int(value[-1:])
    assert len(calls) == 2
    for path in (tmp_path / "compiled").iterdir():
        path.write_bytes(b"broken")
    exec(interpreter.compiled(compile_source, "a.py", b"A = 1"), {})
    assert len(calls) == 3


def test_an_archive_is_imported(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("brought.py", "VALUE = 'of the archive'\n")
    script = "import sys; sys.path.insert(0, 'a.zip'); import brought; print(brought.VALUE)"
    assert [run(script, folder=tmp_path).stdout for _ in range(2)] == ["of the archive\n"] * 2

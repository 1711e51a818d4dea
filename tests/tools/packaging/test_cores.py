# SPDX-License-Identifier: Apache-2.0
"""`make cores` leaves out the sanity tests whose requirements cannot be downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import ports
from tools.packaging import cores, servers


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f'# edit "{name}", see https://example.com/x@ https://example.com/y\n{text}')


def test_tests_whose_requirements_are_released_are_all_run(tmp_path: Path) -> None:
    write(tmp_path, "sanity.pep8.txt", "pycodestyle==2.14.0\n")
    write(tmp_path, "units.txt", "mock @ http://127.0.0.1:1/no-sanity-test.zip\n")
    assert cores.out_of_reach(tmp_path) == {}


@pytest.mark.parametrize("status", [200, 302, 404])
def test_a_test_whose_address_answers_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """`make cores` does not judge the answer: if it is wrong, pip reports that."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with servers.serve(lambda *_: (status, {"Location": "/elsewhere"} if status == 302 else {}, b"")) as host:
        write(tmp_path, "sanity.pylint.txt", f"astroid==4.0.4\ndill @ http://{host}/dill.zip#sha256=00\n")
        assert cores.out_of_reach(tmp_path) == {}


def test_a_test_whose_address_does_not_answer_is_left_out_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    address = f"http://127.0.0.1:{ports.free_port()}/dill.zip"
    write(tmp_path, "sanity.pylint.txt", f"dill @ {address}\n")
    write(tmp_path, "sanity.import.plugin.txt", "pyyaml==6.0.3\n")
    assert cores.out_of_reach(tmp_path) == {"pylint": address}

# SPDX-License-Identifier: Apache-2.0
"""Limits of the host that all nodes share."""

import io
from pathlib import Path

from bed import machines
from bed.progress import Progress


def test_limits_are_raised_aloud_and_never_lowered(tmp_path: Path) -> None:
    (tmp_path / "max_user_instances").write_text("128\n")
    (tmp_path / "max_user_watches").write_text("1048576\n")
    out = io.StringIO()
    machines.raise_limits(Progress(out), tmp_path)
    assert (tmp_path / "max_user_instances").read_text() == "1024"
    assert (tmp_path / "max_user_watches").read_text() == "1048576\n"
    assert out.getvalue() == (
        "Raised fs.inotify.max_user_instances from 128 to 1024 until the next boot: kubelets share it.\n"
    )

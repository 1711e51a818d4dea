# SPDX-License-Identifier: Apache-2.0
"""What a file keeps when it is rendered again. test_render.py of the integration tests covers the rest."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from ansible_collections.outoftree.ccm.plugins.modules import ccm_rendered_files as subject


def test_the_selinux_label_of_a_file_survives(tmp_path: pathlib.Path, run_module: Any, label: str) -> None:
    folder, value = tmp_path / "rendered", b"system_u:object_r:httpd_sys_content_t:s0\0"

    def render(text: str) -> Any:
        return run_module(subject, {"directory": str(folder), "files": {"a.yaml": text}, "_ansible_remote_tmp": str(tmp_path / "tmp")})

    assert render("a: 1\n")["written"] == ["a.yaml"]
    os.setxattr(folder / "a.yaml", label, value)
    assert render("a: 2\n")["written"] == ["a.yaml"]
    assert (folder / "a.yaml").read_text() == "a: 2\n" and os.getxattr(folder / "a.yaml", label) == value

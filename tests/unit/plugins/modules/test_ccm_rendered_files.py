# SPDX-License-Identifier: Apache-2.0
"""What a rendered file keeps when it is rendered again; test_render.py of the integration tests has the rest."""

from __future__ import annotations

import io
import json
import os
import pathlib
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common.text.converters import to_bytes
from ansible_collections.outoftree.ccm.plugins.modules import ccm_rendered_files as subject


def render(monkeypatch: pytest.MonkeyPatch, folder: pathlib.Path, text: str) -> dict[str, Any]:
    arguments = {"directory": str(folder), "files": {"a.yaml": text}, "_ansible_remote_tmp": str(folder.parent / "tmp")}
    monkeypatch.setattr(basic, "_ANSIBLE_ARGS", to_bytes(json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
    monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit):
        subject.main()
    result: dict[str, Any] = json.loads(out.getvalue())
    return result


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set a SELinux label")
def test_the_selinux_label_of_a_file_survives(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without SELinux stores labels, and gives none to a new file: one that is not kept is gone."""
    folder, label = tmp_path / "rendered", b"system_u:object_r:httpd_sys_content_t:s0\0"
    assert render(monkeypatch, folder, "a: 1\n")["written"] == ["a.yaml"]
    os.setxattr(folder / "a.yaml", "security.selinux", label)
    assert render(monkeypatch, folder, "a: 2\n")["written"] == ["a.yaml"]
    assert (folder / "a.yaml").read_text() == "a: 2\n" and os.getxattr(folder / "a.yaml", "security.selinux") == label

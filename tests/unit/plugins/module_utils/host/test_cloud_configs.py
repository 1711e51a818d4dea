# SPDX-License-Identifier: Apache-2.0
"""A host reports the cloud configurations that a flag names or once named, and that exist."""

from __future__ import annotations

import base64
import pathlib
from typing import Any

from ansible_collections.outoftree.ccm.plugins.module_utils.host import detect


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_existing_files_of_flags_and_of_former_flags_are_reported(tmp_path: pathlib.Path) -> None:
    now, before, gone, folder = (tmp_path / name for name in ("now.conf", "before.conf", "gone.conf", "folder"))
    for path in (now, before, tmp_path / "other.conf"):
        path.write_text("[Global]\n")
    folder.mkdir()
    result: dict[str, Any] = {
        "files": {"/a": {"content": encoded(f"--cloud-config={now}")}, "/b": {"content": ""}, "/c": {"content": encoded(f"--cloud-config={folder}")}},
        "journal": {"/a": {"baselines": [{"original": encoded(f"--cloud-config={gone}")}, {"original": encoded(f"--cloud-config={before}")}]},
                    "/b": {"baselines": []}},
    }
    detect.find_cloud_configs(result)
    assert result["cloud_configs"] == [str(before), str(now)]

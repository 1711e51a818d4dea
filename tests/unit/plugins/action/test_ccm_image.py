# SPDX-License-Identifier: Apache-2.0
"""The contents of an image archive are read before anything is copied."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile

import pytest
from ansible.errors import AnsibleError
from ansible_collections.outoftree.ccm.plugins.action.ccm_image import image_id


def archive(path: pathlib.Path, manifest: object) -> str:
    content = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return str(path)


@pytest.mark.parametrize("config", ["abc123.json", "blobs/sha256/abc123"])
def test_the_id_is_the_digest_of_the_config(tmp_path: pathlib.Path, config: str) -> None:
    path = archive(tmp_path / "a.tar", [{"Config": "x.json", "RepoTags": ["other:1"]}, {"Config": config, "RepoTags": ["localhost/ccm:1"]}])
    assert image_id(path, "localhost/ccm:1") == "sha256:abc123"


def test_archives_that_cannot_serve_are_told_with_a_way_out(tmp_path: pathlib.Path) -> None:
    path = archive(tmp_path / "a.tar", [{"Config": "x.json", "RepoTags": ["other:1"]}])
    with pytest.raises(AnsibleError, match="one of its images: other:1"):
        image_id(path, "localhost/ccm:1")
    with pytest.raises(AnsibleError, match="unset ccm_runtime_image_archive"):
        image_id(str(tmp_path / "none.tar"), "x")
    (tmp_path / "text.tar").write_text("no")
    with pytest.raises(AnsibleError, match="not an image archive"):
        image_id(str(tmp_path / "text.tar"), "x")

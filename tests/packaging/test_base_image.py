# SPDX-License-Identifier: Apache-2.0
"""The base of the released image: pinned by its current digest, recorded in the image, and compared later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.packaging import base_image
from tools.packaging.environments import REPOSITORY

OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
TAG = "docker.io/library/python:3.13-slim-bookworm"
LABELS = {"org.opencontainers.image.base.name": TAG, "org.opencontainers.image.base.digest": OLD}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a mapping of skopeo's answers by image. A script replaces skopeo, so no registry gets a request."""
    answers: dict[str, Any] = {}
    program = tmp_path / "skopeo"
    script = f"""#!/usr/bin/env python3
import json, sys
answer = json.load(open({str(tmp_path / "answers")!r})).get(sys.argv[-1].removeprefix("docker://"))
sys.exit("manifest unknown") if answer is None else print(json.dumps(answer))
"""
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    class Answers(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            super().__setitem__(key, value)
            (tmp_path / "answers").write_text(json.dumps(self))

    answers = Answers()
    answers[TAG] = {"Digest": NEW}
    return answers


def test_a_tag_is_pinned_by_the_digest_that_it_has(registry: dict[str, Any]):
    assert base_image.pin(TAG) == f"{TAG}@{NEW}"
    assert base_image.pullable(f"{TAG}@{NEW}") == f"docker.io/library/python@{NEW}"
    assert base_image.labels(f"{TAG}@{NEW}") == {"base.name": TAG, "base.digest": NEW}


@pytest.mark.parametrize("reference", [TAG, "localhost:5000/a/b", "localhost/outoftree-bed-python:bookworm"])
def test_a_base_without_a_digest_is_taken_as_it_is(reference: str):
    assert (base_image.pullable(reference), base_image.labels(reference)) == (reference, {})


def test_a_port_is_no_tag():
    assert base_image.pullable(f"localhost:5000/python@{OLD}") == f"localhost:5000/python@{OLD}"


@pytest.mark.parametrize("digest", ["sha256:12", "md5:" + "0" * 64, "latest", "sha256:" + "G" * 64])
def test_what_is_no_digest_is_refused(registry: dict[str, Any], digest: str):
    registry[TAG] = {"Digest": digest}
    with pytest.raises(base_image.Failed, match="the digest must be"):
        base_image.pin(TAG)


def test_an_image_on_an_older_build_is_a_finding(registry: dict[str, Any], capsys: pytest.CaptureFixture[str]):
    registry["ghcr.io/outoftree/ccm:1.0.0"] = {"Digest": NEW, "Labels": LABELS}
    assert base_image.main(["compare", "ghcr.io/outoftree/ccm:1.0.0"]) == 1
    assert f"that tag is {NEW} now: release a patch version" in capsys.readouterr().err


def test_an_image_on_the_newest_build_is_none(registry: dict[str, Any]):
    registry[TAG] = {"Digest": OLD}
    registry["ghcr.io/outoftree/ccm:1.0.0"] = {"Digest": NEW, "Labels": LABELS}
    assert base_image.main(["compare", "ghcr.io/outoftree/ccm:1.0.0"]) == 0


@pytest.mark.parametrize("labels", [None, {}, {"org.opencontainers.image.base.name": TAG}])
def test_an_image_that_does_not_say_it_is_a_finding(registry: dict[str, Any], labels: dict[str, str] | None):
    registry["i:1"] = {"Digest": NEW, "Labels": labels}
    with pytest.raises(base_image.Failed, match="does not say what it is built on"):
        base_image.compare("i:1")


def test_an_image_that_is_not_there_is_named_with_the_reason(registry: dict[str, Any]):
    with pytest.raises(base_image.Failed, match="absent:1: manifest unknown"):
        base_image.pin("absent:1")


def test_workflows_pin_the_base_that_the_containerfiles_name():
    files = [*REPOSITORY.glob("runtime/**/Containerfile"), *REPOSITORY.glob(".github/workflows/*.yml")]
    found = {name for file in files for name in re.findall(r"\S*library/python:\S+", file.read_text())}
    assert {name.partition("=")[2] or name for name in found} == {TAG}
    release = yaml.safe_load((REPOSITORY / ".github/workflows/release.yml").read_text())
    runs = [step.get("run", "") for step in release["jobs"]["check"]["steps"]]
    (pinned,) = [at for at, text in enumerate(runs) if "tools.packaging.base_image pin" in text]
    assert "BASE_IMAGE=" in runs[pinned] and pinned < runs.index("make release-check")

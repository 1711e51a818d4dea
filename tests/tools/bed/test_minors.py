# SPDX-License-Identifier: Apache-2.0
"""The spelling of a minor version, its newest patch, and the Go module that names its binaries."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from bed import minors, paths
from bed.errors import BedError
from bed.progress import Progress


@pytest.mark.parametrize("text", ["", "1", "2.1", "1.x", "v1.x", "latest", "1.34-rc1", "1.37.2.1"])
def test_a_version_that_is_none(text: str):
    with pytest.raises(BedError, match="write a minor such as"):
        minors.minor_of(text)


@pytest.mark.parametrize("text", ["1.37", "v1.37", "1.37.2", "v1.37.2"])
def test_a_version_is_of_a_minor(text: str):
    assert minors.minor_of(text) == (1, 37)


def test_the_newest_patch_is_a_number_and_no_candidate():
    known = ["k8s.io/kubernetes", "v1.34.2", "v1.34.10", "v1.34.9", "v1.34.11-rc.0", "v1.35.20"]
    assert minors.newest((1, 34), known) == "v1.34.10"
    with pytest.raises(BedError, match=r"no release of Kubernetes 1\.3$"):
        minors.newest((1, 3), known)


OWN = """// This is a generated file.
module k8s.io/kubernetes

go 1.24.0

require k8s.io/api v0.0.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_a_module_names_the_binaries_and_the_versions_of_kubernetes_own_parts():
    written = minors.text(OWN, "v1.34", "v1.34.10")
    assert written.startswith(
        "// Names the Kubernetes 1.34 binaries that the test bed builds; there is no source here.\n"
        "module outoftree.example/bed/kubernetes/v1.34\n\ngo 1.24.0\n"
    )
    assert re.findall(r"(\S+ => .*)", written) == [
        "k8s.io/api => k8s.io/api v0.34.10",
        "k8s.io/kubelet => k8s.io/kubelet v0.34.10",
    ]
    assert "require k8s.io/kubernetes v1.34.10" in written
    tools = re.findall(r"^\tk8s\.io/kubernetes/cmd/(\S+)$", written, re.MULTILINE)
    committed = (paths.BED / "kubernetes/v1.37/go.mod").read_text()
    assert sorted(tools) == sorted(re.findall(r"^\tk8s\.io/kubernetes/cmd/(\S+)$", committed, re.MULTILINE))


def test_a_module_appears_only_when_it_is_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The module is written once: the second time, Go only lists the versions."""
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    (tmp_path / "own.mod").write_text(OWN)
    asked: list[str] = []

    def go(*command: str, cwd: str) -> str:
        asked.append(command[2])
        if command[2] == "tidy":
            assert not (tmp_path / "modules/v1.34.2").exists()
            Path(cwd, "go.sum").write_text("sums\n")
        return {"-m": "k8s.io/kubernetes v1.34.2", "download": f'{{"GoMod": "{tmp_path}/own.mod"}}', "tidy": ""}[
            command[2]
        ]

    monkeypatch.setattr(minors, "run", go)
    monkeypatch.setattr(minors.golang, "ensure", lambda _: Path("go"))
    found = [minors.find_or_write((1, 34), Progress(io.StringIO())) for _ in range(2)]
    assert asked == ["-m", "download", "tidy", "-m"]
    assert found[0] == found[1] and found[0].kubernetes == "v1.34.2"
    assert (paths.BED / "kubernetes" / found[0].module / "go.sum").read_text() == "sums\n"

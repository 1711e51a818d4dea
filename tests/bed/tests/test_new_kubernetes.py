# SPDX-License-Identifier: Apache-2.0
"""What `make new-kubernetes` reads in help texts, and what it makes of two minors."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
from pathlib import Path

import pytest

from bed import minors, paths
from bed.errors import BedError
from bed.progress import Progress

SPEC = importlib.util.spec_from_file_location("new_kubernetes", paths.BED / "new_kubernetes.py")
assert SPEC is not None and SPEC.loader is not None
new_kubernetes = sys.modules["new_kubernetes"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(new_kubernetes)
VERSIONS = new_kubernetes.load()

HELP = """
Generic flags:

      --cloud-provider string         The provider for cloud services.
  -h, --help                          help for kubelet
      --enable-admission-plugins strings   more ones (A, B). Comma-delimited list of admission plugins: One, Two-x.
      --register-node                 Register the node (DEPRECATED: set it in the file)
      --feature-gates mapStringBool   Options are:
                                      kube:OneGate=true|false (ALPHA - default=false)
                TwoGate=true|false (BETA - default=true)
"""


def test_a_help_text_is_read():
    assert new_kubernetes.flags(HELP) == {
        "cloud-provider": "",
        "help": "",
        "enable-admission-plugins": "",
        "register-node": "deprecated",
        "feature-gates": "",
    }
    assert new_kubernetes.gates(HELP) == {"OneGate": "alpha, false", "TwoGate": "beta, true"}
    assert new_kubernetes.listed(HELP, "list of admission plugins:") == {"One", "Two-x"}
    assert new_kubernetes.listed(HELP, "All controllers:") == set()


def release(minor: tuple[int, int], flags: dict[str, str], gates: dict[str, str], **more: set[str]):
    return new_kubernetes.Release(
        minor,
        {name: flags for name in new_kubernetes.COMPONENTS},
        {name: gates for name in new_kubernetes.COMPONENTS},
        **more,
    )


def part(text: str, title: str) -> list[str]:
    """The lines below a title."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title)) + 1
    return [line.strip() for line in lines[start : [*lines, ""].index("", start)]]


def test_what_concerns_us_is_apart():
    old = release((1, 36), {"cloud-provider": "", "v": "", "port": ""}, {"CloudX": "alpha, false", "Y": "beta, true"},
                  apis={"v1", "storage.k8s.io/v1"}, plugins={"A"})  # fmt: skip
    new = release((1, 37), {"v": "deprecated", "tea": ""}, {"CloudX": "beta, true"}, apis={"v1"}, plugins={"B"})
    text = new_kubernetes.report(old, new, ("cloud-provider",), (), {"v1", "storage.k8s.io/v1"})
    assert text.startswith("Kubernetes 1.36 -> 1.37\n")
    assert part(text, "Flags that concern us") == [
        f"{name}  --cloud-provider  gone" for name in new_kubernetes.COMPONENTS
    ]
    assert part(text, "Other flags")[:3] == [
        "kube-apiserver  --port  gone",
        "kube-apiserver  --tea  new",
        "kube-apiserver  --v  now deprecated, was not deprecated",
    ]
    assert part(text, "Feature gates that concern us") == ["CloudX  now beta, true, was alpha, false"]
    assert part(text, "Other feature gates") == ["Y  GA or removed"]
    assert part(text, "API versions that we use and") == ["storage.k8s.io/v1"]
    assert part(text, "Admission plugins") == ["A  gone", "B  new"]
    assert part(text, "Table of facts") == ["agrees"]


def test_flags_and_controllers_of_cloud_loops_concern_us():
    """As 1.37 removed them: none of them has the word cloud in its name."""
    old = release((1, 36), {"concurrent-service-syncs": ""}, {}, controllers={"service-lb-controller", "ttl"})
    new = release((1, 37), {}, {}, controllers={"ttl", "fresh-controller"})
    text = new_kubernetes.report(old, new, (), VERSIONS.FACTS, set())
    assert part(text, "Flags that concern us") == [
        f"{name}  --concurrent-service-syncs  gone" for name in new_kubernetes.COMPONENTS
    ]
    assert part(text, "Controllers of kube-controller-manager that are gone") == ["service-lb-controller"]
    assert part(text, "New controllers of kube-controller-manager") == ["fresh-controller  new"]
    kept = release((1, 37), {}, {}, controllers={"node-route-controller"})
    (line,) = [line for line in new_kubernetes.disagreements(kept, VERSIONS.FACTS) if "controller node" in line]
    assert line.endswith("controller node-route-controller is gone, says the table; the program knows it")


def test_the_table_of_facts_is_held_against_the_programs():
    """It says that 1.34's kubelet has no --cloud-config, and that kube-controller-manager has one."""
    found = list(new_kubernetes.disagreements(release((1, 34), {"cloud-config": ""}, {}), VERSIONS.FACTS))
    assert "kubelet: --cloud-config is gone, says the table; the program knows it" in found
    assert (
        "kube-controller-manager: --external-cloud-volume-plugin is there, says the table; the program does not"
        in found
    )
    assert not [line for line in found if line.startswith("kube-controller-manager: --cloud-config")]
    gated = release((1, 36), {}, {"DisableCloudProviders": "beta, true"})
    assert [
        line for line in new_kubernetes.disagreements(gated, VERSIONS.FACTS) if "DisableCloudProviders is gone" in line
    ]


def test_api_versions_are_ours_when_a_source_names_them():
    used = new_kubernetes.used_apis({"v1", "apps/v1", "coordination.k8s.io/v1", "node.k8s.io/v1", "unheard.k8s.io/v1"})
    assert {"v1", "apps/v1", "coordination.k8s.io/v1"} <= used and "unheard.k8s.io/v1" not in used


def test_a_minor_is_compared_with_the_newest_older_one():
    known = {(1, 30): Path(), (1, 35): Path(), (1, 36): Path()}
    assert new_kubernetes.base((1, 37), known) == (1, 36)
    assert new_kubernetes.base((1, 34), known) == (1, 30)
    assert new_kubernetes.base((1, 29), known) == (1, 30)
    with pytest.raises(BedError, match="no other minor"):
        new_kubernetes.base((1, 36), {(1, 36): Path()})


@pytest.mark.parametrize("text", ["", "1", "v1.x", "1.34-rc1"])
def test_a_version_is_a_minor(text: str):
    with pytest.raises(BedError, match="write a minor such as"):
        new_kubernetes.minor_of(text)


def test_a_minor_that_nobody_has_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    monkeypatch.setattr(minors, "run", lambda *_, **__: "k8s.io/kubernetes v1.35.4 v1.36.3\n")
    with pytest.raises(BedError) as refused:
        new_kubernetes.programs((1, 99))
    assert re.search(
        r"no programs of Kubernetes 1\.99: Go knows no release .*\n.* put those of its release .* into .*/v1\.99\.N",
        str(refused.value),
    )


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
    """It is written once: the second time Go is not asked for it."""
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

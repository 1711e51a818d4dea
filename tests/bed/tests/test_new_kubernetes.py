# SPDX-License-Identifier: Apache-2.0
"""What `make new-kubernetes` reads in help texts, and what it makes of two minors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from bed import paths
from bed.errors import BedError

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


def test_a_minor_that_is_not_here_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    with pytest.raises(
        BedError, match=r"no programs of Kubernetes 1\.99: put those of its release .* into .*/v1\.99\.N"
    ):
        new_kubernetes.programs((1, 99))

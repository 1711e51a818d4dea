# SPDX-License-Identifier: Apache-2.0
"""What `make new-kubernetes-cluster` reads in help texts, and its report about two minors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bed import minors
from bed.errors import BedError
from tools.docs import kubernetes_versions
from tools.new_kubernetes import programs

VERSIONS = kubernetes_versions.load()

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
    assert programs.flags(HELP) == {
        "cloud-provider": "",
        "help": "",
        "enable-admission-plugins": "",
        "register-node": "deprecated",
        "feature-gates": "",
    }
    assert programs.gates(HELP) == {"OneGate": "alpha, false", "TwoGate": "beta, true"}
    assert programs.listed(HELP, "list of admission plugins:") == {"One", "Two-x"}
    assert programs.listed(HELP, "All controllers:") == set()


def release(minor: tuple[int, int], flags: dict[str, str], gates: dict[str, str], **more: set[str]):
    return programs.Release(
        minor,
        {name: flags for name in programs.COMPONENTS},
        {name: gates for name in programs.COMPONENTS},
        **more,
    )


def part(text: str, title: str) -> list[str]:
    """Return the lines below a title, up to an empty line."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(title)) + 1
    return [line.strip() for line in lines[start : [*lines, ""].index("", start)]]


def test_what_concerns_us_is_apart():
    old = release((1, 36), {"cloud-provider": "", "v": "", "port": ""}, {"CloudX": "alpha, false", "Y": "beta, true"},
                  apis={"v1", "storage.k8s.io/v1"}, plugins={"A"})  # fmt: skip
    new = release((1, 37), {"v": "deprecated", "tea": ""}, {"CloudX": "beta, true"}, apis={"v1"}, plugins={"B"})
    text = programs.report(old, new, ("cloud-provider",), (), {"v1", "storage.k8s.io/v1"})
    assert text.startswith("Kubernetes 1.36 -> 1.37\n")
    assert part(text, "Flags that concern us") == [f"{name}  --cloud-provider  gone" for name in programs.COMPONENTS]
    assert part(text, "Other flags")[:3] == [
        "kube-apiserver  --port  gone",
        "kube-apiserver  --tea  new",
        "kube-apiserver  --v  now deprecated, was not deprecated",
    ]
    assert part(text, "Feature gates that concern us") == ["CloudX  now beta, true, was alpha, false"]
    assert part(text, "Other feature gates") == ["Y  GA, deprecated or removed"]
    assert part(text, "API versions that we use and") == ["storage.k8s.io/v1"]
    assert part(text, "Admission plugins") == ["A  gone", "B  new"]
    assert part(text, "Table of facts") == ["agrees"]


def test_flags_and_controllers_of_cloud_loops_concern_us():
    """1.37 removed such flags and controllers; none has the word cloud in its name."""
    old = release((1, 36), {"concurrent-service-syncs": ""}, {}, controllers={"service-lb-controller", "ttl"})
    new = release((1, 37), {}, {}, controllers={"ttl", "fresh-controller"})
    text = programs.report(old, new, (), VERSIONS.FACTS, set())
    assert part(text, "Flags that concern us") == [
        f"{name}  --concurrent-service-syncs  gone" for name in programs.COMPONENTS
    ]
    assert part(text, "Controllers of kube-controller-manager that are gone") == ["service-lb-controller"]
    assert part(text, "New controllers of kube-controller-manager") == ["fresh-controller  new"]
    kept = release((1, 37), {}, {}, controllers={"node-route-controller"})
    (line,) = [line for line in programs.disagreements(kept, VERSIONS.FACTS) if "controller node" in line]
    assert line.endswith("controller node-route-controller is gone, says the table; the program knows it")


def test_the_table_of_facts_is_held_against_the_programs():
    """The table says that 1.34's kubelet has no --cloud-config, and that kube-controller-manager has the flag."""
    found = list(programs.disagreements(release((1, 34), {"cloud-config": ""}, {}), VERSIONS.FACTS))
    assert "kubelet: --cloud-config is gone, says the table; the program knows it" in found
    assert (
        "kube-controller-manager: --external-cloud-volume-plugin is there, says the table; the program does not"
        in found
    )
    assert not [line for line in found if line.startswith("kube-controller-manager: --cloud-config")]
    gated = release((1, 36), {}, {"DisableCloudProviders": "beta, true"})
    assert [line for line in programs.disagreements(gated, VERSIONS.FACTS) if "DisableCloudProviders is gone" in line]


def test_api_versions_are_ours_when_a_source_names_them():
    used = programs.used_apis({"v1", "apps/v1", "coordination.k8s.io/v1", "node.k8s.io/v1", "unheard.k8s.io/v1"})
    assert {"v1", "apps/v1", "coordination.k8s.io/v1"} <= used and "unheard.k8s.io/v1" not in used


def test_a_minor_is_compared_with_the_newest_older_one():
    known = {(1, 30): Path(), (1, 35): Path(), (1, 36): Path()}
    assert programs.base((1, 37), known) == (1, 36)
    assert programs.base((1, 34), known) == (1, 30)
    assert programs.base((1, 29), known) == (1, 30)
    with pytest.raises(BedError, match="no other minor"):
        programs.base((1, 36), {(1, 36): Path()})


def test_a_minor_that_nobody_has_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("OUTOFTREE_CACHE", str(tmp_path))
    monkeypatch.setattr(minors, "run", lambda *_, **__: "k8s.io/kubernetes v1.35.4 v1.36.3\n")
    with pytest.raises(BedError) as refused:
        programs.programs((1, 99))
    assert re.search(
        r"no programs of Kubernetes 1\.99: Go knows no release .*\n.* put those of its release .* into .*/v1\.99\.N",
        str(refused.value),
    )

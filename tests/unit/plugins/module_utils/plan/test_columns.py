# SPDX-License-Identifier: Apache-2.0
"""Reports fit into the columns of a terminal: no word and no command is broken, and a row stays recognisable as a row."""

from __future__ import annotations

import pytest

from ansible_collections.outoftree.ccm.plugins.filter.readable import readable
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import columns

COMMAND = "ansible-playbook -i '/srv/a cluster of ours/in the basement/behind the second door/inventory.ini' outoftree.ccm.rollback"
LONG = "the kubelet did not become healthy within 180 s, and so the old file is active again, which nobody expected"


def shown(*lines: str, width: int = 80) -> list[str]:
    return columns.fitted(lines, width)


@pytest.mark.parametrize(("line", "expected"), [
    ("", [""]),
    ("ok    nodes  3 Node(s) are initialised", ["ok    nodes  3 Node(s) are initialised"]),
    ("NOTE: " + LONG, ["NOTE: the kubelet did not become healthy within 180 s, and so the old", "  file is active again, which nobody expected"]),
    ("FAIL  kubelets  w-2: " + LONG, ["FAIL  kubelets  w-2: the kubelet did not become healthy within 180 s,",
                                      "                and so the old file is active again, which nobody",
                                      "                expected"]),
    # The longest word does not fit into the last cell.
    ("FAIL  flags  cp-1: kube-controller-manager /etc/kubernetes/manifests/kube-controller-manager-of-ours.yaml --cloud-config",
     ["FAIL  flags  cp-1: kube-controller-manager",
      "  /etc/kubernetes/manifests/kube-controller-manager-of-ours.yaml", "  --cloud-config"]),
    ("                      /etc/kubernetes/manifests/kube-controller-manager-of-ours.yaml",
     ["                      /etc/kubernetes/manifests/kube-controller-manager-of-ours.yaml"]),
    ("  + " + LONG, ["  + the kubelet did not become healthy within 180 s, and so the old file", "    is active again, which nobody expected"]),
    # A row with a long first cell leaves too little for the last one.
    ("ip-10-0-0-1.eu-central-1.compute.internal  restored  2 of 2  " + LONG[:46],
     ["ip-10-0-0-1.eu-central-1.compute.internal  restored  2 of 2  the kubelet", "  did not become healthy within 180"]),
    ("x" * 90, ["x" * 90]),
    # No line ends between a sign and its flag, or between `risk` and its letter.
    ("  - --enable-admission-plugins=" + "NamespaceLifecycle," * 3 + "  (why 5)",
     ["  - --enable-admission-plugins=" + "NamespaceLifecycle," * 3, "    (why 5)"]),
    ("cp-1: kube-controller-manager, /etc/kubernetes/controller-managers (risk a)",
     ["cp-1: kube-controller-manager, /etc/kubernetes/controller-managers", "  (risk a)"]),
    ("Next: Fix the cause and run again: " + COMMAND, ["Next: Fix the cause and run again:", COMMAND]),
    (LONG + ". Next: " + COMMAND, [*shown(LONG + ". Next:"), COMMAND]),
    ("another check runs, or one was killed. If none runs, remove it: kubectl delete namespace outoftree-ccm-check",
     ["another check runs, or one was killed. If none runs, remove it:", "kubectl delete namespace outoftree-ccm-check"]),
    ("first\nsecond", ["first", "second"]),
])
def test_a_line_fits_eighty_columns(line: str, expected: list[str]) -> None:
    assert shown(line) == expected
    assert shown(*expected) == expected  # lines that fit are not changed, also if they were wrapped before


def test_a_command_in_the_middle_of_a_text_is_a_part_of_it() -> None:
    text = "look at the log: kubectl -n kube-system logs ds/cloud-controller-manager. Then decide whether the cloud or the cluster is to blame"
    assert " ".join(" ".join(shown(text)).split()) == text and max(map(len, shown(text))) <= 72


def test_a_wider_terminal_is_used() -> None:
    assert shown("NOTE: " + LONG, width=200) == ["NOTE: " + LONG]


def test_programs_get_the_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert readable(["NOTE: " + LONG, "x"], True) == "\n".join(shown("NOTE: " + LONG, "x"))
    assert readable(["NOTE: " + LONG, "x"], False) == ["NOTE: " + LONG, "x"]
    assert readable(["NOTE: " + LONG, "x"], False, " | ") == "NOTE: " + LONG + " | x"
    monkeypatch.setenv("COLUMNS", "300")
    assert readable(["NOTE: " + LONG], True, " | ") == "NOTE: " + LONG

# SPDX-License-Identifier: Apache-2.0
"""A kubeadm patch of several documents that somebody edited after the migration: each document is undone."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.edit import patches
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import rollback, undo

PATH = "/etc/kubernetes/patches/kube-controller-manager0+merge.yaml"
LABELS = "metadata:\n  labels: {a: b}\n"
FIRST = "spec:\n  containers:\n  - name: kube-controller-manager\n    command:\n    - kube-controller-manager\n    - --cloud-provider=aws\n    - --v=2\n"
SECOND = FIRST.replace("--v=2", "--v=3").replace("=aws", "=openstack")


def back(before: str, written: str, now: str) -> undo.Undone:
    kind = rollback._kind({}, PATH, {"component": "kubeadm-patches"})
    assert kind is not None
    return undo.undo(kind, before, written, now, (1, 30))


def edited(text: str) -> str:
    after, changes = patches.edit(PATH, text, (1, 30))
    assert changes
    return after


@pytest.mark.parametrize("documents", [(LABELS, FIRST), (FIRST, LABELS), (FIRST, SECOND), (LABELS, FIRST, SECOND), ("", FIRST, SECOND), (FIRST,)])
@pytest.mark.parametrize("change", [("--v=2", "--v=5"), ("    - --v=2\n", "    - --v=2\n    - --profiling=false\n"), ("command:\n", "command:  # ours\n")])
def test_each_document_of_an_edited_patch_is_undone(documents: tuple[str, ...], change: tuple[str, str]) -> None:
    before = "---\n".join(documents)
    written = edited(before)
    now = written.replace(*change)
    assert now != written
    assert back(before, written, now) == undo.Undone(before.replace(*change), [])


def test_a_flag_of_the_second_document_that_was_set_later_stays() -> None:
    before = LABELS + "---\n" + FIRST
    written = edited(before)
    undone = back(before, written, written.replace("--cloud-provider=external", "--cloud-provider=gce"))
    assert "--cloud-provider=gce" in undone.text and len(undone.kept) == 1 and "stays gce" in undone.kept[0]


def test_documents_that_came_or_went_are_not_guessed() -> None:
    before = LABELS + "---\n" + FIRST
    written = edited(before)
    for now, number in ((written + "---\n" + LABELS, 3), (written.partition("---\n")[2], 1)):
        with pytest.raises(undo.CannotUndo, match=f"it has {number} documents, but it had 2"):
            back(before, written, now)


def test_a_flag_with_which_the_release_does_not_start_is_seen_in_each_document() -> None:
    dead = FIRST.replace("--cloud-provider=aws", "--feature-gates=DisableCloudProviders=false")
    kind = rollback._kind({}, PATH, {"component": "kubeadm-patches"})
    assert rollback._fatal(kind, LABELS + "---\n" + dead, LABELS, (1, 36)) is True
    assert rollback._fatal(kind, dead, LABELS, (1, 36)) is True

# SPDX-License-Identifier: Apache-2.0
"""Which tags a playbook accepts. tests/unit/test_playbooks.py tests that each playbook uses the filter and refuses other tags."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.outoftree.ccm.plugins.filter.whole_run import whole_run

STAGES = ["stage1", "stage2"]


@pytest.mark.parametrize(("run", "parts"), [
    (["all"], []), (("all",), STAGES), (["never", "all"], []), (["stage1"], STAGES), (["stage2", "stage1"], STAGES),
])
def test_no_tags_and_the_playbooks_own_tags(run: list[str], parts: list[str]) -> None:
    assert whole_run("localhost", run, [], parts) == "localhost"


@pytest.mark.parametrize(("run", "parts", "words"), [
    (["quick"], [], "no tag quick, .* No part of it is safe alone: run it without --tags"),
    (["always"], [], "no tag always"), (["untagged"], [], "no tag untagged"), (["tagged"], STAGES, "no tag tagged"),
    (["all", "quick"], [], "no tag quick"), ([], [], "no tag ''"), (["stage1"], [], "no tag stage1"),
    (["stage1", "stage9"], STAGES, "no tag stage9, .* one of its tags: stage1, stage2"),
])
def test_other_tags_are_refused(run: list[str], parts: list[str], words: str) -> None:
    with pytest.raises(AnsibleFilterError, match="Nothing was changed or checked: .*" + words):
        whole_run("localhost", run, [], parts)


@pytest.mark.parametrize("skipped", [["all"], ["always"], ["slow", "x"], ["stage1"], ["molecule"], ["kubelet-notest"]])
def test_skipped_tags_are_refused(skipped: list[str]) -> None:
    with pytest.raises(AnsibleFilterError, match="--skip-tags {0} .* without --skip-tags".format(",".join(skipped))):
        whole_run("localhost", ["all"], skipped, STAGES)


def test_the_tags_that_molecule_skips_are_not_refused() -> None:
    skipped = ["molecule-notest", "notest", "molecule-idempotence-notest"]
    assert whole_run("localhost", ["all"], skipped) == "localhost"

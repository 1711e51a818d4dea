# SPDX-License-Identifier: Apache-2.0
"""Flags in argument lists and comma-separated values."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import flags


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["kubelet", "--cloud-provider=external"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider", "external", "--v=2"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider="], {"cloud-provider": ""}),
        (["kubelet", "--cloud-provider=aws", "--cloud-provider=external"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider-x=1", "cloud-provider=aws"], {}),
        (["kubelet", "--cloud-config"], {"cloud-config": ""}),
        (["kubelet", "--cloud-config", "/c"], {"cloud-config": "/c"}),
        (["kube-controller-manager", "--enable-leader-migration", "x"], {"enable-leader-migration": "true"}),
        (["kube-controller-manager", "--enable-leader-migration=false"], {"enable-leader-migration": "false"}),
    ],
)
def test_the_last_value_of_a_flag_counts(argv: list[str], expected: dict[str, str]) -> None:
    assert flags.effective(argv) == expected


def test_the_value_of_a_flag_is_not_taken_for_a_flag() -> None:
    found = flags.find_flags(["x", "--cloud-config", "--cloud-provider=aws", "--cloud-provider=external"])
    assert [(flag.name, flag.value, flag.index, flag.width) for flag in found] == [
        ("cloud-config", "--cloud-provider=aws", 1, 2), ("cloud-provider", "external", 3, 1)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("NodeRestriction,PersistentVolumeLabel", "NodeRestriction"), ("PersistentVolumeLabel", ""), ("A,B", "A,B"),
     ("A,PersistentVolumeLabel,B", "A,B"), ("PersistentVolumeLabelX", "PersistentVolumeLabelX"),
     ("A, PersistentVolumeLabel ,B", "A,B")],
)
def test_list_items_are_removed_as_items(value: str, expected: str) -> None:
    assert flags.without_list_items(value, ["PersistentVolumeLabel"]) == expected


def test_overlapping_edits_are_an_error() -> None:
    for first, second in (("x", ""), ("", "x"), ("x", "y")):
        with pytest.raises(ValueError, match="overlapping"):
            flags.apply_spans("abcdef", [flags.Span(0, 3, first), flags.Span(2, 4, second)])


@pytest.mark.parametrize(("spans", "expected"), [
    ([(0, 3, ""), (2, 4, "")], "ef"),
    ([(0, 5, ""), (2, 4, "")], "f"),
    ([(0, 3, ""), (2, 4, ""), (3, 5, "")], "f"),
    ([(0, 3, ""), (2, 4, ""), (4, 4, "x"), (4, 4, "y")], "xyef"),
    ([(2, 2, "x"), (2, 4, "")], "abxef"),
])
def test_removals_that_overlap_are_one_removal(spans: list[tuple[int, int, str]], expected: str) -> None:
    assert flags.apply_spans("abcdef", [flags.Span(*span) for span in spans]) == expected


@pytest.mark.parametrize(("argument", "expected"), [
    ("--a_b=c=d", ("a-b", True, "c=d")), ("--a=", ("a", True, "")), ("--a", ("a", False, "")), ("-a=b", ("", False, "")), ("a", ("", False, ""))])
def test_parts_of_an_argument(argument: str, expected: tuple[str, bool, str]) -> None:
    assert flags.split_flag(argument) == expected


@pytest.mark.parametrize(("argv", "expected"), [
    ([], ""),
    (["/usr/bin/kubelet", "-c"], ""),
    (["sh", "script", "-c"], ""),
    (["sh", "--posix", "-c", "x"], "sh -c"),
    (["/bin/bash", "-o", "pipefail", "-c", "x"], "/bin/bash -c"),
    (["bash", "-eo", "pipefail", "-c", "x"], "bash -c"),
    (["bash", "+o", "c", "-O", "extglob", "--norc", "--rcfile", "/rc", "--init-file", "-x", "-lc", "x"], "bash -lc"),
    (["bash", "+c", "x"], ""),
    (["bash", "+e", "-c", "x"], "bash -c"),
    (["bash", "--norc", "script", "-c"], ""),
    (["bash", "--", "-c"], ""),
    (["bash", "-", "-c"], ""),
    (["bash", "", "-c"], ""),
    (["-/usr/bin/nice", "-n", "5", "/bin/sh", "-c", "x"], "/bin/sh -c"),
    (["nice", "sh", "script", "bash", "-c"], ""),
    (["/usr/bin/env", "-i", "-u", "HTTP_PROXY", "A=1", "sh", "-c", "x"], "sh -c"),
    (["/usr/bin/env", "-S", "kubelet --v=2"], "/usr/bin/env -S"),
    (["env", "-i", "-vSkubelet --v=2"], "env -vS"),
    (["env", "--split-string=kubelet --v=2"], "env --split-string"),
    (["env", "-i", "kubelet", "-S"], ""),
    (["env"], ""),
    (["busybox", "sh", "-c", "x"], "sh -c"),
    (["/usr/bin/nsenter", "-t", "1", "--", "/bin/bash", "-c", "x"], "/bin/bash -c"),
    (["kubelet", "--shell=/bin/sh", "-c"], ""),
    (["sh", "-e", "-c", "x"], "sh -c"),
    (["A=1", "env", "B=2", "/bin/bash", "-ec", "x"], "/bin/bash -ec"),
    (["sh", "-e"], ""),
])
def test_a_shell_that_is_given_a_text(argv: list[str], expected: str) -> None:
    assert flags.shell(argv) == expected


@pytest.mark.parametrize("text", [
    "--cloud-config=/etc/c.conf", 'X="--cloud-config=/etc/c.conf --v=2"', "--cloud_config /etc/c.conf", "    - --cloud-config=/etc/c.conf\n    - --v=2",
    "- --cloud-config\n- /etc/c.conf", '["--cloud-config", "/etc/c.conf"]', "- 'cloud-config=/etc/c.conf'", "cloud-config: /etc/c.conf",
    "# x\n  --cloud-config=/etc/c.conf",
])
def test_the_path_of_a_cloud_configuration_is_found_in_any_layout(text: str) -> None:
    assert flags.cloud_configs(text) == {"/etc/c.conf"}


@pytest.mark.parametrize("text", [
    "", "  # --cloud-config=/etc/c.conf", "--cloud-config=${CONFIG}", "--my-cloud-configs=/etc/c.conf", "name: cloud-config\nmountPath: /etc/c.conf",
    "path: /etc/cloud-config/azure.json",
])
def test_other_texts_name_no_cloud_configuration(text: str) -> None:
    assert flags.cloud_configs(text) == set()


def test_several_cloud_configurations_are_found() -> None:
    assert flags.cloud_configs("--cloud-config=/a\n--cloud-config=/b\n") == {"/a", "/b"}


@pytest.mark.parametrize("value", ["1", "t", "T", "true", "TRUE", "True"])
def test_what_go_reads_as_true(value: str) -> None:
    assert flags.is_true(value)


@pytest.mark.parametrize("value", ["0", "f", "F", "false", "FALSE", "False", "", "yes", "on", "tRUE", " true"])
def test_what_go_does_not_read_as_true(value: str) -> None:
    assert not flags.is_true(value)

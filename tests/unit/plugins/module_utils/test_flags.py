# SPDX-License-Identifier: Apache-2.0
"""Flags in argument lists and comma-separated values."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils import _flags, _versions


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["kubelet", "--cloud-provider=external"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider", "external", "--v=2"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider="], {"cloud-provider": ""}),
        (["kubelet", "--cloud-provider=aws", "--cloud-provider=external"], {"cloud-provider": "external"}),
        (["kubelet", "--cloud-provider-x=1", "cloud-provider=aws"], {}),
        (["kubelet", "--cloud-config"], {"cloud-config": ""}),
    ],
)
def test_the_last_value_of_a_flag_counts(argv: list[str], expected: dict[str, str]) -> None:
    assert _flags.effective(argv) == expected


def test_the_value_of_a_flag_is_not_taken_for_a_flag() -> None:
    found = _flags.find_flags(["x", "--cloud-config", "--cloud-provider=aws", "--cloud-provider=external"])
    assert [(flag.name, flag.value, flag.index, flag.width) for flag in found] == [
        ("cloud-config", "--cloud-provider=aws", 1, 2), ("cloud-provider", "external", 3, 1)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("NodeRestriction,PersistentVolumeLabel", "NodeRestriction"), ("PersistentVolumeLabel", ""), ("A,B", "A,B"),
     ("A,PersistentVolumeLabel,B", "A,B"), ("PersistentVolumeLabelX", "PersistentVolumeLabelX")],
)
def test_list_items_are_removed_as_items(value: str, expected: str) -> None:
    assert _flags.without_list_items(value, ["PersistentVolumeLabel"]) == expected


def test_overlapping_edits_are_an_error() -> None:
    with pytest.raises(ValueError, match="overlapping"):
        _flags.apply_spans("abcdef", [_flags.Span(0, 3, ""), _flags.Span(2, 4, "")])


@pytest.mark.parametrize(("text", "expected"), [("v1.36.3", (1, 36)), ("1.30", (1, 30)), ("v1.31.0-rc.1+k3s1", (1, 31)),
                                                ("latest", None), ("", None)])
def test_versions_are_read_from_tags(text: str, expected: tuple[int, int] | None) -> None:
    assert _versions.parse(text) == expected


@pytest.mark.parametrize(
    ("component", "flag", "version", "value", "expected"),
    [
        ("kube-apiserver", "cloud-provider", (1, 32), None, "kube-apiserver does not start with it from 1.33 on"),
        ("kube-apiserver", "cloud-provider", (1, 33), None, "kube-apiserver 1.33 does not start with it"),
        ("kube-apiserver", "enable-admission-plugins", (1, 30), "PersistentVolumeLabel",
         "kube-apiserver does not start with it from 1.31 on"),
        ("kubelet", "cloud-config", (1, 33), None, "kubelet does not start with it from 1.34 on"),
        ("kubelet", "cloud-config", (1, 36), None, "kubelet 1.36 does not start with it"),
        ("kube-controller-manager", "cloud-config", (1, 36), None, ""),
    ],
)
def test_the_version_table_says_from_when_a_flag_is_fatal(
    component: str, flag: str, version: tuple[int, int], value: str | None, expected: str,
) -> None:
    assert _versions.risk_of_keeping(component, flag, version, value) == expected

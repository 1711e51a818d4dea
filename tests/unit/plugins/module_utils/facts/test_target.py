# SPDX-License-Identifier: Apache-2.0
"""Which flags are removed, kept, changed or added, for each component and release."""

from __future__ import annotations

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import target, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import find_flags

KCM = "kube-controller-manager"
OLD, NEW = (1, 30), (1, 31)


def changed(component: str, version: tuple[int, int], *argv: str) -> list[tuple[str, str | None, str | None]]:
    return [(change.name, change.now, change.then) for change in target.control_plane_changes(component, find_flags(argv), version)]


@pytest.mark.parametrize(("version", "argv", "expected"), [
    (OLD, [], [("cloud-provider", None, "external")]),
    (OLD, ["--cloud-provider=external"], []),
    (OLD, ["--cloud-provider=aws"], [("cloud-provider", "aws", "external")]),
    (OLD, ["--cloud-provider="], [("cloud-provider", "", "external")]),
    (OLD, ["--cloud-provider=aws", "--cloud-provider=external"], [("cloud-provider", "aws", None)]),
    (OLD, ["--cloud-provider=external", "--cloud-provider=aws"], [("cloud-provider", "external", None), ("cloud-provider", "aws", "external")]),
    (OLD, ["--cloud-provider=external", "--cloud-provider=external"], []),
    (OLD, ["--cloud-config=/c", "--external-cloud-volume-plugin=aws", "--cloud-provider=external"],
     [("cloud-config", "/c", None), ("external-cloud-volume-plugin", "aws", None)]),
    (OLD, ["--leader-migration-config=/m", "--enable-leader-migration", "--cloud-provider=external"],
     [("leader-migration-config", "/m", None), ("enable-leader-migration", "true", None)]),
    (NEW, [], []),
    (NEW, ["--cloud-provider=external"], []),
    (NEW, ["--cloud-provider=aws", "--cloud-provider=external"], [("cloud-provider", "aws", None)]),
    (NEW, ["--cloud-provider="], [("cloud-provider", "", None)]),
    (NEW, ["--cloud-config=/c", "--enable-leader-migration"], [("cloud-config", "/c", None), ("enable-leader-migration", "true", None)]),
])
def test_what_becomes_of_the_flags_of_kube_controller_manager(version: tuple[int, int], argv: list[str], expected: list[tuple[str, ...]]) -> None:
    assert changed(KCM, version, *argv) == expected


@pytest.mark.parametrize("flag", ["cloud-config", "external-cloud-volume-plugin", *target.MIGRATION_FLAGS])
def test_the_reason_is_the_releases_own_once_in_tree_providers_are_gone(flag: str) -> None:
    def why(version: tuple[int, int]) -> str:
        return next(change.why for change in target.control_plane_changes(KCM, find_flags([f"--{flag}=x"]), version) if change.name == flag)

    assert why(NEW) == why((1, 36)) == versions.reason(KCM, flag)
    assert why(OLD) == why((1, 29)) != why(NEW) and why(OLD)


def test_the_reason_says_what_became_of_a_provider_only_where_one_is_named() -> None:
    named, empty = (target.control_plane_changes(KCM, find_flags([f"--cloud-provider={value}"]), NEW)[0].why for value in ("aws", ""))
    assert versions.about_provider("aws") in named and versions.why(KCM, "cloud-provider", NEW, "in-tree") in named
    assert empty and versions.why(KCM, "cloud-provider", NEW, "in-tree") not in empty


@pytest.mark.parametrize(("argv", "provider", "external"), [
    ([], "", False), (["--cloud-provider=aws"], "aws", False), (["--cloud-provider=external"], "", True), (["--cloud-provider="], "", False),
    (["--cloud-provider=external", "--cloud-provider=aws"], "aws", False), (["--cloud-provider=aws", "--cloud-provider=external"], "", True),
    (["--cloud-provider=aws", "--cloud-config=external"], "aws", False),
])
def test_the_last_provider_counts(argv: list[str], provider: str, external: bool) -> None:
    assert (target.in_tree_provider(find_flags(argv)), target.is_external(find_flags(argv))) == (provider, external)


@pytest.mark.parametrize(("argv", "expected"), [
    ([], False), (["--enable-leader-migration"], True), (["--enable-leader-migration=T"], True), (["--enable-leader-migration=1"], True),
    (["--enable-leader-migration=false"], False), (["--enable-leader-migration", "--enable-leader-migration=false"], False),
    (["--enable-leader-migration=false", "--enable-leader-migration=true"], True), (["--leader-migration-config=true"], False),
])
def test_whether_the_loops_are_handed_over(argv: list[str], expected: bool) -> None:
    assert target.hands_over(find_flags(argv)) is expected


@pytest.mark.parametrize(("component", "argv", "expected"), [
    (KCM, ["--cloud-provider=aws"], [("enable-leader-migration", None, "true"), ("leader-migration-config", None, "/m")]),
    (KCM, ["--enable-leader-migration=false", "--cloud-provider=aws", "--leader-migration-config=/old"],
     [("enable-leader-migration", "false", None), ("leader-migration-config", "/old", None), ("enable-leader-migration", None, "true"),
      ("leader-migration-config", None, "/m")]),
    (KCM, ["--enable-leader-migration", "--leader-migration-config=/own"], []),
    ("kube-apiserver", [], []),
])
def test_what_makes_the_loops_be_handed_over(component: str, argv: list[str], expected: list[tuple[str, ...]]) -> None:
    found = target.leader_migration_changes("/m")(component, find_flags(argv), OLD)
    assert [(change.name, change.now, change.then) for change in found] == expected


def test_changes_come_in_the_order_of_the_flags_and_new_ones_last() -> None:
    argv = ["--feature-gates=DisableCloudProviders=false", "--cloud-config=/c", "--feature-gates=InTreePluginAWSUnregister=true"]
    assert [(name, now) for name, now, unused in changed(KCM, OLD, *argv)] == [
        ("feature-gates", "DisableCloudProviders=false"), ("cloud-config", "/c"), ("feature-gates", "InTreePluginAWSUnregister=true"),
        ("cloud-provider", None)]


def test_what_is_left_of_the_flags() -> None:
    flags = find_flags(["--cloud-provider=aws", "--cloud-config=/c", "--feature-gates=A=true"])
    assert target.flags_after(flags, target.control_plane_changes(KCM, flags, OLD)) == [("cloud-provider", "external"), ("feature-gates", "A=true")]
    assert target.flags_after([], target.control_plane_changes(KCM, [], OLD)) == [("cloud-provider", "external")]
    assert target.flags_after(flags, []) == [(flag.name, flag.value) for flag in flags]


@pytest.mark.parametrize(("before", "after"), [
    ("X=true, DisableCloudProviders=true", "X=true"),
    ("DisableCloudProviders=true ,X=true", "X=true"),
    ("X=true,\tDisableCloudProviders = true,Y=true", "X=true,Y=true"),
    (" DisableCloudProviders=true ", None),
])
@pytest.mark.parametrize("component", ["kubelet", KCM, "kube-apiserver"])
def test_a_gate_goes_with_the_blanks_around_it(component: str, before: str, after: str | None) -> None:
    """component-base strips blanks from names and values of gates, so clusters with such flags run."""
    (change,) = target.gate_changes(component, find_flags(["--feature-gates=" + before]), (1, 32))
    assert (change.now, change.then) == (before, after)


@pytest.mark.parametrize(("flag", "then"), [(None, None), (target.Flag("cloud-provider", "aws", 0, 1), "aws")])
def test_a_change_that_changes_nothing_is_refused(flag: target.Flag | None, then: str | None) -> None:
    with pytest.raises(ValueError, match="--cloud-provider would be changed"):
        target.Change("cloud-provider", flag, then, "", "")

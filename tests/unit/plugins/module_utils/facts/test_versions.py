# SPDX-License-Identifier: Apache-2.0
"""The table of version facts: it is consistent, the planner agrees with it, and a page of the documentation is generated from it."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import pytest
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import target, versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.flags import CLOUD_CONTROLLERS, find_flags

REPOSITORY = pathlib.Path(__file__).resolve().parents[5]
RELEASES = [(1, minor) for minor in range(versions.SUPPORTED[0][1], versions.SUPPORTED[1][1] + 1)]


@pytest.mark.parametrize(("text", "expected"), [("v1.36.3", (1, 36)), ("1.30", (1, 30)), ("v1.31.0-rc.1+k3s1", (1, 31)),
                                                ("v1.33.4+rke2r1", (1, 33)), ("latest", None), ("", None)])
def test_versions_are_read_from_tags(text: str, expected: tuple[int, int] | None) -> None:
    assert versions.parse(text) == expected


@pytest.mark.parametrize(
    ("component", "flag", "version", "value", "expected"),
    [
        ("kube-apiserver", "cloud-provider", (1, 31), None, "kube-apiserver does not start with it from 1.33 on"),
        ("kube-apiserver", "cloud-provider", (1, 32), None, "kube-apiserver does not start with it from 1.33, the next release, on"),
        ("kube-apiserver", "cloud-provider", (1, 33), None, "kube-apiserver 1.33 does not start with it"),
        ("kube-apiserver", "enable-admission-plugins", (1, 29), "PersistentVolumeLabel",
         "kube-apiserver does not start with it from 1.31 on"),
        ("kubelet", "cloud-config", (1, 30), None, "kubelet does not start with it from 1.34 on"),
        ("kubelet", "cloud-config", (1, 36), None, "kubelet 1.36 does not start with it"),
        ("kube-controller-manager", "cloud-config", (1, 36), None, ""),
    ],
)
def test_the_table_says_from_when_a_flag_is_fatal(
    component: str, flag: str, version: tuple[int, int], value: str | None, expected: str,
) -> None:
    assert versions.risk_of_keeping(component, flag, version, value) == expected


@pytest.mark.parametrize(("image", "expected"), [
    ("registry.k8s.io/kube-apiserver:v1.36.3", (1, 36)),
    ("registry.example:5000/kube-apiserver:v1.36.3@sha256:0123", (1, 36)),
    ("registry.example:5000/kube-apiserver@sha256:0123", None),
    ("", None),
    ("r.example/kube-apiserver:2024.10-k8s1.30", None),
    ("r.example/kube-apiserver:release-20250101.1", None),
    ("r.example/kube-apiserver:v1.30", (1, 30)),
    ("r.example/kube-apiserver:1.30.4_vendor.1", (1, 30)),
    ("r.example/kube-apiserver:v1.30.4-rc.1-vendor2", (1, 30)),
    ("r.example/kube-apiserver:v1.2024.1", None),
    ("r.example/kube-apiserver:v11.30", None),
])
def test_the_release_of_an_image_is_in_its_tag(image: str, expected: tuple[int, int] | None) -> None:
    assert versions.of_image(image) == expected


@pytest.mark.parametrize(
    ("component", "flag", "value", "version", "expected"),
    [
        ("kube-apiserver", "cloud-config", "/c", (1, 32), False),
        ("kube-apiserver", "cloud-config", "/c", (1, 33), True),
        ("kubelet", "cloud-provider", "aws", (1, 30), False),
        ("kubelet", "cloud-provider", "aws", (1, 31), True),
        ("kubelet", "cloud-provider", "external", (1, 36), False),
        ("kubelet", "cloud-provider", "", (1, 36), False),
        ("kube-controller-manager", "cloud-provider", "external", (1, 36), False),
        ("kube-apiserver", "enable-admission-plugins", " PersistentVolumeLabel ", (1, 31), True),
        ("kube-apiserver", "enable-admission-plugins", "NodeRestriction", (1, 36), False),
        ("kubelet", "feature-gates", "DisableCloudProviders=False", (1, 31), True),
        ("kubelet", "feature-gates", "DisableCloudProviders=true", (1, 32), False),
        ("kubelet", "feature-gates", "DisableCloudProviders=true", (1, 33), True),
        ("kubelet", "feature-gates", "InTreePluginAWSUnregister=false", (1, 31), True),
        ("kubelet", "feature-gates", "InTreePluginAWSUnregister=false", (1, 30), False),
        ("kubelet", "v", "DisableCloudProviders", (1, 36), False),
        ("kube-controller-manager", "concurrent-service-syncs", "5", (1, 36), False),
        ("kube-controller-manager", "concurrent-service-syncs", "5", (1, 37), True),
        ("kube-controller-manager", "controllers", "*,bootstrapsigner,-service", (1, 36), False),
        ("kube-controller-manager", "controllers", "*,bootstrapsigner,-service", (1, 37), True),
        ("kube-controller-manager", "controllers", "cloud-node-lifecycle-controller", (1, 37), True),
        ("kube-controller-manager", "controllers", '"*","-route"', (1, 37), True),
        ("kube-apiserver", "enable-admission-plugins", '"NodeRestriction","PersistentVolumeLabel"', (1, 31), True),
        ("kube-controller-manager", "controllers", "*,bootstrapsigner,tokencleaner,-service-cidr-controller", (1, 37), False),
        ("kube-controller-manager", "cidr-allocator-type", "CloudAllocator", (1, 31), False),
        ("kube-controller-manager", "cidr-allocator-type", "IPAMFromCloud", (1, 32), True),
        ("kube-controller-manager", "cidr-allocator-type", "RangeAllocator", (1, 37), False),
        ("kube-apiserver", "cloud-provider-gce-lb-src-cidrs", "10.0.0.0/8", (1, 30), False),
        ("kube-controller-manager", "cloud-provider-gce-lb-src-cidrs", "10.0.0.0/8", (1, 31), True),
        ("kubelet", "azure-container-registry-config", "/etc/kubernetes/azure.json", (1, 29), False),
        ("kubelet", "azure-container-registry-config", "/etc/kubernetes/azure.json", (1, 30), True),
        ("kubelet", "containerd", "/run/containerd/containerd.sock", (1, 36), False),
        ("kubelet", "containerd", "/run/containerd/containerd.sock", (1, 37), True),
        ("kube-apiserver", "enable-admission-plugins", "NodeRestriction,JobValidation", (1, 37), True),
        ("kube-scheduler", "feature-gates", "SidecarContainers=true", (1, 36), False),
        ("kube-scheduler", "feature-gates", "SidecarContainers=true", (1, 37), True),
        ("kube-scheduler", "feature-gates", "SidecarContainers=false", (1, 33), True),
        ("kube-apiserver", "feature-gates", "kube:DisableCloudProviders=true", (1, 33), True),
        ("kube-apiserver", "feature-gates", "kube:DisableCloudProviders=0", (1, 31), True),
        ("kube-apiserver", "feature-gates", "wardle:DisableCloudProviders=true", (1, 36), False),
    ],
)
def test_a_flag_is_fatal_from_a_release_on(component: str, flag: str, value: str, version: tuple[int, int], expected: bool) -> None:
    assert bool(versions.fatal(component, flag, value, version)) is expected


def test_the_reason_why_a_gate_is_fatal_is_that_of_the_gate() -> None:
    assert versions.fatal("kubelet", "feature-gates", "CloudDualStackNodeIPs=true", (1, 32)) == \
        versions.reason("kubelet", "feature-gates", "CloudDualStackNodeIPs")


@pytest.mark.parametrize(("gates", "version", "expected"), [
    ("DisableCloudProviders=true", (1, 31), []), ("DisableCloudProviders=true", (1, 32), ["DisableCloudProviders=true"]),
    ("DisableCloudProviders=false", (1, 29), []), ("A=true,DisableCloudProviders=false", (1, 30), ["DisableCloudProviders=false"]),
    ("DisableCloudProviders=false,InTreePluginAWSUnregister", (1, 36), ["DisableCloudProviders=false", "InTreePluginAWSUnregister"]),
    ("kube:A=true,kube:DisableCloudProviders=true", (1, 32), ["kube:DisableCloudProviders=true"]),
    ("A=true, DisableCloudProviders = f", (1, 31), ["DisableCloudProviders = f"]),
    ("SidecarContainers=true,GangScheduling=false", (1, 37), []),
])
def test_a_gate_is_dead_when_it_is_fatal_at_the_release_or_the_next(gates: str, version: tuple[int, int], expected: list[str]) -> None:
    assert [item for item, unused in versions.dead_gates("kubelet", gates, version)] == expected


def test_every_fact_is_told_once_with_a_reason_and_in_an_order_that_can_be() -> None:
    keys = [(fact.component, fact.flag, fact.value) for fact in versions.FACTS]
    assert len(keys) == len(set(keys))
    for fact in versions.FACTS:
        stages = [stage for stage in (fact.deprecated_in, fact.no_effect_in, fact.fatal_in, fact.gone_in) if stage]
        assert stages and stages == sorted(stages), fact
        assert fact.reason and fact.component in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubeadm")


APISERVER = ["--cloud-provider=external", "--cloud-config=/c", "--enable-admission-plugins=A,PersistentVolumeLabel, B",
             "--feature-gates=DisableCloudProviders=false,X=true,InTreePluginAWSUnregister=true"]


@pytest.mark.parametrize("version", RELEASES)
def test_nothing_that_is_fatal_at_a_release_or_the_next_is_left(version: tuple[int, int]) -> None:
    """For every component and release, the test looks up in the table what is left after the change."""
    argv = {
        "kube-apiserver": APISERVER,
        "kube-controller-manager": ["--cloud-provider=aws", "--cloud-config=/c", APISERVER[-1], "--concurrent-service-syncs=5",
                                    "--controllers=*,bootstrapsigner,-service,cloud-node-lifecycle", "--cloud-provider-gce-lb-src-cidrs=a"],
    }
    for component, arguments in argv.items():
        flags = find_flags(arguments)
        after = dict(target.flags_after(flags, target.control_plane_changes(component, flags, version)))
        following = (version[0], version[1] + 1)
        for fact in versions.FACTS:
            if fact.component != component or fact.fatal_in is None or fact.fatal_in > following:
                continue
            left = after.get(fact.flag)
            if fact.value is None:
                assert left is None, fact
            elif fact.value == "in-tree":
                assert left in (None, "external"), fact
            else:
                items = (left or "").split(",")
                assert fact.value not in items and fact.value not in [item.split("=")[0] for item in items], fact


def test_lists_keep_their_order_and_rest_and_go_only_when_nothing_is_left() -> None:
    def after(version: tuple[int, int], *arguments: str) -> dict[str, str]:
        flags = find_flags(arguments)
        return dict(target.flags_after(flags, target.control_plane_changes("kube-apiserver", flags, version)))

    assert after((1, 31), *APISERVER) == {"enable-admission-plugins": "A, B", "feature-gates": "X=true"}
    assert after((1, 31), "--enable-admission-plugins=PersistentVolumeLabel") == {}
    assert after((1, 31), '--enable-admission-plugins="A","PersistentVolumeLabel"') == {"enable-admission-plugins": '"A"'}
    assert after((1, 31), "--enable-admission-plugins=NodeRestriction") == {"enable-admission-plugins": "NodeRestriction"}
    assert after((1, 36), "--disable-admission-plugins=A,PersistentVolumeLabelX") == {"disable-admission-plugins": "A,PersistentVolumeLabelX"}
    assert after((1, 29), "--feature-gates=CloudDualStackNodeIPs=true") == {"feature-gates": "CloudDualStackNodeIPs=true"}
    assert after((1, 31), "--feature-gates=CloudDualStackNodeIPs=true") == {}, "fatal at the next release"
    assert after((1, 29), "--feature-gates=CloudDualStackNodeIPs=false") == {}, "locked at the next release"


@pytest.mark.parametrize(("value", "then"), [
    ("*,bootstrapsigner,tokencleaner,-service-lb-controller,-route", "*,bootstrapsigner,tokencleaner"),
    ('"*","-route"', '"*"'), ('*,"-service",tokencleaner,"service-lb-controller"', "*,tokencleaner"),
    ("-cloud-node-lifecycle,*", "*"), ("service", ""), ("*,-service,-service-cidr-controller", "*,-service-cidr-controller"),
])
def test_only_cloud_controllers_leave_the_list_of_controllers(value: str, then: str) -> None:
    """Without the flag, every controller would run, so the flag stays even with an empty list."""
    flags = find_flags(["--controllers=" + value])
    (change,) = target.control_plane_changes("kube-controller-manager", flags, (1, 36))
    assert change.then == then and "1.37, the next release" in change.why
    assert target.flags_after(flags, [change]) == [], "what is left is not managed"
    assert target.control_plane_changes("kube-controller-manager", find_flags(["--controllers=" + then]), (1, 36)) == []


def test_a_list_of_controllers_of_an_installer_is_not_managed() -> None:
    assert find_flags(["--controllers=*,bootstrapsigner,tokencleaner"]) == []
    assert [flag.value for flag in find_flags(["--controllers", "*,-service", "--v=2"])] == ["*,-service"]


def test_the_table_and_the_flags_name_the_same_cloud_controllers() -> None:
    assert [fact.value for fact in versions.FACTS if fact.flag == "controllers"] == list(CLOUD_CONTROLLERS)


@pytest.mark.parametrize("name", ["aws", "azure", "gce", "openstack", "vsphere", "cloudstack", "ovirt", "photon"])
def test_in_tree_providers_are_recognised_by_name(name: str) -> None:
    provider = versions.in_tree_provider(name)
    assert provider is not None and provider.gone_in <= versions.IN_TREE_GONE
    flags = find_flags([f"--cloud-provider={name}"])
    (change,) = target.control_plane_changes("kube-apiserver", flags, (1, 30))
    assert f"in-tree {name} was removed in {versions.show(provider.gone_in)}" in change.why
    assert (provider.successor or "no successor") in change.why and change.why.count(provider.provider_id) == 1
    assert f"| `{provider.provider_id}` |" in (REPOSITORY / "docs" / "reference" / "kubernetes-versions.md").read_text(encoding="utf-8")
    assert versions.about_provider("acme") == ""
    assert provider.provider_id.startswith(provider.scheme) and provider.scheme.endswith("://")


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "tools" / "docs" / "kubernetes_versions.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_documentation_is_made_from_the_table() -> None:
    generate = generator()
    written = (REPOSITORY / "docs" / "reference" / "kubernetes-versions.md").read_text(encoding="utf-8")
    assert written == generate.page(generate.load()), "stale: " + str(generate.__doc__).strip().splitlines()[-1].strip()

# SPDX-License-Identifier: Apache-2.0
"""The role ccm_runtime with several clouds: the runtime's configuration, and what the role refuses."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from ccm.options.clouds import CloudFlags
from ccm.options.command_line import parse

from .ccm_runtime_role import of_collection, rendered, value

served = of_collection("filter.migration_plan").served
WITHOUT_LOAD_BALANCERS = of_collection("module_utils.plan.clouds").WITHOUT_LOAD_BALANCERS

METAL = {
    "provider": "static",
    "config": "cluster: cellar\n",
    "nodes": ["bm-*", "rack?"],
    "load_balancer_classes": ["example.com/metal"],
}
FIRST = {"ccm_runtime_cloud_provider": "openstack", "ccm_runtime_cloud_config": "[Global]\n"}


def arguments(**variables: Any) -> list[str]:
    (daemonset,) = rendered("daemonset.yaml.j2", **FIRST | variables)
    found: list[str] = daemonset["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def test_the_runtime_gets_each_cloud_with_its_file_nodes_and_classes() -> None:
    given = arguments(
        ccm_runtime_clouds=[METAL, {"provider": "sim"}], ccm_runtime_load_balancer_classes=["example.com/fast"]
    )
    options = parse([*given, "--kubeconfig=/nowhere"])
    assert options.clouds() == [
        CloudFlags("openstack", "/etc/ccm/cloud/cloud.conf"),
        CloudFlags("static", "/etc/ccm/cloud/static.conf", ("bm-*", "rack?")),
        CloudFlags("sim"),
    ]
    assert options.load_balancer_class == ("example.com/fast=openstack", "example.com/metal=static")
    assert options.default_load_balancer_provider == "openstack"


def test_a_cloud_may_have_a_part_of_the_pod_cidrs() -> None:
    variables = {
        "ccm_runtime_clouds": [METAL | {"cluster_cidr": "10.244.128.0/17, fd00:0:0:80::/57"}],
        "ccm_runtime_controllers": ["*", "node-ipam-controller"],
        "ccm_runtime_cluster_cidr": "10.244.0.0/16,fd00::/56",
    }
    for stage in ("all", "node"):
        options = parse([*arguments(**variables, ccm_runtime_stage=stage), "--kubeconfig=/nowhere"])
        ranges = {name: [str(each) for each in own] for name, own in options.cloud_ranges().items()}
        assert ranges == {"static": ["10.244.128.0/17", "fd00:0:0:80::/57"]}


def test_another_cloud_may_serve_the_services_without_a_class() -> None:
    given = arguments(ccm_runtime_clouds=[METAL | {"default_load_balancers": True}])
    assert parse([*given, "--kubeconfig=/nowhere"]).default_load_balancer_provider == "static"


@pytest.mark.parametrize(
    ("first", "marked", "expected"),
    [("openstack", False, "openstack"), ("vsphere", False, ""), ("vsphere", True, "static")],
)
def test_a_provider_without_load_balancers_is_not_the_default(first: str, marked: bool, expected: str) -> None:
    cloud = METAL | {"default_load_balancers": marked}
    given = arguments(ccm_runtime_cloud_provider=first, ccm_runtime_clouds=[cloud])
    assert parse([*given, "--kubeconfig=/nowhere"]).default_load_balancer_provider == expected
    assert next(each.default for each in served([{"provider": first}, cloud], {}) if each.provider == "static") == (
        expected != "openstack"
    )


def test_the_providers_without_load_balancers_are_those_of_the_runtime() -> None:
    sources = Path(__file__).parents[2] / "runtime/ccm/providers"
    without = {
        each.parent.name for each in sources.glob("*/__init__.py") if "self.load_balancers = " not in each.read_text()
    }
    assert set(value("__ccm_runtime_without_load_balancers", **FIRST)) == without == set(WITHOUT_LOAD_BALANCERS)


def test_one_cloud_has_the_arguments_of_before() -> None:
    given = arguments(ccm_runtime_load_balancer_classes=["a", "b"])
    assert given[:2] == ["--cloud-provider=openstack", "--cloud-config=/etc/ccm/cloud/cloud.conf"]
    assert "--load-balancer-class=a,b" in given
    assert not [flag for flag in given if flag.startswith(("--cloud-nodes", "--default-load"))]


def test_the_secret_has_a_file_for_each_cloud() -> None:
    (secret,) = rendered("secret.yaml.j2", **FIRST, ccm_runtime_clouds=[METAL, {"provider": "sim"}])
    files = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
    assert files == {"cloud.conf": "[Global]\n", "static.conf": "cluster: cellar\n"}


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"ccm_runtime_clouds": []}, ""),
        ({"ccm_runtime_clouds": [METAL]}, ""),
        ({"ccm_runtime_clouds": [METAL, METAL]}, "a provider is named twice"),
        ({"ccm_runtime_clouds": [METAL | {"provider": "openstack"}]}, "a provider is named twice"),
        ({"ccm_runtime_clouds": [METAL], "ccm_runtime_command": ["/bin/vendor"]}, "another vendor's controller"),
        (
            {"ccm_runtime_clouds": [{"provider": name, "default_load_balancers": True} for name in ("sim", "static")]},
            "default_load_balancers is set for sim and static",
        ),
        ({"ccm_runtime_clouds": [METAL | {"provider": "gce"}]}, "set for gce, which has no load balancers"),
        (
            {"ccm_runtime_clouds": [{"provider": "gce", "default_load_balancers": True}]},
            "set for gce, which has no load balancers",
        ),
        (
            {
                "ccm_runtime_clouds": [METAL],
                "ccm_runtime_controllers": ["*", "instance-tags-controller", "node-ipam-controller"],
                "ccm_runtime_volume_webhook": True,
            },
            "",
        ),
        ({"ccm_runtime_clouds": [METAL | {"cluster_cidr": "10.0.0.0/9"}], "ccm_runtime_cluster_cidr": "10.0.0.0/8"},
         "set for static, and only node-ipam-controller assigns"),
        ({"ccm_runtime_clouds": [METAL], "ccm_runtime_credentials": {"static.conf": "x"}}, "the key static.conf"),
    ],
)
def test_what_one_controller_cannot_serve_together(variables: dict[str, Any], problem: str) -> None:
    problems = value("__ccm_runtime_cloud_problems", **FIRST | variables)
    if not problem:
        assert problems == []
    else:
        (only,) = problems
        assert problem in only


STATIC = {"ccm_runtime_cloud_provider": "static", "ccm_runtime_cloud_config": "cluster: cellar\n"}
POOL = {"ccm_runtime_cloud_config": "cluster: cellar\nload_balancer_addresses: [192.0.2.0/28]\n"}


@pytest.mark.parametrize(
    ("controllers", "variables", "reason"),
    [
        (["*", "service-lb-controller"], STATIC, "ccm_runtime_cloud_config has no load_balancer_addresses"),
        ("cloud-node,service", STATIC, "ccm_runtime_cloud_config has no load_balancer_addresses"),
        (["*", "service"], STATIC | {"ccm_runtime_cloud_provider": "vsphere"}, "this provider has no load balancers"),
        (["*"], STATIC, ""),
        (["*", "-service"], STATIC, ""),
        (["*", "service"], STATIC | POOL, ""),
        (["*", "service"], FIRST, ""),
        (["*", "service"], STATIC | {"ccm_runtime_clouds": [{"provider": "sim"}]}, ""),
        (["*", "service"], STATIC | {"ccm_runtime_command": ["/vendor"]}, ""),
    ],
)
def test_nobody_waits_for_a_service_controller_that_the_cloud_cannot_have(
    controllers: Any, variables: dict[str, Any], reason: str
) -> None:
    assert value("__ccm_runtime_no_services", ccm_runtime_controllers=controllers, **variables) == reason

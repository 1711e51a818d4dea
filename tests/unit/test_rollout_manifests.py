# SPDX-License-Identifier: Apache-2.0
"""The manifests that the role ccm_runtime applies, rendered by Ansible itself from the role's files."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest
from ansible.template import trust_as_template

from ccm.controllers.controller_registry import BUILT_IN
from ccm.manager.rights_check import needed
from ccm.options.command_line import parse
from ccm.options.controller_names import CONTROLLERS, ON_BY_DEFAULT, select_controllers

from .ccm_runtime_role import rendered, templar

VOLUMES = "persistentvolume-label-controller"


def arguments(**variables: Any) -> list[str]:
    (daemonset,) = rendered("daemonset.yaml.j2", **variables)
    found: list[str] = daemonset["spec"]["template"]["spec"]["containers"][0]["args"]
    return found


def controllers(**variables: Any) -> tuple[str, ...]:
    """Return the controllers that the runtime would start with the rendered flag."""
    (flag,) = [argument for argument in arguments(**variables) if argument.startswith("--controllers=")]
    return select_controllers(flag.partition("=")[2].split(","))


def rights(**variables: Any) -> set[tuple[str, str]]:
    (role,) = [each for each in rendered("rbac.yaml.j2", **variables) if each["kind"] == "ClusterRole"]
    return {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def waited_for(**variables: Any) -> set[str]:
    return set(templar(**variables).template(trust_as_template("{{ __ccm_runtime_wanted }}")))


def waited_for_if_offered(**variables: Any) -> set[str]:
    return set(templar(**variables).template(trust_as_template("{{ __ccm_runtime_wanted_if_offered }}")))


@pytest.mark.parametrize(
    ("variables", "named", "if_offered"),
    [
        ({}, set(), {"cloud-node", "cloud-node-lifecycle", "service"}),
        ({"ccm_runtime_cluster_cidr": "10.0.0.0/8"}, set(), {"cloud-node", "cloud-node-lifecycle", "service", "route"}),
        ({"ccm_runtime_controllers": ["*", "-service"]}, set(), {"cloud-node", "cloud-node-lifecycle"}),
        ({"ccm_runtime_controllers": ["*", "service"]}, {"service"}, {"cloud-node", "cloud-node-lifecycle"}),
        ({"ccm_runtime_controllers": ["service", "-route"]}, {"service"}, set()),
        ({"__ccm_runtime_stage": "node"}, {"cloud-node"}, set()),
        ({"__ccm_install_leader_migration": True}, set(), {"cloud-node"}),
    ],
)
def test_what_a_star_stands_for_is_waited_for_where_the_provider_has_it(
    variables: dict[str, Any], named: set[str], if_offered: set[str]
):
    assert waited_for(**variables) == set(select_controllers(named))
    assert waited_for_if_offered(**variables) == set(select_controllers(if_offered))


def test_the_runtime_understands_every_argument_that_is_rendered():
    given = arguments(ccm_runtime_cluster_cidr="10.244.0.0/16", ccm_runtime_lease_name="another")
    assert parse([*given, "--kubeconfig=/nowhere"]).cloud_provider == "sim"


@pytest.mark.parametrize(
    "variables",
    [
        pytest.param({"ccm_runtime_label_volumes": True}, id="by-the-former-variable"),
        pytest.param({"ccm_runtime_label_volumes": "true"}, id="by-a-string"),
        pytest.param({"ccm_runtime_controllers": ["*", "pvlabel"]}, id="by-its-alias"),
        pytest.param({"ccm_runtime_controllers": f"*,{VOLUMES}"}, id="by-its-name-on-a-command-line"),
        pytest.param({"ccm_runtime_label_volumes": True, "ccm_runtime_controllers": ["pvlabel", "*"]}, id="by-both"),
    ],
)
def test_the_volume_controller_runs_with_its_rights_and_is_waited_for(variables: dict[str, Any]):
    assert controllers(**variables) == (*ON_BY_DEFAULT, VOLUMES)
    own = {(right.resource, right.verb) for right in needed([BUILT_IN[VOLUMES]])}
    assert own <= rights(**variables)
    assert VOLUMES in waited_for(**variables)
    # The controller starts after every Node is adopted; its rights exist from the start.
    before = variables | {"__ccm_runtime_stage": "node"}
    assert controllers(**before) == ("cloud-node-controller",) and waited_for(**before) == {"cloud-node-controller"}
    assert own <= rights(**before)


@pytest.mark.parametrize("variables", [{}, {"ccm_runtime_label_volumes": "false"}], ids=["unset", "a-string"])
def test_it_is_off_unless_asked_for(variables: dict[str, Any]):
    assert controllers(**variables) == ON_BY_DEFAULT
    assert not [right for right in rights(**variables) if right[0] == "persistentvolumes"]
    assert VOLUMES not in waited_for(**variables)


def test_one_that_is_named_with_a_few_others():
    variables = {"ccm_runtime_controllers": ["cloud-node", "pvlabel", "-route"]}
    assert controllers(**variables) == ("cloud-node-controller", VOLUMES)
    assert waited_for(**variables) == {"cloud-node-controller", VOLUMES}


@pytest.mark.parametrize("name", [*CONTROLLERS, *CONTROLLERS.values()])
def test_every_name_of_a_controller_is_known(name: str):
    assert waited_for(ccm_runtime_controllers=[name]) == set(select_controllers([name]))


@pytest.mark.parametrize(("value", "there"), [("false", False), ("true", True), (True, True)])
def test_strings_are_booleans(value: Any, there: bool):
    flags = arguments(__ccm_install_leader_migration=value, ccm_runtime_cluster_cidr="10.244.0.0/16")
    assert ("--enable-leader-migration" in flags) is there
    flags = arguments(ccm_runtime_configure_cloud_routes=value, ccm_runtime_cluster_cidr="10.244.0.0/16")
    assert f"--configure-cloud-routes={str(there).lower()}" in flags


@pytest.mark.parametrize(("setting", "there"), [("false", False), ("true", True), (True, True), (False, False)])
def test_dead_nodes_are_fenced_by_a_variable(setting: Any, there: bool):
    flags = arguments(ccm_runtime_fence_dead_nodes=setting)
    assert ("--fence-dead-nodes=true" in flags) is there
    assert parse([*flags, "--kubeconfig=/nowhere"]).fence_dead_nodes is there


@pytest.mark.parametrize(
    ("setting", "flag"),
    [([], None), (["internal"], "internal"), (["internal", "example.com/fast=sim"], "internal,example.com/fast=sim")],
)
def test_classes_of_services_are_served_by_a_variable(setting: list[str], flag: str | None):
    flags = arguments(ccm_runtime_load_balancer_classes=setting)
    assert [each for each in flags if "load-balancer-class" in each] == [f"--load-balancer-class={flag}"] * bool(flag)
    assert parse([*flags, "--kubeconfig=/nowhere"]).load_balancer_class == tuple(setting)


def test_the_pods_of_another_controller_carry_nothing_that_was_made_of_the_credentials():
    """With an unsalted digest of a secret, anybody who may read DaemonSets could test guesses of the secret."""
    secret = "password: hunter2\n"
    variables = {"ccm_runtime_command": ["/vendor"], "ccm_runtime_cloud_config": secret}

    def annotations(version: str) -> dict[str, str]:
        done = {"changed": False, "result": {"metadata": {"resourceVersion": version}}}
        (daemonset,) = rendered("daemonset.yaml.j2", **variables, __ccm_runtime_secret=done)
        found: dict[str, str] = daemonset["spec"]["template"]["metadata"]["annotations"]
        return found

    digests = {hashlib.new(name, secret.encode()).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")}
    assert not digests & set(annotations("1").values())
    assert annotations("1") == annotations("1") != annotations("2"), (
        "the Pods are replaced when the Secret changes, and only then"
    )
    changing = {"changed": True, "result": {"metadata": {"resourceVersion": "1"}}}
    (foretold,) = rendered("daemonset.yaml.j2", **variables, __ccm_runtime_secret=changing, ansible_check_mode=True)
    assert foretold["spec"]["template"]["metadata"]["annotations"] != annotations("1"), (
        "check mode shows the replacement"
    )
    # A removal renders the template without having read the Secret.
    assert rendered("daemonset.yaml.j2", **variables, ansible_check_mode=True)


@pytest.mark.parametrize("content", ["", "endpoint: http://cloud.example.com\n"], ids=["empty", "some"])
def test_the_secret_has_the_configuration_also_when_that_is_empty(content: str):
    """The API server drops a key without a value, so every run would add the key again."""
    (secret,) = rendered("secret.yaml.j2", ccm_runtime_cloud_config=content)
    assert base64.b64decode(secret["data"]["cloud.conf"]).decode() == content


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({}, "/etc/ccm/cloud"),
        ({"ccm_runtime_cloud_config_path": "/etc/config/cloud.conf"}, "/etc/config"),
        ({"ccm_runtime_vendor": "openstack"}, "/etc/config"),
    ],
    ids=["ours", "ours-where-the-old-one-had-it", "by-name"],
)
def test_files_that_the_configuration_names_are_beside_it(variables: dict[str, Any], folder: str):
    """docs/providers/openstack.md promises this: a private CA is a key of ccm_runtime_credentials."""
    authority = "-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n"
    given = {"ccm_runtime_credentials": {"ca.crt": authority}, "ccm_runtime_cloud_config": "[Global]\n", **variables}
    (secret,) = rendered("secret.yaml.j2", **given)
    assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == {
        "cloud.conf": "[Global]\n",
        "ca.crt": authority,
    }
    (daemonset,) = rendered("daemonset.yaml.j2", **given)
    pod = daemonset["spec"]["template"]["spec"]
    name = secret["metadata"]["name"]
    (volume,) = [each["name"] for each in pod["volumes"] if each.get("secret", {}).get("secretName") == name]
    (mount,) = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume]
    assert mount == {"name": volume, "mountPath": folder, "readOnly": True}
    assert f"--cloud-config={folder}/cloud.conf" in pod["containers"][0]["args"]
    assert "ca.crt" not in str(pod["containers"][0].get("env")), "it is a file and no environment variable"


def test_the_kubelet_pulls_with_the_secrets_that_are_named():
    (plain,) = rendered("daemonset.yaml.j2")
    assert "imagePullSecrets" not in plain["spec"]["template"]["spec"]
    (daemonset,) = rendered("daemonset.yaml.j2", ccm_runtime_image_pull_secrets=["ours", "theirs"])
    assert daemonset["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "ours"}, {"name": "theirs"}]


@pytest.mark.parametrize("vendor", [{}, {"ccm_runtime_vendor": "openstack"}], ids=["ours", "by-name"])
def test_a_bundle_is_a_file_of_the_secret_and_where_libraries_look(vendor: dict[str, Any]):
    bundle = "-----BEGIN CERTIFICATE-----\nMIIB...\n-----END CERTIFICATE-----\n"
    given = {"ccm_runtime_ca_bundle": bundle, "ccm_runtime_cloud_config": "[Global]\n", **vendor}
    (secret,) = rendered("secret.yaml.j2", **given)
    assert base64.b64decode(secret["data"]["ca-bundle.crt"]).decode() == bundle
    (daemonset,) = rendered("daemonset.yaml.j2", **given)
    template = daemonset["spec"]["template"]
    container = template["spec"]["containers"][0]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "cloud-config"]
    found = {each["name"]: each.get("value") for each in container["env"]}
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE"):
        assert found[name] == f"{mount['mountPath']}/ca-bundle.crt"
    key = "ccm.outoftree.dev/ca-bundle"
    (other,) = rendered("daemonset.yaml.j2", **given | {"ccm_runtime_ca_bundle": bundle * 2})
    assert template["metadata"]["annotations"][key] != other["spec"]["template"]["metadata"]["annotations"][key]
    (plain,) = rendered("daemonset.yaml.j2", **vendor)
    assert key not in plain["spec"]["template"]["metadata"]["annotations"]
    assert "ca-bundle" not in str(plain)


@pytest.mark.threat("peer-reads-no-metrics")
def test_health_and_metrics_are_served_on_loopback_unless_asked_for():
    """The Pods use their hosts' network, and the kubelet probes them on loopback."""
    (daemonset,) = rendered("daemonset.yaml.j2")
    pod = daemonset["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    for probe in ("livenessProbe", "readinessProbe"):
        assert pod["containers"][0][probe]["httpGet"]["host"] == "127.0.0.1"
    assert parse([*arguments(), "--kubeconfig=/nowhere"]).bind_address == "127.0.0.1"
    assert "--bind-address=0.0.0.0" in arguments(ccm_runtime_bind_address="0.0.0.0")

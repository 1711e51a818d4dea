# SPDX-License-Identifier: Apache-2.0
"""ccm_runtime_vendor: each vendor's controller runs as in its own manifest, and a user's variables change that."""

from __future__ import annotations

import base64
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from .ccm_runtime_role import ROLE, rendered, value

FACTS: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "vendor_facts.yml").read_text())
FILES = {path.stem: yaml.safe_load(path.read_text()) for path in (ROLE / "files" / "vendors").glob("*.yml")}
#: The first and the last Kubernetes release that the collection supports.
SUPPORTED = runpy.run_path(str(ROLE.parents[1] / "plugins/module_utils/facts/versions.py"))["SUPPORTED"]
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
#: The verbs that the Go framework uses, where a vendor's manifest allows all verbs.
USED = ["get", "list", "watch", "patch", "update", "delete"]
#: The verbs for a subresource, which cannot be listed or deleted.
OF_STATUS = {"patch", "update"}
LEASES = "coordination.k8s.io/leases"


def complete(vendor: str, **variables: Any) -> dict[str, Any]:
    """Return an inventory's variables with everything that the vendor's controller may read."""
    keys = FILES[vendor].get("credentials", {})
    return {
        "ccm_runtime_vendor": vendor,
        "ccm_runtime_kubernetes_version": FACTS[vendor].get("kubernetes", "1.36"),
        "ccm_runtime_cloud_config": "" if FILES[vendor]["config"] == "none" else "[Global]\n",
        "ccm_runtime_credentials": {key: f"the {key}" for key in keys},
    } | variables


def pod(vendor: str, **variables: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Pod's specification and its container."""
    (daemonset,) = rendered("daemonset.yaml.j2", **complete(vendor, **variables))
    spec = daemonset["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def problems(vendor: str, **variables: Any) -> str:
    return "; ".join(value("__ccm_runtime_vendor_problems", **complete(vendor, **variables)))


def granted(vendor: str, **variables: Any) -> dict[str, set[str]]:
    """Return the verbs by group/resource that the ClusterRole and the Role in kube-system grant."""
    found: dict[str, set[str]] = {}
    for document in rendered("rbac.yaml.j2", **complete(vendor, **variables)):
        for rule in document.get("rules", []):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found.setdefault(f"{group}/{resource}".removeprefix("/"), set()).update(rule["verbs"])
    return found


def differs(vendor: str, kind: str) -> set[str]:
    """Return what the role does differently from the manifest on purpose, of this kind."""
    keys = [key.partition(" ") for key in FACTS[vendor].get("differs", {})]
    return {what for name, _, what in keys if name == kind}


@pytest.fixture(params=sorted(FILES))
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_vendor_has_facts_and_is_a_choice():
    assert set(FACTS) == set(FILES) == set(SPECS["ccm_runtime_vendor"]["choices"]) - {""}


def test_the_image_is_the_manifests(vendor: str):
    _, container = pod(vendor)
    repository, _, tag = container["image"].rpartition(":")
    assert repository == FACTS[vendor]["image"].rpartition(":")[0] and tag not in ("", "latest")
    assert (container["image"] == FACTS[vendor]["image"]) is not ("" in differs(vendor, "image"))


def test_the_command_is_the_manifests_or_the_images_own(vendor: str):
    _, container = pod(vendor)
    expected = None if "" in differs(vendor, "command") else FACTS[vendor].get("command")
    assert container.get("command") == expected


def test_the_arguments_have_the_manifests(vendor: str):
    facts, (_, container) = FACTS[vendor], pod(vendor)
    given = set(container["args"])
    assert set(facts.get("args", [])) - given == differs(vendor, "arg")
    port = FACTS[vendor].get("port", 10258)
    assert {f"--cloud-provider={facts['cloud_provider']}", f"--secure-port={port}", "--leader-elect=true"} <= given
    config = [flag.partition("=")[2] for flag in given if flag.startswith("--cloud-config=")]
    if FILES[vendor]["config"] == "none":
        assert config == [] and "config" not in facts
    else:
        assert config == [facts.get("config", "/etc/ccm/cloud/cloud.conf")]
    assert len(given) == len(container["args"])


def test_the_rights_are_at_least_the_manifests(vendor: str):
    got = granted(vendor)
    everything = got.get("*/*", set())
    missing = {}
    for resource, verbs in FACTS[vendor]["rules"].items():
        asked = {used for verb in verbs for used in (USED if verb == "*" else [verb])}
        asked &= OF_STATUS if resource.endswith("/status") else asked
        if lacking := asked - got.get(resource, set()) - everything:
            missing[resource] = lacking
    on_purpose: dict[str, set[str]] = {}
    for right in differs(vendor, "right"):
        resource, _, verb = right.partition(" ")
        on_purpose[resource] = {verb} if verb else set(FACTS[vendor]["rules"][resource])
    if FACTS[vendor]["rules"].get("persistentvolumes") == ["*"]:
        on_purpose["persistentvolumes"] = {"patch", "delete"}  # upstream's controllers no longer write volumes
    assert missing == on_purpose


def test_leases_are_limited_to_those_of_the_election(vendor: str):
    """The vendors' manifests allow all Leases."""
    for document in rendered("rbac.yaml.j2", **complete(vendor)):
        for rule in document.get("rules", []):
            if "leases" in rule["resources"]:
                assert document["kind"] == "Role" and (rule["verbs"] == ["create"] or rule["resourceNames"])


def test_the_credentials_are_environment_variables_from_the_secret(vendor: str):
    _, container = pod(vendor)
    (secret,) = rendered("secret.yaml.j2", **complete(vendor))
    found = {}
    for variable in container.get("env", []):
        reference = variable["valueFrom"]["secretKeyRef"]
        assert reference["name"] == secret["metadata"]["name"]
        assert base64.b64decode(secret["data"][reference["key"]]).decode() == f"the {reference['key']}"
        found[variable["name"]] = reference["key"]
    assert found == FACTS[vendor].get("env", {})


def test_the_configuration_is_where_the_flag_says(vendor: str):
    _, container = pod(vendor)
    (secret,) = rendered("secret.yaml.j2", **complete(vendor))
    for flag in [arg for arg in container["args"] if arg.startswith("--cloud-config=")]:
        folder, _, name = flag.partition("=")[2].rpartition("/")
        assert {"name": "cloud-config", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
        assert base64.b64decode(secret["data"][name]) == b"[Global]\n"


def test_the_mounts_are_the_manifests_and_only_read(vendor: str):
    spec, container = pod(vendor)
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert set(FACTS[vendor].get("mounts", [])) - set(mounts) == differs(vendor, "mount")
    assert {mount["name"] for mount in mounts.values()} == {volume["name"] for volume in spec["volumes"]}
    hosts = [volume["name"] for volume in spec["volumes"] if "hostPath" in volume]
    assert all(mount.get("readOnly") for mount in mounts.values() if mount["name"] in hosts)


def test_the_tolerations_have_the_manifests(vendor: str):
    ours = pod(vendor)[0]["tolerations"]
    for wanted in FACTS[vendor]["tolerations"]:
        assert any(
            each["operator"] == "Exists"
            and each.get("key") in (wanted.get("key"), None)
            and each.get("effect") in (wanted.get("effect"), None)
            for each in ours
        ), wanted


def test_the_probes_ask_the_port_of_the_flag(vendor: str):
    _, container = pod(vendor)
    for probe in ("livenessProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert f"--secure-port={asked['port']}" in container["args"]
        assert asked["path"] == FACTS[vendor].get("liveness", "/healthz") and asked["scheme"] == "HTTPS"


def test_until_every_node_is_adopted_only_its_node_controller_runs(vendor: str):
    """The flag has the name that the vendor's version of the framework knows: before 1.28, only short names existed."""
    _, container = pod(vendor, __ccm_runtime_stage="node")
    (flag,) = [arg for arg in container["args"] if arg.startswith("--controllers=")]
    assert flag == f"--controllers={'cloud-node' if vendor == 'cloudstack' else 'cloud-node-controller'}"


def test_a_complete_inventory_has_no_problems(vendor: str):
    assert problems(vendor) == ""


def test_everything_that_is_missing_is_in_one_message(vendor: str):
    bare: dict[str, Any] = {"ccm_runtime_cloud_config": "", "ccm_runtime_credentials": {}}
    found = problems(vendor, **bare, ccm_runtime_kubernetes_version="1.7")
    required = [key for key, about in FILES[vendor].get("credentials", {}).items() if about.get("required")]
    assert ("ccm_runtime_cloud_config" in found) is (FILES[vendor]["config"] == "required")
    assert ("ccm_runtime_credentials: " + ", ".join(required) in found) is bool(required)
    assert ("no image for Kubernetes 1.7" in found) is ("images" in FILES[vendor])


def test_every_image_is_of_a_kubernetes_that_the_collection_supports(vendor: str):
    (_, oldest), (_, newest) = SUPPORTED
    minors = [int(minor.removeprefix("1.")) for minor in FILES[vendor].get("images", {})]
    assert minors == sorted(minors) and all(oldest <= minor <= newest for minor in minors)
    assert bool(minors) is not ("image" in FILES[vendor])
    for minor in FILES[vendor].get("images", {}):
        chosen = value("ccm_runtime_image", **complete(vendor, ccm_runtime_kubernetes_version=f"v{minor}.4+k3s1"))
        assert chosen == FILES[vendor]["images"][minor]


@pytest.mark.parametrize(
    ("vendor", "minor", "nearest"),
    [
        ("exoscale", "1.36", ["1.34: docker.io/exoscale/cloud-controller-manager:0.34.0"]),
        ("hcloud", "1.29", ["1.32: docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.30.1"]),
        ("gcp", "1.31", ["1.30: registry.k8s.io/", "v30.0.0, 1.32: registry.k8s.io/", "v32.2.4)"]),
    ],
)
def test_a_minor_without_an_image_is_refused_with_the_nearest(vendor: str, minor: str, nearest: list[str]):
    found = problems(vendor, ccm_runtime_kubernetes_version=minor)
    assert f"no image for Kubernetes {minor}, set ccm_runtime_image" in found and all(each in found for each in nearest)
    assert problems(vendor, ccm_runtime_kubernetes_version=minor, ccm_runtime_image="mirror.example.com/ccm:1") == ""


def test_a_cluster_of_unknown_version_is_refused():
    assert "version is unknown, set ccm_runtime_kubernetes_version" in problems(
        "aws", ccm_runtime_kubernetes_version=""
    )
    assert problems("digitalocean", ccm_runtime_kubernetes_version="") == "", "one image for all"


def test_a_key_that_the_controller_does_not_read_is_refused_without_its_value():
    found = problems("hcloud", ccm_runtime_credentials={"token": "s3cret", "tokne": "s3cret"})
    assert "does not read these keys of ccm_runtime_credentials: tokne (it reads token, network" in found
    assert "s3cret" not in found


def test_a_configuration_that_nothing_reads_is_refused():
    assert "reads no configuration file" in problems("vultr", ccm_runtime_cloud_config="x")


def test_a_configuration_that_is_optional_has_its_flag_only_if_it_is_there():
    _, container = pod("aws", ccm_runtime_cloud_config="")
    assert not [arg for arg in container["args"] if arg.startswith("--cloud-config")]
    (secret,) = rendered("secret.yaml.j2", **complete("aws", ccm_runtime_cloud_config=""))
    assert not secret["data"]


#: A user's value for each variable that a vendor sets.
OWN: dict[str, Any] = {
    "ccm_runtime_image": "mirror.example.com/ccm:1",
    "ccm_runtime_command": ["/own"],
    "ccm_runtime_cloud_provider": "own",
    "ccm_runtime_cloud_config_path": "/own/config",
    "ccm_runtime_secure_port": 1234,
    "ccm_runtime_configure_cloud_routes": True,
    "ccm_runtime_extra_rules": [],
    "ccm_runtime_extra_tolerations": [],
    "ccm_runtime_volumes": [],
    "ccm_runtime_volume_mounts": [],
}


def test_what_the_user_sets_wins_over_the_vendor(vendor: str):
    spec, container = pod(vendor, **OWN, ccm_runtime_cluster_cidr="10.0.0.0/8")
    assert (container["image"], container["command"]) == ("mirror.example.com/ccm:1", ["/own"])
    wanted = {"--cloud-provider=own", "--secure-port=1234", "--configure-cloud-routes=true"}
    assert wanted <= set(container["args"]) and container["livenessProbe"]["httpGet"]["port"] == 1234
    assert [volume["name"] for volume in spec["volumes"]] == ["cloud-config", "tmp"]
    assert container["volumeMounts"][0]["mountPath"] == "/own"
    bare = {"ccm_runtime_cloud_provider": "sim", "ccm_runtime_command": ["/own"]}
    (daemonset,) = rendered("daemonset.yaml.j2", **bare)
    assert spec["tolerations"] == daemonset["spec"]["template"]["spec"]["tolerations"]
    assert granted(vendor, **OWN) == granted("openstack", **OWN), "what the Go framework needs"


def test_each_value_of_a_vendor_can_be_replaced():
    """A variable of OWN replaces the value, or a variable that adds to a list overrides it: by a later flag, or by an
    environment variable of the same name.
    """
    replaced = {"image", "images", "command", "cloud_provider", "config_path", "secure_port", "routes", "rules"}
    replaced |= {"tolerations", "volumes", "volume_mounts"}
    added = {"args", "credentials", "config", "node_controller", "provider_id", "title"}
    assert {key for file in FILES.values() for key in file} == replaced | added
    _, container = pod("hcloud", ccm_runtime_extra_args=["--route-reconciliation-period=5m"])
    periods = [arg for arg in container["args"] if arg.startswith("--route-reconciliation-period")]
    assert periods[-1] == "--route-reconciliation-period=5m", "the last one counts"
    _, container = pod("hcloud", ccm_runtime_args=["--only=this"])
    assert container["args"] == ["--only=this"]


def test_an_environment_variable_of_the_user_replaces_the_vendors_and_its_key():
    own = {"name": "HCLOUD_TOKEN", "valueFrom": {"secretKeyRef": {"name": "mine", "key": "t"}}}
    given = {"ccm_runtime_env": [own], "ccm_runtime_credentials": {"network": "n"}}
    assert problems("hcloud", **given) == ""
    _, container = pod("hcloud", **given)
    assert [variable["name"] for variable in container["env"]] == ["HCLOUD_NETWORK", "HCLOUD_TOKEN"]
    assert container["env"][1] == own


def test_the_defaults_are_those_of_the_specification_without_a_vendor():
    options = {name: option for name, option in SPECS.items() if name.startswith("ccm_runtime_")}
    told = {name: option["default"] for name, option in options.items() if "default" in option}
    assert {name: value(name, ccm_runtime_vendor="") for name in told} == told


def test_another_controller_without_a_name_can_have_files_beside_its_configuration():
    given = {"ccm_runtime_command": ["/other"], "ccm_runtime_credentials": {"ca.pem": "x"}}
    (secret,) = rendered("secret.yaml.j2", **given)
    assert set(secret["data"]) == {"cloud.conf", "ca.pem"}
    (daemonset,) = rendered("daemonset.yaml.j2", **given)
    assert "env" not in daemonset["spec"]["template"]["spec"]["containers"][0]

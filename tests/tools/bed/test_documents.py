# SPDX-License-Identifier: Apache-2.0
"""The files of a bed, read back as YAML."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bed import documents, plan
from bed.yamlish import dump
from ccm_simcloud import config

KEY = "00" * 32
TOKEN = "abcdef.0123456789abcdef"


def by_kind(text: str) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def flags(component: dict[str, Any]) -> dict[str, str]:
    return {flag["name"]: flag["value"] for flag in component["extraArgs"]}


def flags_of(flags: dict[str, str], old: bool) -> object:
    return flags if old else [{"name": name, "value": value} for name, value in flags.items()]


def test_a_machine_names_the_socket_of_its_container_runtime_and_what_its_kube_proxy_can_do() -> None:
    bed = plan.make("demo", "v1.36.3", systems=("bookworm-cri-o", "bullseye"))
    init = by_kind(documents.kubeadm_init(bed, TOKEN, KEY))["InitConfiguration"]
    joins = [by_kind(documents.kubeadm_join(bed, node, TOKEN, KEY))["JoinConfiguration"] for node in bed.workers]
    assert [document["nodeRegistration"]["criSocket"] for document in (init, *joins)] == [
        "unix:///var/run/crio/crio.sock",
        "unix:///run/containerd/containerd.sock",
        "unix:///run/containerd/containerd.sock",
    ]
    modes = [yaml.safe_load(documents.kube_proxy(bed, node))["mode"] for node in bed.nodes]
    assert modes == ["nftables", "iptables", "nftables"]


def test_a_plain_cluster_has_no_cloud_flag_at_all() -> None:
    text = documents.kubeadm_init(plan.make("demo", "v1.36.3"), TOKEN, KEY)
    assert "cloud" not in text
    cluster = by_kind(text)["ClusterConfiguration"]
    assert cluster["controlPlaneEndpoint"] == "10.89.77.11:6443"
    assert cluster["networking"] == {"podSubnet": "10.244.0.0/16", "serviceSubnet": "10.96.0.0/16"}
    assert cluster["etcd"]["local"]["imageTag"] == "3.6.16-0"


def test_leftovers_are_an_empty_provider_and_a_mounted_config() -> None:
    text = documents.kubeadm_init(plan.make("demo", "v1.36.3", leftovers=True), TOKEN, KEY)
    manager = by_kind(text)["ClusterConfiguration"]["controllerManager"]
    assert flags(manager)["cloud-provider"] == ""
    assert flags(manager)["cloud-config"] == "/etc/kubernetes/cloud.conf"
    (volume,) = manager["extraVolumes"]
    assert volume["hostPath"] == volume["mountPath"] == "/etc/kubernetes/cloud.conf"


@pytest.mark.parametrize(("kubernetes", "there"), [("v1.30.4", False), ("v1.36.3", True), ("v1.37.2", False)])
def test_what_1_37_does_not_start_with_is_left_in_older_clusters_without_in_tree_clouds(
    kubernetes: str, there: bool
) -> None:
    text = documents.kubeadm_init(plan.make("demo", kubernetes, leftovers=True), TOKEN, KEY)
    assert ("concurrent-service-syncs" in text, "-service-lb-controller" in text) == (there, there)


def test_kubelets_ask_for_serving_certificates_only_when_told_to() -> None:
    plain, asking = (plan.make("demo", "v1.36.3", serving_certs=wanted) for wanted in (False, True))
    assert "serverTLSBootstrap" not in by_kind(documents.kubeadm_init(plain, TOKEN, KEY))["KubeletConfiguration"]
    assert by_kind(documents.kubeadm_init(asking, TOKEN, KEY))["KubeletConfiguration"]["serverTLSBootstrap"] is True


@pytest.mark.parametrize(
    ("kubernetes", "api"), [("v1.30.4", "v1beta3"), ("v1.36.3", "v1beta4"), ("v1.37.2", "v1beta4")]
)
def test_kubeadm_gets_the_form_that_its_release_stores(kubernetes: str, api: str) -> None:
    bed = plan.make("demo", kubernetes)
    init = by_kind(documents.kubeadm_init(bed, TOKEN, KEY))
    join = by_kind(documents.kubeadm_join(bed, bed.workers[0], TOKEN, KEY, external=True))
    for document in (init["InitConfiguration"], init["ClusterConfiguration"], join["JoinConfiguration"]):
        assert document["apiVersion"] == "kubeadm.k8s.io/" + api
    extra = init["ClusterConfiguration"]["controllerManager"]["extraArgs"]
    old = api == "v1beta3"
    assert extra == ({"allocate-node-cidrs": "true"} if old else [{"name": "allocate-node-cidrs", "value": "true"}])
    kubelet = join["JoinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert kubelet == flags_of({"node-ip": "10.89.77.12", "cloud-provider": "external"}, old)
    assert ("preflight" in join["JoinConfiguration"].get("skipPhases", [])) == old
    assert ("failCgroupV1" in init["KubeletConfiguration"]) != old
    assert ("featureGates" in yaml.safe_load(documents.kube_proxy(bed, bed.nodes[0]))) == old


def test_leftovers_of_1_30_are_in_every_component() -> None:
    bed = plan.make("demo", "v1.30.4", leftovers=True)
    documents_ = by_kind(documents.kubeadm_init(bed, TOKEN, KEY))
    cluster = documents_["ClusterConfiguration"]
    assert cluster["apiServer"]["extraArgs"] == {
        "enable-admission-plugins": "NodeRestriction,PersistentVolumeLabel",
        "cloud-provider": "external",
        "cloud-config": "/etc/kubernetes/cloud.conf",
    }
    assert cluster["controllerManager"]["extraArgs"]["cloud-provider"] == ""
    for section in ("apiServer", "controllerManager"):
        assert cluster[section]["extraVolumes"][0]["mountPath"] == "/etc/kubernetes/cloud.conf"
    join = by_kind(documents.kubeadm_join(bed, bed.workers[0], TOKEN, KEY))["JoinConfiguration"]
    for registration in (documents_["InitConfiguration"]["nodeRegistration"], join["nodeRegistration"]):
        assert registration["kubeletExtraArgs"]["cloud-config"] == "/etc/kubernetes/cloud.conf"
        assert registration["kubeletExtraArgs"]["cloud-provider"] == ""


def test_nodes_have_their_address_and_pull_nothing() -> None:
    bed = plan.make("demo", "v1.36.3")
    init = by_kind(documents.kubeadm_init(bed, TOKEN, KEY))["InitConfiguration"]
    join = by_kind(documents.kubeadm_join(bed, bed.workers[0], TOKEN, KEY))["JoinConfiguration"]
    for document, address in ((init, "10.89.77.11"), (join, "10.89.77.12")):
        registration = document["nodeRegistration"]
        assert registration["kubeletExtraArgs"] == [{"name": "node-ip", "value": address}]
        assert registration["imagePullPolicy"] == "Never"
    assert "controlPlane" not in join


def test_a_dual_stack_cluster_has_both_families_everywhere() -> None:
    bed = plan.make("demo", "v1.36.3", dual_stack=True)
    init = by_kind(documents.kubeadm_init(bed, TOKEN, KEY))
    cluster, registration = init["ClusterConfiguration"], init["InitConfiguration"]["nodeRegistration"]
    assert cluster["controlPlaneEndpoint"] == "[fd00:10:89:77::11]:6443"
    assert cluster["networking"] == {
        "podSubnet": "10.244.0.0/16,fd00:10:244::/56",
        "serviceSubnet": "10.96.0.0/16,fd00:10:96::/112",
    }
    assert "fd00:10:89:77::11" in cluster["apiServer"]["certSANs"]
    assert registration["kubeletExtraArgs"] == flags_of({"node-ip": "10.89.77.11,fd00:10:89:77::11"}, old=False)
    # The API server's own address has the family of the first network of Services.
    assert init["InitConfiguration"]["localAPIEndpoint"]["advertiseAddress"] == "10.89.77.11"
    machine = documents.instance(bed, bed.workers[0])
    assert [address["address"] for address in machine["addresses"] if address["type"] == "InternalIP"] == [
        "10.89.77.12",
        "fd00:10:89:77::12",
    ]
    assert yaml.safe_load(documents.kube_proxy(bed, bed.nodes[0]))["clusterCIDR"] == "10.244.0.0/16,fd00:10:244::/56"


@pytest.mark.parametrize(("passes", "mode"), [(False, "proxy"), (True, "pass-through")])
def test_the_cloud_reads_the_mode_of_its_load_balancers(passes: bool, mode: str) -> None:
    bed = plan.make("demo", "v1.36.3", pass_through=passes)
    assert plan.Plan.from_dict(bed.to_dict()) == bed
    (project,) = config.parse(documents.cloud(bed)).projects
    assert (project.load_balancer_mode, project.load_balancer_addresses) == (mode, "10.89.77.200-10.89.77.250")


def test_a_later_node_can_join_as_external() -> None:
    bed = plan.make("demo", "v1.36.3")
    join = by_kind(documents.kubeadm_join(bed, bed.workers[0], TOKEN, KEY, external=True))["JoinConfiguration"]
    assert {"name": "cloud-provider", "value": "external"} in join["nodeRegistration"]["kubeletExtraArgs"]


def test_further_control_planes_join_through_the_gateway() -> None:
    bed = plan.make("demo", "v1.36.3", control_planes=3)
    join = by_kind(documents.kubeadm_join(bed, bed.control_planes[2], TOKEN, KEY))["JoinConfiguration"]
    assert join["discovery"]["bootstrapToken"]["apiServerEndpoint"] == "10.89.77.2:6443"
    assert join["controlPlane"]["localAPIEndpoint"]["advertiseAddress"] == "10.89.77.13"
    assert join["controlPlane"]["certificateKey"] == KEY


def test_the_cloud_has_an_instance_for_each_node_and_one_that_is_none() -> None:
    bed = plan.make("demo", "v1.36.3")
    (project,) = yaml.safe_load(documents.cloud(bed))["projects"]
    found = {instance["name"]: instance for instance in project["instances"]}
    assert set(found) == {*(node.name for node in bed.nodes), "bastion"}
    for node in bed.nodes:
        assert {"type": "InternalIP", "address": node.address} in found[node.name]["addresses"]
    assert project["load_balancer_addresses"] == bed.load_balancer_addresses


def test_the_inventory_has_the_groups_of_kubespray() -> None:
    children = yaml.safe_load(documents.inventory(plan.make("demo", "v1.36.3")))["all"]["children"]
    assert list(children["kube_control_plane"]["hosts"]) == ["demo-control-plane-1"]
    assert list(children["kube_node"]["hosts"]) == ["demo-worker-1", "demo-worker-2"]


def test_a_machine_with_a_python_of_its_own_names_it_to_ansible() -> None:
    bed = plan.make("demo", "v1.36.3", systems=("bookworm", "bookworm-python3.8"))
    children = yaml.safe_load(documents.inventory(bed, {"demo-worker-1": "/opt/python3.8"}))["all"]["children"]
    assert children["kube_control_plane"]["hosts"] == {"demo-control-plane-1": {}}
    assert children["kube_node"]["hosts"] == {
        "demo-worker-1": {"ansible_python_interpreter": "/opt/python3.8"},
        "demo-worker-2": {},
    }


def test_the_variables_hold_a_cloud_config_that_is_yaml_itself() -> None:
    bed = plan.make("demo", "v1.36.3")
    variables = yaml.safe_load(documents.group_vars(bed, Path("/k"), Path("/a.tar")))
    assert variables["ccm_install_kubeconfig"] == "/k"
    assert variables["ccm_runtime_image_archive"] == "/a.tar"
    config = yaml.safe_load(variables["ccm_runtime_cloud_config"])
    assert config == {"endpoint": "http://10.89.77.2:9440", "project": "demo", "token": "demo-token"}


def test_without_the_simulated_cloud_the_variables_choose_no_controller() -> None:
    bed = plan.make("demo", "v1.36.3", cloud=False)
    variables = yaml.safe_load(documents.group_vars(bed, Path("/k"), Path("/a.tar")))
    assert variables == {"ccm_install_kubeconfig": "/k", "ccm_runtime_cluster_name": "demo"}


@pytest.mark.parametrize(
    "data",
    [
        {"a": "", "b": "yes", "c": "1.20", "d": "a: b # c", "e": None, "f": True, "g": 3, "h": "~", "i": "."},
        {"list": [{"x": [1, {"y": "z"}]}, [], {}, ["nested"]], "text": "one\ntwo\n", "more": "a\n\nb\n\n"},
        {"odd keys: yes": {"on": 'quote"'}, "indented": "  first\nlast\n", "newlines": "\n\n", "open": "a\nb"},
        [["a", "b"], "c"],
    ],
)
def test_what_is_dumped_is_read_back(data: object) -> None:
    assert yaml.safe_load(dump(data)) == data

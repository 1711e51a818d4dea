# SPDX-License-Identifier: Apache-2.0
"""The files of a cluster without kubeadm."""

import re

import pytest
import yaml

from bed import documents, hard_way, plan

UNITS = "/etc/systemd/system"


def files(kubernetes: str, leftovers: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of the control plane, and the files of the worker."""
    bed = plan.make("demo", kubernetes, workers=1, leftovers=leftovers, hard_way=True)
    first, worker = bed.nodes
    return (
        {**hard_way.control_plane_files(bed, first), **hard_way.kubelet_files(bed, first)},
        hard_way.kubelet_files(bed, worker),
    )


def test_every_component_has_a_unit() -> None:
    control_plane, worker = files("v1.36.3", leftovers=False)
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    units = {path for path in control_plane if path.endswith(".service")}
    assert units == {f"{UNITS}/{name}.service" for name in names}
    assert {path for path in worker if path.endswith(".service")} == {f"{UNITS}/kubelet.service"}


@pytest.mark.parametrize("kubernetes", ["v1.30.4", "v1.36.3"])
def test_without_leftovers_nothing_has_a_cloud_flag(kubernetes: str) -> None:
    control_plane, worker = files(kubernetes, leftovers=False)
    assert "cloud" not in "".join([*control_plane.values(), *worker.values()])


def test_leftovers_are_in_the_unit_the_environment_file_and_the_drop_in() -> None:
    control_plane, worker = files("v1.30.4", leftovers=True)
    apiserver = control_plane[f"{UNITS}/kube-apiserver.service"]
    plugins = "--enable-admission-plugins=NodeRestriction,PersistentVolumeLabel"
    assert f"  --cloud-provider=external \\\n  {plugins} \\\n" in apiserver
    arguments = control_plane["/etc/kubernetes/controller-manager"]
    assert " --cloud-provider= --cloud-config=/etc/kubernetes/cloud.conf " in arguments
    assert "cloud" not in control_plane[f"{UNITS}/kubelet.service"] + worker[f"{UNITS}/kubelet.service"]
    drop_in = worker[f"{UNITS}/kubelet.service.d/20-extra.conf"]
    assert drop_in.startswith('[Service]\nEnvironment="KUBELET_OPTS=--cloud-provider= --cloud-config=/etc/')


def test_a_release_gets_no_flag_that_it_does_not_know() -> None:
    control_plane, worker = files("v1.36.3", leftovers=True)
    for name in ("kube-apiserver", "kube-scheduler"):
        text = control_plane[f"{UNITS}/{name}.service"]
        assert "cloud" not in text and "feature-gates" not in text and "PersistentVolumeLabel" not in text
    assert "feature-gates" not in control_plane["/etc/kubernetes/controller-manager"]
    assert "cloud-config" not in worker[f"{UNITS}/kubelet.service.d/20-extra.conf"]


def test_kubeadm_signs_what_the_units_read() -> None:
    bed = plan.make("demo", "v1.36.3", hard_way=True)
    documents_ = {each["kind"]: each for each in yaml.safe_load_all(documents.kubeadm_init(bed, "t", "k"))}
    assert documents_["ClusterConfiguration"]["certificatesDir"] == "/var/lib/kubernetes"
    usual = documents.kubeadm_init(plan.make("demo", "v1.36.3"), "t", "k")
    assert "certificatesDir" not in usual


def test_an_external_etcd_has_the_certificates_that_kubeadm_is_told() -> None:
    bed = plan.make("demo", "v1.36.3", external_etcd=True)
    documents_ = {each["kind"]: each for each in yaml.safe_load_all(documents.kubeadm_init(bed, "t", "k"))}
    external = documents_["ClusterConfiguration"]["etcd"]["external"]
    unit = hard_way.etcd_unit(bed.control_planes[0])
    assert f"--trusted-ca-file={external['caFile']} " in unit
    assert external["endpoints"] == ["https://127.0.0.1:2379"] and f"={external['endpoints'][0]} " in unit


def test_several_control_planes_have_one_etcd_of_as_many_members() -> None:
    bed = plan.make("demo", "v1.36.3", control_planes=3, hard_way=True)
    units = {node: hard_way.control_plane_files(bed, node) for node in bed.control_planes}
    clusters = set()
    for node, found in units.items():
        etcd, apiserver = found[f"{UNITS}/etcd.service"], found[f"{UNITS}/kube-apiserver.service"]
        (members,) = re.findall(r"--initial-cluster=(\S+)", etcd)
        assert f"{node.name}=https://{node.address}:2380" in members.split(",")
        assert f"--listen-peer-urls=https://{node.address}:2380 " in etcd and "--peer-client-cert-auth=true " in etcd
        clusters.add(members)
        (servers,) = re.findall(r"--etcd-servers=(\S+)", apiserver)
        assert servers.split(",") == [f"https://{each.address}:2379" for each in bed.control_planes]
        assert f"--advertise-address={node.address} " in apiserver
    assert len(clusters) == 1


def test_one_control_plane_has_an_etcd_that_listens_to_it_alone() -> None:
    control_plane, _ = files("v1.36.3", leftovers=False)
    etcd = control_plane[f"{UNITS}/etcd.service"]
    assert "--listen-client-urls=https://127.0.0.1:2379 " in etcd
    assert "peer" not in etcd and "initial-cluster" not in etcd


def test_each_control_plane_signs_certificates_of_its_own_address() -> None:
    bed = plan.make("demo", "v1.36.3", control_planes=3, hard_way=True)
    for node in bed.control_planes:
        documents_ = {each["kind"]: each for each in yaml.safe_load_all(documents.kubeadm_init(bed, "t", "k", node))}
        init = documents_["InitConfiguration"]
        assert init["localAPIEndpoint"]["advertiseAddress"] == node.address
        assert init["nodeRegistration"]["name"] == node.name

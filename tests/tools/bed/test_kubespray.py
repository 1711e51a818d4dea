# SPDX-License-Identifier: Apache-2.0
"""The files of a cluster with the layout of kubespray."""

import shlex

import yaml

from bed import documents, kubespray, plan


def bed(leftovers: bool = False) -> plan.Plan:
    return plan.make("demo", "v1.36.3", leftovers=leftovers, kubespray=True)


def texts(node: int, leftovers: bool = False) -> dict[str, str]:
    made = bed(leftovers)
    return {path: content for path, (content, _) in kubespray.files(made, made.nodes[node]).items()}


def variables(text: str) -> dict[str, str]:
    """Read an environment file as systemd does: a backslash continues a line."""
    words = shlex.split(text.replace("\\\n", ""), comments=True)
    return dict(word.split("=", 1) for word in words)


def by_kind(text: str) -> dict[str, dict[str, object]]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_unit_uses_every_variable_of_the_environment_file() -> None:
    found = texts(1)
    used = {word.removeprefix("$") for word in found[kubespray.UNIT].split() if word.startswith("$")}
    assert variables(found[kubespray.KUBELET_ENV]).keys() - {"PATH"} <= used


def test_without_leftovers_no_file_gives_a_cloud_flag() -> None:
    for node in (0, 1):
        for path, text in texts(node).items():
            assert "--cloud" not in text, path
        assert variables(texts(node)[kubespray.KUBELET_ENV])["KUBELET_CLOUDPROVIDER"] == ""


def test_leftovers_are_in_the_first_workers_arguments_and_in_a_patch() -> None:
    control_plane, first, second = (texts(node, leftovers=True) for node in (0, 1, 2))
    assert variables(first[kubespray.KUBELET_ENV])["KUBELET_ARGS"].split()[-1] == "--cloud-provider="
    for other in (control_plane, second):
        assert "--cloud-provider" not in other[kubespray.KUBELET_ENV]
    operations = yaml.safe_load(control_plane["/etc/kubernetes/patches/kube-controller-manager1+json.yaml"])
    assert [operation["value"] for operation in operations] == [
        "--profiling=false", "--cloud-config=/etc/kubernetes/cloud.conf",
    ]  # fmt: skip
    manager = by_kind(documents.kubeadm_init(bed(leftovers=True), "t", "k"))["ClusterConfiguration"][
        "controllerManager"
    ]
    assert isinstance(manager, dict) and "cloud-config" not in str(manager)


def test_kubeadm_is_told_the_places_of_certificates_and_patches() -> None:
    made = bed()
    read = by_kind(documents.kubeadm_init(made, "t", "k"))
    cluster, init = read["ClusterConfiguration"], read["InitConfiguration"]
    assert cluster["certificatesDir"] == "/etc/kubernetes/ssl"
    etcd = cluster["etcd"]
    assert isinstance(etcd, dict)
    environment = variables(texts(0)[kubespray.ETCD_ENV])
    assert etcd["external"]["endpoints"] == [environment["ETCD_ADVERTISE_CLIENT_URLS"]]
    assert etcd["external"]["caFile"] == environment["ETCD_TRUSTED_CA_FILE"]
    assert init["patches"] == {"directory": "/etc/kubernetes/patches"}
    assert "kubeletExtraArgs" not in init["nodeRegistration"]  # type: ignore[operator]


def test_only_control_planes_have_etcd_and_patches() -> None:
    worker = texts(1)
    assert not {path for path in worker if "etcd" in path or "patches" in path}
    made = bed()
    places = [kubespray.kubeadm_config(node) for node in made.nodes[:2]]
    assert places == ["/etc/kubernetes/kubeadm-config.yaml", "/etc/kubernetes/kubeadm-client.conf"]

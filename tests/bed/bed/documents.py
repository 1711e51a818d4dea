# SPDX-License-Identifier: Apache-2.0
"""The files a bed is made of, rendered from its plan: for kubeadm, kube-proxy, the cloud and Ansible. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bed.plan import (
    API_PORT,
    CLOUD_PORT,
    CLOUD_TOKEN,
    INSTANCE_TYPE,
    POD_CIDR,
    PROJECT,
    REGION,
    SERVICE_CIDR,
    ZONES,
    Node,
    Plan,
)
from bed.versions import find
from bed.yamlish import dump

RUNTIME_IMAGE = "localhost/outoftree-ccm:0.1.0"
NODE_CONFIG = "/etc/bed"
CRI_SOCKET = "unix:///run/containerd/containerd.sock"

# What in-tree clouds left behind. The ini file is of a kind that no component reads any more.
LEFTOVER_CLOUD_CONF = "/etc/kubernetes/cloud.conf"
LEFTOVER_CLOUD_CONF_TEXT = """\
[Global]
auth-url = https://cloud.example.org:5000/v3
tenant-name = production
username = kubernetes
password = long-forgotten

[LoadBalancer]
subnet-id = 4c4c2f8e-6a5b-4a8f-9f3e-0d6f1f6b3c55
"""
LEFTOVER_KUBELET_FILE = "/etc/default/kubelet"
LEFTOVER_KUBELET_TEXT = 'KUBELET_EXTRA_ARGS="--cloud-provider="\n'


def _args(**flags: str) -> list[dict[str, str]]:
    """kubeadm v1beta4 has flags as a list of name and value."""
    return [{"name": name.replace("_", "-"), "value": value} for name, value in flags.items()]


def _registration(node: Node, external: bool) -> dict[str, Any]:
    kubelet = _args(node_ip=node.address)
    if external:
        kubelet += _args(cloud_provider="external")
    return {
        "name": node.name,
        "criSocket": CRI_SOCKET,
        "imagePullPolicy": "Never",
        "kubeletExtraArgs": kubelet,
    }


def _documents(*documents: dict[str, Any]) -> str:
    return "---\n".join(dump(document) for document in documents)


def kubeadm_init(plan: Plan, token: str, certificate_key: str) -> str:
    """For ``kubeadm init`` on the first control plane. Without cloud integration: that is what is to be migrated."""
    first = plan.control_planes[0]
    init = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": token, "ttl": "0s"}],
        "certificateKey": certificate_key,
        "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
        "nodeRegistration": _registration(first, external=False),
        "skipPhases": ["addon/coredns", "addon/kube-proxy"],
    }
    # It gives each node its podCIDR; who makes the routes is the matter of these clusters.
    controller_manager: dict[str, Any] = {"extraArgs": _args(allocate_node_cidrs="true")}
    if plan.leftovers:
        controller_manager["extraArgs"] += _args(cloud_provider="", cloud_config=LEFTOVER_CLOUD_CONF)
        controller_manager["extraVolumes"] = [
            {
                "name": "cloud-config",
                "hostPath": LEFTOVER_CLOUD_CONF,
                "mountPath": LEFTOVER_CLOUD_CONF,
                "readOnly": True,
                "pathType": "File",
            }
        ]
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "clusterName": plan.name,
        "kubernetesVersion": plan.kubernetes,
        "controlPlaneEndpoint": plan.api_endpoint,
        "networking": {"podSubnet": POD_CIDR, "serviceSubnet": SERVICE_CIDR},
        "apiServer": {"certSANs": [plan.gateway, *(node.address for node in plan.control_planes)]},
        "controllerManager": controller_manager,
        "etcd": {
            "local": {
                "imageTag": find(plan.kubernetes).etcd_image_tag,
                # A bed is thrown away after a power cut; waiting for the disk is not what is tested.
                "extraArgs": _args(unsafe_no_fsync="true"),
            }
        },
    }
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        # A developer's disk is fuller than a server's.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
    }
    return _documents(init, cluster, kubelet)


def kubeadm_join(plan: Plan, node: Node, token: str, certificate_key: str, external: bool = False) -> str:
    """For ``kubeadm join``; ``external`` is how nodes join once the cluster has its cloud-controller-manager."""
    join: dict[str, Any] = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "nodeRegistration": _registration(node, external),
        "discovery": {
            # The network between the two is a bridge of this machine.
            "bootstrapToken": {
                "token": token,
                "apiServerEndpoint": plan.api_endpoint,
                "unsafeSkipCAVerification": True,
            }
        },
    }
    if node.control_plane:
        join["controlPlane"] = {
            "localAPIEndpoint": {"advertiseAddress": node.address, "bindPort": API_PORT},
            "certificateKey": certificate_key,
        }
    return _documents(join)


def kube_proxy() -> str:
    """For kube-proxy, which uses the kubelet's own credentials (the bed lets nodes be node proxiers)."""
    return dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": POD_CIDR,
            "clientConnection": {"kubeconfig": "/etc/kubernetes/kubelet.conf"},
            # Limits of conntrack belong to the host and cannot be set in a container.
            "conntrack": {"maxPerCore": 0, "min": 0},
            "nftables": {"minSyncPeriod": "100ms"},
        }
    )


def instance(node: Node) -> dict[str, Any]:
    """The machine as its cloud knows it."""
    return {
        "name": node.name,
        "type": INSTANCE_TYPE,
        "zone": node.zone,
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "Hostname", "address": node.name},
        ],
    }


def cloud(plan: Plan) -> str:
    """What the simulated cloud starts with: an instance for each node, and one that is no node."""
    bastion = Node("bastion", control_plane=False, address=plan.host(199), zone=ZONES[0])
    project = {
        "name": PROJECT,
        "token": CLOUD_TOKEN,
        "region": REGION,
        "load_balancer_addresses": plan.load_balancer_addresses,
        "instances": [instance(machine) for machine in [*plan.nodes, bastion]],
    }
    return dump({"projects": [project]})


def cloud_config(plan: Plan) -> str:
    """The cloud.conf of the controller."""
    return dump({"endpoint": f"http://{plan.gateway}:{CLOUD_PORT}", "project": PROJECT, "token": CLOUD_TOKEN})


def inventory(plan: Plan) -> str:
    """The bed for Ansible, with the group names of kubespray."""
    return "# SPDX-License-Identifier: Apache-2.0\n" + dump(
        {
            "all": {
                "vars": {
                    "ansible_connection": "containers.podman.podman",
                    "ansible_python_interpreter": "/usr/bin/python3",
                },
                "children": {
                    "kube_control_plane": {"hosts": {node.name: {} for node in plan.control_planes}},
                    "kube_node": {"hosts": {node.name: {} for node in plan.workers}},
                },
            }
        }
    )


def group_vars(plan: Plan, kubeconfig: Path, runtime_archive: Path) -> str:
    """What the collection has to know of the bed."""
    return "# SPDX-License-Identifier: Apache-2.0\n" + dump(
        {
            "ccm_install_kubeconfig": str(kubeconfig),
            "ccm_runtime_image": RUNTIME_IMAGE,
            "ccm_runtime_image_archive": str(runtime_archive),
            "ccm_runtime_cloud_provider": "sim",
            "ccm_runtime_cloud_config": cloud_config(plan),
            "ccm_runtime_cluster_cidr": POD_CIDR,
            "ccm_runtime_cluster_name": plan.name,
        }
    )

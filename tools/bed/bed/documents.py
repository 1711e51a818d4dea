# SPDX-License-Identifier: Apache-2.0
"""Renders the files of a bed from its plan: for kubeadm, kube-proxy, the cloud and Ansible. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bed.plan import (
    API_PORT,
    CLOUD_PORT,
    CLOUD_TOKEN,
    INSTANCE_TYPE,
    PROJECT,
    REGION,
    ZONES,
    Node,
    Plan,
)
from bed.systems import DEFAULT, SYSTEMS
from bed.versions import Version, find
from bed.yamlish import dump

RUNTIME_IMAGE = "localhost/outoftree-ccm:0.1.0"
NODE_CONFIG = "/etc/bed"
CRI_SOCKET = SYSTEMS[DEFAULT].socket
# Where a cluster without kubeadm has its certificates and kubeconfigs.
PKI = "/var/lib/kubernetes"
ETCD = "https://127.0.0.1:2379"
# Where kubespray has the cluster's certificates, those of etcd, and kubeadm's patches.
KUBESPRAY_PKI = "/etc/kubernetes/ssl"
KUBESPRAY_ETCD_PKI = "/etc/ssl/etcd/ssl"
KUBESPRAY_PATCHES = "/etc/kubernetes/patches"

# A leftover of in-tree clouds: a configuration file in INI format, which no component reads any more.
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
# The usual worker of an in-tree cloud: both flags side by side, in the file that kubeadm does not write.
LEFTOVER_IN_TREE_KUBELET_TEXT = f'KUBELET_EXTRA_ARGS="--cloud-provider= --cloud-config={LEFTOVER_CLOUD_CONF}"\n'
# Flags without effect since 1.31. kube-controller-manager 1.37 does not start with them.
LEFTOVERS_UNTIL_1_36 = {
    "concurrent-service-syncs": "2",
    "controllers": "*,bootstrapsigner,tokencleaner,-service-lb-controller",
}


def _args(version: Version, flags: dict[str, str]) -> list[dict[str, str]] | dict[str, str]:
    """Return flags for kubeadm: v1beta4 has them as a list of name and value, v1beta3 as a mapping."""
    if version.kubeadm_api.endswith("v1beta3"):
        return flags
    return [{"name": name, "value": value} for name, value in flags.items()]


def _registration(plan: Plan, node: Node, external: bool) -> dict[str, Any]:
    version = find(plan.kubernetes)
    # kubespray's kubelet does not read the flags that kubeadm writes for it.
    kubelet = {} if plan.kubespray else {"node-ip": ",".join(plan.addresses(node))}
    if external:
        kubelet["cloud-provider"] = "external"
    elif plan.leftovers and version.in_tree:
        kubelet |= {"cloud-provider": "", "cloud-config": LEFTOVER_CLOUD_CONF}
    return {
        "name": node.name,
        "criSocket": node.system.socket,
        "imagePullPolicy": "Never",
        **({"kubeletExtraArgs": _args(version, kubelet)} if kubelet else {}),
    }


def _skipped(version: Version, *phases: str) -> dict[str, list[str]]:
    """Return the phases to skip. Before 1.31 the preflight phase fails without crictl, even if errors are ignored."""
    skipped = [*(["preflight"] if version.minor < 31 else []), *phases]
    return {"skipPhases": skipped} if skipped else {}


def _control_plane(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return kubeadm's sections apiServer and controllerManager; with leftovers, also with flags of in-tree clouds."""
    version = find(plan.kubernetes)
    # By default, kubeadm lets the API server accept any certificate of a kubelet; certificates that the cluster signed
    # can be verified.
    apiserver = {"kubelet-certificate-authority": "/etc/kubernetes/pki/ca.crt"} if plan.serving_certs else {}
    # kube-controller-manager gives each node its podCIDR. Which controller creates the routes is under test.
    manager = {"allocate-node-cidrs": "true"}
    if plan.leftovers:
        manager |= {"cloud-provider": "", "cloud-config": LEFTOVER_CLOUD_CONF}
        if version.in_tree:
            apiserver["enable-admission-plugins"] = "NodeRestriction,PersistentVolumeLabel"
            apiserver |= {"cloud-provider": "external", "cloud-config": LEFTOVER_CLOUD_CONF}
        if 31 <= version.minor <= 36:
            manager |= LEFTOVERS_UNTIL_1_36
    if plan.kubespray:
        manager.pop("cloud-config", None)  # one of kubeadm's patches has it
    sections: dict[str, dict[str, Any]] = {}
    for name, flags in (("apiServer", apiserver), ("controllerManager", manager)):
        sections[name] = {"extraArgs": _args(version, flags)} if flags else {}
        if "cloud-config" in flags:
            sections[name]["extraVolumes"] = [
                {
                    "name": "cloud-config",
                    "hostPath": LEFTOVER_CLOUD_CONF,
                    "mountPath": LEFTOVER_CLOUD_CONF,
                    "readOnly": True,
                    "pathType": "File",
                }
            ]
    addresses = [address for node in plan.control_planes for address in plan.addresses(node)]
    sections["apiServer"]["certSANs"] = [plan.gateway, *addresses]
    return sections


def _documents(*documents: dict[str, Any]) -> str:
    return "---\n".join(dump(document) for document in documents)


def kubeadm_init(plan: Plan, token: str, certificate_key: str, node: Node | None = None) -> str:
    """Return the configuration of ``kubeadm init`` for a control plane, by default the first one. It has no cloud
    integration, because the migration adds it."""
    first = node or plan.control_planes[0]
    version = find(plan.kubernetes)
    init = {
        "apiVersion": version.kubeadm_api,
        "kind": "InitConfiguration",
        "bootstrapTokens": [{"token": token, "ttl": "0s"}],
        "certificateKey": certificate_key,
        "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
        "nodeRegistration": _registration(plan, first, external=False),
        **({"patches": {"directory": KUBESPRAY_PATCHES}} if plan.kubespray else {}),
        **_skipped(version, "addon/coredns", "addon/kube-proxy"),
    }
    cluster = {
        "apiVersion": version.kubeadm_api,
        "kind": "ClusterConfiguration",
        "clusterName": plan.name,
        "kubernetesVersion": plan.kubernetes,
        "controlPlaneEndpoint": plan.api_endpoint,
        "networking": {"podSubnet": plan.pod_cidr, "serviceSubnet": plan.service_cidr},
        **_control_plane(plan),
        "etcd": {
            "local": {
                "imageTag": version.etcd_image_tag,
                # After a power cut nobody needs the bed's data, so etcd need not wait for the disk.
                "extraArgs": _args(version, {"unsafe-no-fsync": "true"}),
            }
        },
    }
    if plan.external_etcd:
        client = f"{PKI}/apiserver-etcd-client"
        files = {"caFile": f"{PKI}/etcd/ca.crt", "certFile": f"{client}.crt", "keyFile": f"{client}.key"}
        cluster["etcd"] = {"external": {"endpoints": [ETCD], **files}}
    if plan.hard_way:  # kubeadm only makes the certificates
        cluster["certificatesDir"] = PKI
    if plan.kubespray:
        cluster["certificatesDir"] = KUBESPRAY_PKI
        client = f"{KUBESPRAY_ETCD_PKI}/node-{first.name}"
        files = {"caFile": f"{KUBESPRAY_ETCD_PKI}/ca.pem", "certFile": f"{client}.pem", "keyFile": f"{client}-key.pem"}
        cluster["etcd"] = {"external": {"endpoints": [f"https://{first.address}:2379"], **files}}
    kubelet = kubelet_configuration(version)
    if plan.serving_certs:  # kubeadm gives this setting to nodes that join later, too
        kubelet["serverTLSBootstrap"] = True
    return _documents(init, cluster, kubelet)


def kubelet_configuration(version: Version) -> dict[str, Any]:
    """Return the settings that a kubelet needs in a container on a developer's machine."""
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
    if version.minor < 31:
        del kubelet["failCgroupV1"]  # unknown before 1.31
    return kubelet


def kubeadm_join(plan: Plan, node: Node, token: str, certificate_key: str, external: bool = False) -> str:
    """Return the configuration of ``kubeadm join``; ``external``: the cluster has its cloud-controller-manager."""
    version = find(plan.kubernetes)
    join: dict[str, Any] = {
        "apiVersion": version.kubeadm_api,
        "kind": "JoinConfiguration",
        "nodeRegistration": _registration(plan, node, external),
        "discovery": {
            # Nobody can intercept this connection: the network is a bridge of this machine.
            "bootstrapToken": {
                "token": token,
                "apiServerEndpoint": plan.api_endpoint,
                "unsafeSkipCAVerification": True,
            }
        },
        **_skipped(version),
    }
    if node.control_plane:
        join["controlPlane"] = {
            "localAPIEndpoint": {"advertiseAddress": node.address, "bindPort": API_PORT},
            "certificateKey": certificate_key,
        }
    return _documents(join)


def kube_proxy(plan: Plan, node: Node) -> str:
    """Return kube-proxy's configuration. It uses the kubelet's credentials (the bed binds the role to nodes)."""
    young = find(plan.kubernetes).minor < 31
    return dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            **({"featureGates": {"NFTablesProxyMode": True}} if young else {}),
            "mode": node.system.proxy_mode,
            "clusterCIDR": plan.pod_cidr,
            "clientConnection": {"kubeconfig": "/etc/kubernetes/kubelet.conf"},
            # Limits of conntrack belong to the host and cannot be set in a container.
            "conntrack": {"maxPerCore": 0, "min": 0},
            "nftables": {"minSyncPeriod": "100ms"},
        }
    )


def instance(plan: Plan, node: Node) -> dict[str, Any]:
    """Return a machine's instance in the simulated cloud."""
    return {
        "name": node.name,
        "type": INSTANCE_TYPE,
        "zone": node.zone,
        "addresses": [
            *({"type": "InternalIP", "address": address} for address in plan.addresses(node)),
            {"type": "Hostname", "address": node.name},
        ],
    }


def cloud(plan: Plan) -> str:
    """Return what the simulated cloud starts with: an instance for each node, and one that is not a node."""
    bastion = Node("bastion", control_plane=False, address=plan.host(199), zone=ZONES[0])
    project = {
        "name": PROJECT,
        "token": CLOUD_TOKEN,
        "region": REGION,
        "load_balancer_addresses": plan.load_balancer_addresses,
        **({"load_balancer_mode": "pass-through"} if plan.pass_through else {}),
        "instances": [instance(plan, machine) for machine in [*plan.nodes, bastion]],
    }
    return dump({"projects": [project]})


def cloud_config(plan: Plan) -> str:
    """Return the controller's cloud.conf."""
    return dump({"endpoint": f"http://{plan.gateway}:{CLOUD_PORT}", "project": PROJECT, "token": CLOUD_TOKEN})


def inventory(plan: Plan, interpreters: Mapping[str, str] | None = None) -> str:
    """Return the bed's inventory for Ansible, with kubespray's names of groups. ``interpreters``: the Pythons of the
    machines that have their own, by the machine's name."""

    def hosts(nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
        own = interpreters or {}
        return {node.name: {"ansible_python_interpreter": own[node.name]} if node.name in own else {} for node in nodes}

    return "# SPDX-License-Identifier: Apache-2.0\n" + dump(
        {
            "all": {
                "vars": {
                    "ansible_connection": "containers.podman.podman",
                    "ansible_python_interpreter": "/usr/bin/python3",
                },
                "children": {
                    "kube_control_plane": {"hosts": hosts(plan.control_planes)},
                    "kube_node": {"hosts": hosts(plan.workers)},
                },
            }
        }
    )


def group_vars(plan: Plan, kubeconfig: Path, runtime_archive: Path) -> str:
    """Return the collection's variables for the bed. Without the simulated cloud, none of these variables chooses a
    controller."""
    variables = {"ccm_install_kubeconfig": str(kubeconfig), "ccm_runtime_cluster_name": plan.name}
    if plan.cloud:
        variables |= {
            "ccm_runtime_image": RUNTIME_IMAGE,
            "ccm_runtime_image_archive": str(runtime_archive),
            "ccm_runtime_cloud_provider": "sim",
            "ccm_runtime_cloud_config": cloud_config(plan),
            "ccm_runtime_cluster_cidr": plan.pod_cidr,
        }
    return "# SPDX-License-Identifier: Apache-2.0\n" + dump(variables)

# SPDX-License-Identifier: Apache-2.0
"""A cluster as kubespray leaves it: kubeadm's static Pods, and kubespray's own kubelet, etcd, paths and accounts.

Places, names and variables are those of kubespray's roles (kubernetes/node, kubernetes/control-plane, etcd, adduser)
with their defaults and cloud_provider empty. kubeadm reads its files below /etc/kubernetes. The kubelet reads
/etc/kubernetes/kubelet.env, and nothing that kubeadm writes about its flags.
"""

from __future__ import annotations

from bed.documents import (
    CRI_SOCKET,
    KUBESPRAY_ETCD_PKI,
    KUBESPRAY_PATCHES,
    KUBESPRAY_PKI,
    LEFTOVER_CLOUD_CONF,
    NODE_CONFIG,
    kubelet_configuration,
)
from bed.machines import on, write_file
from bed.plan import Node, Plan
from bed.versions import find
from bed.yamlish import dump

UNIT = "/etc/systemd/system/kubelet.service"
KUBELET_ENV = "/etc/kubernetes/kubelet.env"
KUBELET_CONFIG = "/etc/kubernetes/kubelet-config.yaml"
ETCD_UNIT = "/etc/systemd/system/etcd.service"
ETCD_ENV = "/etc/etcd.env"

_KUBELET_UNIT = """\
[Unit]
Description=Kubernetes Kubelet Server
After=containerd.service
Wants=containerd.service

[Service]
EnvironmentFile=-/etc/kubernetes/kubelet.env
ExecStart=/usr/local/bin/kubelet \\
\t\t$KUBE_LOGTOSTDERR \\
\t\t$KUBE_LOG_LEVEL \\
\t\t$KUBELET_API_SERVER \\
\t\t$KUBELET_ADDRESS \\
\t\t$KUBELET_PORT \\
\t\t$KUBELET_HOSTNAME \\
\t\t$KUBELET_ARGS \\
\t\t$DOCKER_SOCKET \\
\t\t$KUBELET_NETWORK_PLUGIN \\
\t\t$KUBELET_VOLUME_PLUGIN \\
\t\t$KUBELET_CLOUDPROVIDER
Restart=always
RestartSec=10s

[Install]
WantedBy=multi-user.target
"""
_ETCD_UNIT = """\
[Unit]
Description=etcd
After=network.target

[Service]
Type=notify
User=root
EnvironmentFile=/etc/etcd.env
ExecStart=/usr/local/bin/etcd
NotifyAccess=all
Restart=always
RestartSec=10s

[Install]
WantedBy=multi-user.target
"""
# Creates the accounts, and the folders that the account kube owns. The link is there because kubeadm looks for some
# certificates in /etc/kubernetes/pki.
_PREPARE = f"""\
set -e
getent group kube-cert >/dev/null || groupadd --system kube-cert
id kube >/dev/null 2>&1 || useradd --system --no-create-home --shell /sbin/nologin --gid kube-cert kube
mkdir -p /etc/kubernetes/manifests {KUBESPRAY_PKI}
chown kube /etc/kubernetes /etc/kubernetes/manifests
ln -sfn {KUBESPRAY_PKI} /etc/kubernetes/pki
rm -rf /etc/systemd/system/kubelet.service.d
"""
_SIGN_ETCD = f"""\
set -e
signed=$(mktemp -d)
for phase in etcd-ca etcd-server etcd-peer apiserver-etcd-client; do
    kubeadm init phase certs "$phase" --cert-dir="$signed" --kubernetes-version="$2"
done
mkdir -p {KUBESPRAY_ETCD_PKI}
chmod 0700 {KUBESPRAY_ETCD_PKI}
cp "$signed/etcd/ca.crt" {KUBESPRAY_ETCD_PKI}/ca.pem
cp "$signed/etcd/ca.key" {KUBESPRAY_ETCD_PKI}/ca-key.pem
for pair in member=etcd/server node=apiserver-etcd-client; do
    cp "$signed/${{pair#*=}}.crt" "{KUBESPRAY_ETCD_PKI}/${{pair%=*}}-$1.pem"
    cp "$signed/${{pair#*=}}.key" "{KUBESPRAY_ETCD_PKI}/${{pair%=*}}-$1-key.pem"
done
rm -r "$signed"
"""


def kubeadm_config(node: Node) -> str:
    """Return the path of the file that ``kubeadm init`` or ``kubeadm join`` reads on this node."""
    return "/etc/kubernetes/kubeadm-" + ("config.yaml" if node.control_plane else "client.conf")


def files(plan: Plan, node: Node) -> dict[str, tuple[str, str]]:
    """Return content and mode of the files that kubespray writes before kubeadm runs, by their paths. Pure."""
    found = {
        UNIT: (_KUBELET_UNIT, "0644"),
        KUBELET_ENV: (kubelet_env(plan, node), "0600"),
        KUBELET_CONFIG: (kubelet_config(plan), "0600"),
    }
    if node.control_plane:
        found |= {ETCD_UNIT: (_ETCD_UNIT, "0644"), ETCD_ENV: (etcd_env(node), "0640")}
        found |= {path: (text, "0644") for path, text in patches(plan).items()}
    return found


def kubelet_env(plan: Plan, node: Node) -> str:
    """Return kubelet.env. With leftovers, the first worker has an old flag from the variable kubelet_custom_flags."""
    custom = "--cloud-provider=" if plan.leftovers and node in plan.workers[:1] else ""
    return (
        'KUBE_LOG_LEVEL="--v=2"\n'
        f'KUBELET_ADDRESS="--node-ip={node.address}"\n'
        f'KUBELET_HOSTNAME="--hostname-override={node.name}"\n'
        "\n"
        'KUBELET_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\\n'
        f"--config={KUBELET_CONFIG} \\\n"
        "--kubeconfig=/etc/kubernetes/kubelet.conf \\\n"
        "--runtime-cgroups=/system.slice/containerd.service \\\n"
        f' {custom}"\n'
        'KUBELET_CLOUDPROVIDER=""\n'
        "\n"
        "PATH=/usr/local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    )


def kubelet_config(plan: Plan) -> str:
    """Return the kubelet's configuration: it moves itself to its unit's cgroup, and reads kubeadm's static Pods."""
    return dump(
        {
            **kubelet_configuration(find(plan.kubernetes)),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{KUBESPRAY_PKI}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "staticPodPath": "/etc/kubernetes/manifests",
            "containerRuntimeEndpoint": CRI_SOCKET,
            "healthzPort": 10248,
            "healthzBindAddress": "127.0.0.1",
            "kubeletCgroups": "/system.slice/kubelet.service",
            "clusterDomain": "cluster.local",
            "rotateCertificates": True,
            "resolvConf": "/etc/resolv.conf",
        }
    )


def etcd_env(node: Node) -> str:
    """Return etcd's environment file, which has all settings: etcd gets no arguments."""
    member = f"{KUBESPRAY_ETCD_PKI}/member-{node.name}"
    client, peer = f"https://{node.address}:2379", f"https://{node.address}:2380"
    variables = {
        "DATA_DIR": "/var/lib/etcd",
        "ADVERTISE_CLIENT_URLS": client,
        "INITIAL_ADVERTISE_PEER_URLS": peer,
        "INITIAL_CLUSTER_STATE": "new",
        "METRICS": "basic",
        "LISTEN_CLIENT_URLS": f"{client},https://127.0.0.1:2379",
        "INITIAL_CLUSTER_TOKEN": "k8s_etcd",
        "LISTEN_PEER_URLS": peer,
        "NAME": "etcd1",
        "INITIAL_CLUSTER": f"etcd1={peer}",
        "TRUSTED_CA_FILE": f"{KUBESPRAY_ETCD_PKI}/ca.pem",
        "CERT_FILE": f"{member}.pem",
        "KEY_FILE": f"{member}-key.pem",
        "CLIENT_CERT_AUTH": "true",
        "PEER_TRUSTED_CA_FILE": f"{KUBESPRAY_ETCD_PKI}/ca.pem",
        "PEER_CERT_FILE": f"{member}.pem",
        "PEER_KEY_FILE": f"{member}-key.pem",
        "PEER_CLIENT_CERT_AUTH": "True",
        # After a power cut nobody needs the bed's data.
        "UNSAFE_NO_FSYNC": "true",
    }
    return "# Environment file for etcd\n" + "".join(f"ETCD_{name}={value}\n" for name, value in variables.items())


def patches(plan: Plan) -> dict[str, str]:
    """Return kubeadm_patches by path, numbered as in kubespray's roles. With leftovers, one patch adds an old flag."""
    added = ["--profiling=false", *([f"--cloud-config={LEFTOVER_CLOUD_CONF}"] if plan.leftovers else [])]
    operations = [f"- {{op: add, path: /spec/containers/0/command/-, value: {flag}}}\n" for flag in added]
    return {
        f"{KUBESPRAY_PATCHES}/kube-apiserver0+strategic.yaml": (
            "metadata:\n  annotations: {example.org/patched: 'true'}\n"
        ),
        f"{KUBESPRAY_PATCHES}/kube-controller-manager1+json.yaml": "".join(operations),
    }


def prepare(plan: Plan, node: Node) -> None:
    """Prepare a machine as kubespray does before it runs kubeadm; on a control plane, also start etcd."""
    config = kubeadm_config(node)
    on(node.name, "sh", "-c", _PREPARE)
    write_file(node.name, config, on(node.name, "cat", f"{NODE_CONFIG}/kubeadm.yaml"), "0640")
    for path, (content, mode) in files(plan, node).items():
        write_file(node.name, path, content, mode)
    on(node.name, "systemctl", "daemon-reload")
    if node.control_plane:
        on(node.name, "chmod", "0750", KUBESPRAY_PATCHES)
        on(node.name, "sh", "-c", _SIGN_ETCD, "sign", node.name, plan.kubernetes)
        on(node.name, "systemctl", "enable", "--now", "etcd")

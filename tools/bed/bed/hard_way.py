# SPDX-License-Identifier: Apache-2.0
"""A cluster "the hard way": all components are systemd units, as in clusters that people set up by hand.

kubeadm only signs the certificates and writes kubeconfigs. It writes no static Pod, no ConfigMap, and no label or taint
of a control plane. As in such clusters, some flags are in the unit, some in an environment file, and some in a drop-in.
"""

from __future__ import annotations

from collections.abc import Sequence

from bed.documents import (
    CRI_SOCKET,
    ETCD,
    LEFTOVER_CLOUD_CONF,
    NODE_CONFIG,
    PKI,
    kubelet_configuration,
)
from bed.machines import CONTROL_PLANE_BINARIES, on, write_file
from bed.plan import API_PORT, POD_CIDR, SERVICE_CIDR, Node, Plan
from bed.run import in_parallel
from bed.versions import find
from bed.yamlish import dump

UNITS = "/etc/systemd/system"
MANAGER_ARGUMENTS = "/etc/kubernetes/controller-manager"
KUBELET_CONFIG = "/var/lib/kubelet/kubelet-config.yaml"
KUBELET_CA = "/var/lib/kubelet/ca.crt"
# Where other units of the node image read the kubelet's kubeconfig.
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
# Files below the PKI's folder that are the same on all control planes.
SHARED = (
    *("ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key", "front-proxy-ca.crt", "front-proxy-ca.key"),
    *("sa.key", "sa.pub"),
)

_UNIT = """\
[Unit]
Description={title}
After={after}

[Service]
{service}Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""


def control_plane_files(plan: Plan, node: Node) -> dict[str, str]:
    """Return units and environment files of a control plane by their paths. Pure, as is `kubelet_files`."""
    old = plan.leftovers and find(plan.kubernetes).in_tree
    members = plan.control_planes
    apiserver = {
        "advertise-address": node.address,
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "client-ca-file": f"{PKI}/ca.crt",
        **({"cloud-config": LEFTOVER_CLOUD_CONF, "cloud-provider": "external"} if old else {}),
        "enable-admission-plugins": "NodeRestriction,PersistentVolumeLabel" if old else "NodeRestriction",
        "etcd-cafile": f"{PKI}/etcd/ca.crt",
        "etcd-certfile": f"{PKI}/apiserver-etcd-client.crt",
        "etcd-keyfile": f"{PKI}/apiserver-etcd-client.key",
        "etcd-servers": ",".join(f"https://{each.address}:2379" for each in members) if len(members) > 1 else ETCD,
        "kubelet-client-certificate": f"{PKI}/apiserver-kubelet-client.crt",
        "kubelet-client-key": f"{PKI}/apiserver-kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP,Hostname",
        "secure-port": str(API_PORT),
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": f"{PKI}/sa.pub",
        "service-account-signing-key-file": f"{PKI}/sa.key",
        "service-cluster-ip-range": SERVICE_CIDR,
        "tls-cert-file": f"{PKI}/apiserver.crt",
        "tls-private-key-file": f"{PKI}/apiserver.key",
    }
    manager = {
        "allocate-node-cidrs": "true",
        "bind-address": "127.0.0.1",
        **({"cloud-provider": "", "cloud-config": LEFTOVER_CLOUD_CONF} if plan.leftovers else {}),
        "cluster-cidr": POD_CIDR,
        "cluster-signing-cert-file": f"{PKI}/ca.crt",
        "cluster-signing-key-file": f"{PKI}/ca.key",
        **_gates(old),
        "kubeconfig": f"{PKI}/controller-manager.conf",
        "root-ca-file": f"{PKI}/ca.crt",
        "service-account-private-key-file": f"{PKI}/sa.key",
        "service-cluster-ip-range": SERVICE_CIDR,
        "use-service-account-credentials": "true",
    }
    scheduler = {"bind-address": "127.0.0.1", **_gates(old), "kubeconfig": f"{PKI}/scheduler.conf"}
    arguments = " ".join(_words(manager))
    manager_service = (
        f"EnvironmentFile=-{MANAGER_ARGUMENTS}\n"
        "ExecStart=/usr/local/bin/kube-controller-manager $KUBE_CONTROLLER_MANAGER_ARGS\n"
    )
    return {
        f"{UNITS}/etcd.service": etcd_unit(node, members),
        f"{UNITS}/kube-apiserver.service": _unit(
            "Kubernetes API Server", "etcd.service", _start("/usr/local/bin/kube-apiserver", apiserver, "notify")
        ),
        f"{UNITS}/kube-controller-manager.service": _unit(
            "Kubernetes Controller Manager", "kube-apiserver.service", manager_service
        ),
        MANAGER_ARGUMENTS: f'# Arguments of kube-controller-manager\nKUBE_CONTROLLER_MANAGER_ARGS="{arguments}"\n',
        f"{UNITS}/kube-scheduler.service": _unit(
            "Kubernetes Scheduler", "kube-apiserver.service", _start("/usr/local/bin/kube-scheduler", scheduler)
        ),
    }


def etcd_unit(node: Node, members: Sequence[Node] = ()) -> str:
    """Return etcd's unit on a control plane: a single etcd for its API server, or one of several ``members``."""
    client = f"https://{node.address}:2379"
    together = {
        "listen-peer-urls": _peer(node),
        "initial-advertise-peer-urls": _peer(node),
        "initial-cluster": ",".join(f"{each.name}={_peer(each)}" for each in members),
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": f"{PKI}/etcd/ca.crt",
        "peer-cert-file": f"{PKI}/etcd/peer.crt",
        "peer-key-file": f"{PKI}/etcd/peer.key",
    }
    several = len(members) > 1
    flags = {
        "name": node.name,
        "data-dir": "/var/lib/etcd",
        "advertise-client-urls": client if several else ETCD,
        "listen-client-urls": f"{client},{ETCD}" if several else ETCD,
        **(together if several else {}),
        "client-cert-auth": "true",
        "trusted-ca-file": f"{PKI}/etcd/ca.crt",
        "cert-file": f"{PKI}/etcd/server.crt",
        "key-file": f"{PKI}/etcd/server.key",
        "unsafe-no-fsync": "true",
    }
    return _unit("etcd", "network.target", _start("/usr/local/bin/etcd", flags, "notify"))


def kubelet_files(plan: Plan, node: Node) -> dict[str, str]:
    """Return the kubelet's files by their paths. A control plane's unit has all flags; a worker's drop-in has some."""
    version = find(plan.kubernetes)
    flags = {"config": KUBELET_CONFIG, "kubeconfig": KUBECONFIG, "node-ip": node.address, "v": "2"}
    configuration = {
        **kubelet_configuration(version),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": KUBELET_CA},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": CRI_SOCKET,
    }
    service = _start("/usr/bin/kubelet", flags)
    files = {KUBELET_CONFIG: dump(configuration)}
    if not node.control_plane:
        service = "EnvironmentFile=-/etc/sysconfig/kubelet\n" + service.rstrip() + " $KUBELET_OPTS\n"
        old = {"cloud-provider": "", "cloud-config": LEFTOVER_CLOUD_CONF} if version.in_tree else {"cloud-provider": ""}
        extra = {**(old if plan.leftovers else {}), "node-labels": "example.org/made=by-hand"}
        files[f"{UNITS}/kubelet.service.d/20-extra.conf"] = (
            f'[Service]\nEnvironment="KUBELET_OPTS={" ".join(_words(extra))}"\n'
        )
    return {**files, f"{UNITS}/kubelet.service": _unit("Kubernetes Kubelet", "containerd.service", service)}


def start_control_planes(plan: Plan) -> str:
    """Sign everything, and start the control planes' units. Return the administrator's kubeconfig."""
    first, *others = plan.control_planes
    _sign(first)
    for node in others:
        for name in SHARED:
            write_file(node.name, f"{PKI}/{name}", on(first.name, "cat", f"{PKI}/{name}"), "0600")
        _sign(node)
    # In parallel: etcd becomes ready only when most of its members run.
    in_parallel(lambda node: _start_units(plan, node), plan.control_planes)
    return _kubeconfig(plan, "admin", "system:masters")


def _sign(node: Node) -> None:
    """Sign the certificates of a control plane, with its existing CAs or with new ones."""
    config = f"--config={NODE_CONFIG}/kubeadm.yaml"
    on(node.name, "kubeadm", "init", "phase", "certs", "all", config)
    for user in ("controller-manager", "scheduler"):
        on(node.name, "kubeadm", "init", "phase", "kubeconfig", user, config, f"--kubeconfig-dir={PKI}")


def _start_units(plan: Plan, node: Node) -> None:
    for path, content in control_plane_files(plan, node).items():
        write_file(node.name, path, content)
    on(node.name, "systemctl", "daemon-reload")
    on(node.name, "systemctl", "enable", "--now", *CONTROL_PLANE_BINARIES)


def start_etcd(plan: Plan) -> None:
    """Start etcd as a unit on a control plane that kubeadm sets up. For kubeadm, this is an external etcd."""
    node = plan.control_planes[0]
    for phase in ("etcd-ca", "etcd-server", "apiserver-etcd-client"):
        flags = (f"--cert-dir={PKI}", f"--kubernetes-version={plan.kubernetes}")
        on(node.name, "kubeadm", "init", "phase", "certs", phase, *flags)
    write_file(node.name, f"{UNITS}/etcd.service", etcd_unit(node))
    on(node.name, "systemctl", "daemon-reload")
    on(node.name, "systemctl", "enable", "--now", "etcd")


def start_kubelet(plan: Plan, node: Node) -> None:
    """Replace kubeadm's unit of the node image with the cluster's own unit, and start it."""
    authority = on(plan.control_planes[0].name, "cat", f"{PKI}/ca.crt")
    write_file(node.name, KUBELET_CA, authority)
    on(node.name, "rm", f"{UNITS}/kubelet.service.d/10-kubeadm.conf")
    for path, content in kubelet_files(plan, node).items():
        write_file(node.name, path, content)
    write_file(node.name, KUBECONFIG, _kubeconfig(plan, f"system:node:{node.name}", "system:nodes"), "0600")
    on(node.name, "systemctl", "daemon-reload")
    on(node.name, "systemctl", "enable", "--now", "kubelet")


def _kubeconfig(plan: Plan, user: str, group: str) -> str:
    config = f"--config={NODE_CONFIG}/kubeadm.yaml"
    names = (f"--client-name={user}", f"--org={group}")
    return on(plan.control_planes[0].name, "kubeadm", "kubeconfig", "user", config, *names)


def _gates(old: bool) -> dict[str, str]:
    """Return a feature gate that releases after 1.30 do not know; {} unless `old`."""
    return {"feature-gates": "InTreePluginOpenStackUnregister=true"} if old else {}


def _peer(node: Node) -> str:
    return f"https://{node.address}:2380"


def _words(flags: dict[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _start(program: str, flags: dict[str, str], kind: str = "") -> str:
    lines = [f"ExecStart={program}", *_words(flags)]
    return (f"Type={kind}\n" if kind else "") + " \\\n  ".join(lines) + "\n"


def _unit(title: str, after: str, service: str) -> str:
    return _UNIT.format(title=title, after=after, service=service)

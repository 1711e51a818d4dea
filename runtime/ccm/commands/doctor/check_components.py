# SPDX-License-Identifier: Apache-2.0
"""Checks the flags and versions of the cluster's components, as far as static Pods and Nodes show them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ccm import __version__
from ccm.controllers.shared.pod_network_rules import PodNetwork, parse

from ..asking.cluster_objects import Container, Pod, WrittenNode, cloud_controllers, minor
from .diagnosis import Check, State, some

FLAGS, VERSIONS = "flags", "versions"
#: The components whose static Pods are checked.
MANAGER, SERVER = "kube-controller-manager", "kube-apiserver"
#: How many minor releases older than the API server a kubelet may be.
KUBELET_SKEW = 3


def static_containers(pods: Iterable[Pod]) -> dict[str, list[tuple[Pod, Container]]]:
    """Return the name of a component -> the containers of its static Pods."""
    containers: dict[str, list[tuple[Pod, Container]]] = {}
    for pod in pods:
        for container in pod.spec.containers:
            if pod.is_static:
                containers.setdefault(container.name, []).append((pod, container))
    return containers


def flags(pods: Sequence[Pod], network: PodNetwork | None, cluster_name: str) -> list[Check]:
    """Check the flags of kube-controller-manager and kube-apiserver. `network`: where the route controller accepts pod
    CIDRs; None if it does not run, or if no cloud is asked."""
    static = static_containers(pods)
    if MANAGER not in static:
        text = "no static Pod of kube-controller-manager is visible, so its flags are unknown here"
        return [Check(FLAGS, State.NOTE, text)]
    checks: list[Check] = []
    for component in (MANAGER, SERVER):
        for pod, container in static.get(component, ()):
            provider = container.flag("cloud-provider")
            if provider not in (None, "", "external"):
                text = f"{pod.metadata.name} has --cloud-provider={provider}, so it may run cloud loops of its own"
                checks.append(Check(FLAGS, State.PROBLEM, text, "run site.yml, or set --cloud-provider=external"))
    for pod, container in static[MANAGER]:
        if network is not None:
            checks += _pod_cidrs(pod.metadata.name, container, network)
        name = container.flag("cluster-name")
        if name is not None and name != cluster_name:
            text = f"{pod.metadata.name} has --cluster-name={name}, and this command used --cluster-name={cluster_name}"
            checks.append(Check(FLAGS, State.NOTE, text))
    if not checks:
        names = some(pod.metadata.name for each in (MANAGER, SERVER) for pod, _ in static.get(each, ()))
        checks.append(Check(FLAGS, State.OK, f"{names}: their flags agree with the controller's"))
    return checks


def _pod_cidrs(name: str, container: Container, network: PodNetwork) -> list[Check]:
    """Check that the route controller accepts the pod CIDRs that kube-controller-manager assigns."""
    if container.flag("allocate-node-cidrs") != "true":
        finding = f"{name} assigns no pod CIDRs (--allocate-node-cidrs), so routes need another source of them"
        to_do = "set --allocate-node-cidrs, or --configure-cloud-routes=false for the controller"
        return [Check(FLAGS, State.WARNING, finding, to_do)]
    text = container.flag("cluster-cidr") or ""
    theirs = {parse(part.strip()) for part in text.split(",") if part.strip()}
    checks = []
    if theirs != set(network.cluster):
        ours = ",".join(map(str, network.cluster))
        finding = f"{name} has --cluster-cidr={text}, and the controller --cluster-cidr={ours}"
        checks.append(Check(FLAGS, State.PROBLEM, finding, "set the same CIDRs, or Nodes get no routes"))
    for version in {each.version for each in network.cluster}:
        size = container.flag(f"node-cidr-mask-size-ipv{version}") or container.flag("node-cidr-mask-size")
        if size and size.isdigit() and int(size) < network.node_prefix[version]:
            finding = f"{name} assigns pod CIDRs of /{size}, and the controller creates no route for less than /"
            finding += f"{network.node_prefix[version]}"
            checks.append(Check(FLAGS, State.PROBLEM, finding, f"set --node-cidr-mask-size-ipv{version}={size} for it"))
    return checks


def versions(server: str, nodes: Sequence[WrittenNode], pods: Iterable[Pod]) -> list[Check]:
    """Report versions, and kubelets that are too new or too old. `server`: the API server's version."""
    kubelets = Counter(node.status.node_info.kubelet_version for node in nodes)
    counts = ", ".join(f"{count} with {version or 'no version'}" for version, count in sorted(kubelets.items()))
    ours = {
        controller.image for pod in pods for controller in cloud_controllers(pod.spec.containers) if controller.is_ours
    }
    sentence = f"API server {server or 'unknown'}; kubelets: {counts or 'none'}; this program {__version__}"
    if ours:
        sentence += f"; the controller's image {', '.join(sorted(ours))}"
    checks = [Check(VERSIONS, State.OK, sentence)]
    release = minor(server)
    if release is None:
        return checks
    oldest = (release[0], release[1] - KUBELET_SKEW)
    newer, older = [], []
    for node in nodes:
        its = minor(node.status.node_info.kubelet_version)
        if its is not None and its > release:
            newer.append(node.metadata.name)
        elif its is not None and its < oldest:
            older.append(node.metadata.name)
    for names, text in (
        (newer, "newer than the API server, which Kubernetes does not support"),
        (older, f"more than {KUBELET_SKEW} releases older than the API server"),
    ):
        if names:
            checks.append(
                Check(VERSIONS, State.WARNING, f"kubelets of {some(names)} are {text}", "upgrade what is behind")
            )
    return checks

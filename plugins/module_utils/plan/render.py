# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of render.yml: what a migration would apply and write, for tools that read a Git repository. Pure: data in, text out.

It knows Kubernetes versions (through versions) and the forms of kubeadm's and Cluster API's objects.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

try:
    import yaml
except ImportError:  # pragma: no cover - ansible-core itself requires PyYAML on the controller
    yaml = None  # type: ignore[assignment]

from ansible_collections.outoftree.ccm.plugins.module_utils.facts import versions
from ansible_collections.outoftree.ccm.plugins.module_utils.facts.target import control_plane_changes

FLAG, EXTERNAL = "cloud-provider", "external"
#: Placeholder for a value that the user fills in.
PLACEHOLDER = "REPLACE"
CONTROLLER_MANAGER = "kube-controller-manager"
_LIST_FORM = (1, 31)  # kubeadm's v1beta4: extra arguments are a list of names and values

DROP_IN = """\
# For kubeadm's unit: /etc/systemd/system/kubelet.service.d/20-outoftree-ccm.conf
# The command line is that of kubeadm's own 10-kubeadm.conf, with one more variable. So KUBELET_EXTRA_ARGS stays as it is.
[Service]
Environment="KUBELET_CLOUD_ARGS=--cloud-provider=external"
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS $KUBELET_CLOUD_ARGS
"""

README = """\
# An external cloud-controller-manager, rendered

Written by `outoftree.ccm.render` for Kubernetes {version}. Do not edit: render again with other variables.

| File | For |
|---|---|
| `controller/` | RBAC and DaemonSet: `kubectl apply -k controller`, Argo CD or Flux |
| `controller/secret.example.yaml` | the form of the Secret that the DaemonSet reads. Replace its values, and keep it out of Git unless it is encrypted |
{rows}

Order for a running cluster: the Secret, then `controller/`, then the kubelets. `site.yml` does the same with checks, adopts the Nodes
that are already registered, and can roll back.
"""


def files(version: str, objects: Iterable[Dict[str, Any]], secret: Dict[str, Any]) -> Dict[str, str]:
    """Return the text of each file by its path in the folder.

    C(version) is that of Kubernetes (C(1.36) or C(v1.36.3)); '' means the newest that this project supports. C(objects) are those
    that the role applies, without the Secret. The values of C(secret) are not written. Raises ValueError for any other text as version.
    """
    parsed = versions.parse(version) if version else versions.SUPPORTED[1]
    if parsed is None:
        raise ValueError("'{0}' is not a version of Kubernetes such as 1.36".format(version))
    by_kind: Dict[str, List[Dict[str, Any]]] = {"rbac.yaml": [], "daemonset.yaml": []}
    for item in objects:
        by_kind.setdefault(_file(item), []).append(item)
    made = {"controller/" + name: _documents(items) for name, items in by_kind.items()}
    made["controller/kustomization.yaml"] = _documents([{
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(by_kind)}])
    made["controller/secret.example.yaml"] = _documents([_example(secret)])
    made["kubelet/20-outoftree-ccm.conf"] = DROP_IN
    rows = ["| `kubelet/20-outoftree-ccm.conf` | kubelets that kubeadm set up without the flag |"]
    if "webhook.yaml" in by_kind:
        rows.append("| `controller/webhook.yaml` | asks the controller about new PersistentVolumes. The Pods wait for the Secret with its certificate |")
    for path, text, about in _kubeadm(parsed) + _cluster_api(parsed):
        made[path] = text
        rows.append("| `{0}` | {1} |".format(path, about))
    made["README.md"] = README.format(version="{0}.{1}".format(*parsed), rows="\n".join(rows))
    return made


def _file(item: Dict[str, Any]) -> str:
    if item.get("metadata", {}).get("labels", {}).get("app.kubernetes.io/component") == "metrics":
        return "monitoring.yaml"
    if item["kind"] == "MutatingWebhookConfiguration":
        return "webhook.yaml"
    return "daemonset.yaml" if item["kind"] == "DaemonSet" else "rbac.yaml"


def _documents(items: Iterable[Dict[str, Any]]) -> str:
    return yaml.dump_all([_plain(item) for item in items], Dumper=_Dumper, sort_keys=False)


class _Dumper(getattr(yaml, "SafeDumper", object)):  # type: ignore[misc]
    """Writes YAML without anchors and aliases: a value that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any) -> Any:
    """Return the value in Python's own types. Ansible's types are subclasses of them, which the YAML library refuses."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return next((kind(value) for kind in (str, int, float) if isinstance(value, kind)), value)


def _example(secret: Dict[str, Any]) -> Dict[str, Any]:
    """Return the Secret with a placeholder for each value."""
    example = {key: value for key, value in secret.items() if key != "data"}
    return dict(example, stringData={key: PLACEHOLDER for key in sorted(secret.get("data") or {})})


def _needs_flag(version: versions.Version) -> bool:
    """Return whether kube-controller-manager has cloud loops at this release, which --cloud-provider=external switches off."""
    return any(change.then == EXTERNAL for change in control_plane_changes(CONTROLLER_MANAGER, [], version))


def _arguments(as_list: bool) -> Any:
    return [{"name": FLAG, "value": EXTERNAL}] if as_list else {FLAG: EXTERNAL}


def _kubeadm(version: versions.Version) -> List[Any]:
    as_list = version >= _LIST_FORM
    api = "kubeadm.k8s.io/" + ("v1beta4" if as_list else "v1beta3")
    registration = {"nodeRegistration": {"kubeletExtraArgs": _arguments(as_list)}}
    made: List[Tuple[str, Any, str]] = [
        ("kubeadm/init-configuration.yaml", dict({"apiVersion": api, "kind": "InitConfiguration"}, **registration),
         "a new cluster: merge it into the file of `kubeadm init --config`"),
        ("kubeadm/join-configuration.yaml", dict({"apiVersion": api, "kind": "JoinConfiguration"}, **registration),
         "nodes that join: merge it into the file of `kubeadm join --config`"),
    ]
    if _needs_flag(version):
        operation = {"op": "add", "path": "/spec/containers/0/command/-", "value": "--cloud-provider=external"}
        made += [
            ("kubeadm/cluster-configuration.yaml",
             {"apiVersion": api, "kind": "ClusterConfiguration", "controllerManager": {"extraArgs": _arguments(as_list)}},
             "kube-controller-manager, whose cloud loops must stop"),
            ("kubeadm/patches/{0}0+json.yaml".format(CONTROLLER_MANAGER), [operation],
             "the same as a patch, for `kubeadm upgrade apply --patches`. Use one of the two"),
        ]
    return [(path, _documents([document]), about) for path, document, about in made]


def _cluster_api(version: versions.Version) -> List[Any]:
    """Return the files for Cluster API's v1beta2 objects, in which extra arguments are lists at every Kubernetes release."""
    node = {"nodeRegistration": {"kubeletExtraArgs": _arguments(True)}}
    control: Dict[str, Any] = {"initConfiguration": node, "joinConfiguration": node}
    if _needs_flag(version):
        control["clusterConfiguration"] = {"controllerManager": {"extraArgs": _arguments(True)}}
    made: List[Tuple[str, Any, str]] = [
        ("cluster-api/kubeadm-config-template.yaml",
         {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate", "metadata": {"name": PLACEHOLDER},
          "spec": {"template": {"spec": {"joinConfiguration": node}}}},
         "workers of Cluster API: merge it into their KubeadmConfigTemplate"),
        ("cluster-api/kubeadm-control-plane.yaml",
         {"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "KubeadmControlPlane", "metadata": {"name": PLACEHOLDER},
          "spec": {"kubeadmConfigSpec": control}},
         "control planes of Cluster API: merge it into their KubeadmControlPlane"),
    ]
    return [(path, _documents([document]), about) for path, document, about in made]

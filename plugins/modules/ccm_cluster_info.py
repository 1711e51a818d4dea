#!/usr/bin/python
# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ccm_cluster_info
short_description: Read the cluster facts that a migration to an external cloud-controller-manager needs
description:
  - Reads in one call the API server's version, the Nodes and their cloud state, kubeadm's ClusterConfiguration, the
    cloud-controller-manager's DaemonSet and Lease, other cloud-controller-managers, and the Services of type LoadBalancer.
  - If the runtime of this collection runs, the module runs C(ccm nodes) in its Pod to find the instance of each Node. This
    reveals Nodes that contradict the cloud before anything changes them.
  - The filter P(outoftree.ccm.migration_plan#filter) makes a plan from this result and those of
    M(outoftree.ccm.ccm_component_flags_info).
version_added: 0.1.0
author:
  - The outoftree.ccm authors (@outoftree)
extends_documentation_fragment:
  - outoftree.ccm.attributes
  - outoftree.ccm.api
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
options:
  provider_id_prefix:
    description: Prefix of the cloud's providerIDs, for example V(sim://). If empty, the providerIDs of any cloud are accepted.
    type: str
    default: ''
  name:
    description: Name of the cloud-controller-manager's DaemonSet.
    type: str
    default: cloud-controller-manager
  lease:
    description: Name of the cloud-controller-manager's Lease.
    type: str
    default: cloud-controller-manager
  namespace:
    description: Namespace of the cloud-controller-manager.
    type: str
    default: kube-system
  managed_by:
    description: Value of the label C(app.kubernetes.io/managed-by) that identifies this collection's DaemonSet.
    type: str
    default: outoftree.ccm
  ignored:
    description:
      - Workloads and Leases (C(namespace/name)) to leave out of RV(others) and RV(leases), because they do not belong to a
        cloud-controller-manager although their names suggest it, or belong to one that runs beside the new one.
    type: list
    elements: str
    default: []
  services_timeout:
    description:
      - Seconds to wait until each Service of type LoadBalancer has an address, except Services with a C(loadBalancerClass) that the
        controller's options do not name. The module does not fail if some Services have no address by then.
    type: int
    default: 0
  node_selector:
    description: Labels of the nodes that run the cloud-controller-manager. The module counts the Nodes that have all of them.
    type: dict
    default: {}
  volumes:
    description:
      - Whether to find volumes of in-tree cloud plug-ins. This lists Pods, workloads, PersistentVolumes and StorageClasses, and, if there
        are such volumes, CSIDrivers and CSINodes. RV(images) comes from the same list of Pods.
    type: bool
    default: false
  hide_result:
    description:
      - Whether Ansible hides the result, because it has the content of kubeadm's configuration. A message about a failure stays visible.
        This is an option of the action plugin.
    type: bool
    default: false
  all_controllers:
    description: Value of the annotation C(ccm.outoftree.dev/stage) on a DaemonSet that runs all selected controllers.
    type: str
    default: all
seealso:
  - module: outoftree.ccm.ccm_node_info
  - module: outoftree.ccm.ccm_health_info
"""

EXAMPLES = r"""
- name: Read the cluster
  outoftree.ccm.ccm_cluster_info:
    kubeconfig: /etc/kubernetes/admin.conf
    provider_id_prefix: sim://
  register: cluster
"""

RETURN = r"""
version:
  description: The API server's version.
  returned: always
  type: str
  sample: v1.36.3
nodes:
  description: The Nodes. RV(outoftree.ccm.ccm_node_info#module:nodes) describes the fields.
  returned: always
  type: list
  elements: dict
  sample: []
node_selector:
  description: O(node_selector) as C(labels), and the number of Nodes that have these labels as C(nodes).
  returned: always
  type: dict
  sample: {labels: {node-role.kubernetes.io/control-plane: ""}, nodes: 3}
compared:
  description: Whether the Nodes were compared with the cloud, and the reason if not.
  returned: always
  type: dict
  sample: {done: false, reason: the runtime is not installed yet}
serving:
  description:
    - Facts about the serving certificates of kubelets with C(serverTLSBootstrap). C(approvers) may approve their requests; for a
      ServiceAccount, C(running) is the number of its running Pods. C(pending) are the requests that wait for approval.
  returned: always
  type: dict
  sample:
    approvers: [{kind: ServiceAccount, namespace: kube-system, name: kubelet-csr-approver, role: kubelet-csr-approver, running: 2}]
    pending: [{name: csr-2pf4n, node: worker-1, created: "2026-11-21T15:48:04Z"}]
kubeadm_config:
  description: The ClusterConfiguration in the ConfigMap C(kubeadm-config), with its SHA-256. Clusters without kubeadm have none.
  returned: always
  type: dict
  sample: {exists: true, content: "apiVersion: kubeadm.k8s.io/v1beta4\n", sha256: 7b1c...}
kube_proxy:
  description: The texts of the ConfigMap C(kube-proxy), which kubeadm creates, by key. Empty without the ConfigMap.
  returned: always
  type: dict
  sample: {config.conf: "kind: KubeProxyConfiguration\n"}
runtime:
  description:
    - The cloud-controller-manager's DaemonSet. C(managed) says whether this collection created it, C(wide) whether it runs all selected
      controllers. C(created) is the time of its creation, '' if it does not exist. C(leftovers) are the objects of an interrupted run without the DaemonSet.
  returned: always
  type: dict
  sample: {exists: true, managed: true, wide: true, name: cloud-controller-manager, image: "localhost/outoftree-ccm:0.1.0",
           created: "2026-11-21T09:14:40Z", leftovers: []}
lease:
  description: Who holds the cloud-controller-manager's Lease.
  returned: always
  type: dict
  sample: {exists: true, namespace: kube-system, name: cloud-controller-manager, holder: cp-1_6f1a, held: true, age: 1.2,
           renewed: "2026-11-21T09:15:03.120000Z", annotations: {}}
others:
  description:
    - Deployments and DaemonSets that are other cloud-controller-managers, identified by the names of their containers, programs and images.
      C(active) says whether their Pods may run, C(paused) whether a takeover paused them, and C(holder) who holds their Lease. C(keeper) is
      the tool that may restore them after a change, such as Argo CD, with the label or annotation that shows it.
  returned: always
  type: list
  elements: dict
  sample: [{kind: Deployment, namespace: kube-system, name: sim-cloud-controller-manager, image: "example.com/sim-ccm:1", pods: 1,
            active: true, paused: false, managed: "", cloud_provider: sim, cluster_name: kubernetes, holder: cp-1_6f1a, port: 10258, keeper: "",
            lease: {namespace: kube-system, name: cloud-controller-manager}}]
leases:
  description:
    - Leases that are named like that of a cloud-controller-manager and are held now, although no workload in RV(others) uses them, with
      their holders. A host may start such a controller itself.
  returned: always
  type: list
  elements: dict
  sample: [{namespace: kube-system, name: yandex-cloud-controller-manager, holder: cp-1_6f1a}]
ignored:
  description: The workloads and Leases in O(ignored).
  returned: always
  type: list
  elements: str
  sample: [kube-system/kube-vip-cloud-provider]
taken:
  description: Objects with the names that a rollout uses, but that this collection did not create.
  returned: always
  type: list
  elements: str
  sample: [ServiceAccount kube-system/cloud-controller-manager]
services:
  description:
    - The Services of type LoadBalancer, their addresses, and whether the cleanup finalizer holds them. C(ours) is whether the controller's
      options say that it serves their class.
  returned: always
  type: list
  elements: dict
  sample: [{namespace: default, name: web, class: "", ours: true, ingress: [10.89.77.200], finalizer: true}]
volumes:
  description:
    - Volumes of in-tree cloud plug-ins, empty without O(volumes). C(source) is the plug-in's field in a volume.
    - C(persistent) are PersistentVolumes with their claims. C(classes) are StorageClasses that claims use or that are the default.
      C(inline) are workloads, and Pods without one, that name a volume themselves. C(pods) are the Pods that use such volumes, with their
      Nodes. C(drivers) are the CSIDrivers that serve such volumes, and C(nodes) those that the CSINodes list.
    - C(unread) names the kinds that the kubeconfig's user may not list.
  returned: always
  type: dict
  sample:
    persistent: [{name: data-0, source: awsElasticBlockStore, claim: default/data-0}]
    classes: [{name: gp2, source: awsElasticBlockStore, default: true, claims: 1}]
    inline: [{kind: Deployment, namespace: default, name: cache, source: awsElasticBlockStore}]
    pods: [{namespace: default, name: db-0, node: worker-1, sources: [awsElasticBlockStore]}]
    drivers: [ebs.csi.aws.com]
    nodes: {worker-1: [ebs.csi.aws.com]}
    unread: []
images:
  description:
    - Images in GCR, Artifact Registry and ACR of Pods without C(imagePullSecrets). Kubelets up to 1.30 may pull them with credentials of their own.
  returned: with O(volumes), if the kubeconfig's user may list Pods
  type: list
  elements: str
  sample: [registry.azurecr.io/shop/db:1]
"""

import hashlib
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.outoftree.ccm.plugins.module_utils.cluster import api as _api, controllers, used_volumes
from ansible_collections.outoftree.ccm.plugins.module_utils.facts import health, nodes
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import serving

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
POLL = 2.0


def read_kubeadm_config(api):
    config_map = api.get("/api/v1/namespaces/kube-system/configmaps/kubeadm-config")
    content = ((config_map or {}).get("data") or {}).get("ClusterConfiguration")
    if content is None:
        return {"exists": False, "content": "", "sha256": ""}
    return {"exists": True, "content": content, "sha256": hashlib.sha256(content.encode("utf-8")).hexdigest()}


def read_kube_proxy(api):
    """Return the texts of the ConfigMap kube-proxy, by key; {} if there is none, because only kubeadm creates it."""
    config_map = api.get("/api/v1/namespaces/kube-system/configmaps/kube-proxy") or {}
    return {name: text for name, text in sorted((config_map.get("data") or {}).items()) if isinstance(text, str)}


def read_serving(api):
    rbac = "/apis/rbac.authorization.k8s.io/v1/"
    approvers = serving.approvers(api.items(rbac + "clusterroles"), api.items(rbac + "clusterrolebindings"))
    for item in approvers:
        if item["kind"] == "ServiceAccount":
            pods = api.items("/api/v1/namespaces/{0}/pods".format(item["namespace"]),
                             {"fieldSelector": "spec.serviceAccountName={0},status.phase=Running".format(item["name"])})
            item["running"] = len(pods)
    requests = api.items("/apis/certificates.k8s.io/v1/certificatesigningrequests", {"fieldSelector": "spec.signerName=" + serving.SIGNER})
    return {"approvers": approvers, "pending": serving.pending(requests)}


def read_services(api, served):
    services = []
    for service in api.items("/api/v1/services"):
        if (service.get("spec") or {}).get("type") != "LoadBalancer":
            continue
        ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        services.append({
            "namespace": service["metadata"]["namespace"],
            "name": service["metadata"]["name"],
            "class": service["spec"].get("loadBalancerClass", ""),
            "ours": health.serves(served, service["spec"].get("loadBalancerClass", "")),
            "ingress": [item.get("ip") or item.get("hostname") for item in ingress],
            "finalizer": FINALIZER in (service["metadata"].get("finalizers") or []),
        })
    return services


def wait_for_services(api, seconds, served):
    """Return the Services as soon as each one that the controller serves has an address, or when the timeout expires."""
    begun = time.monotonic()
    while True:
        services = read_services(api, served)
        if not health.without_address(services) or time.monotonic() - begun >= seconds:
            return services
        time.sleep(POLL)


def main():
    module = AnsibleModule(
        argument_spec=dict(
            provider_id_prefix=dict(type="str", default=""),
            name=dict(type="str", default=_api.NAME),
            lease=dict(type="str", default=_api.NAME),
            namespace=dict(type="str", default=_api.NAMESPACE),
            managed_by=dict(type="str", default="outoftree.ccm"),
            ignored=dict(type="list", elements="str", default=[]),
            services_timeout=dict(type="int", default=0),
            node_selector=dict(type="dict", default={}),
            volumes=dict(type="bool", default=False),
            hide_result=dict(type="bool", default=False),
            all_controllers=dict(type="str", default="all"),
            **_api.API_OPTIONS
        ),
        supports_check_mode=True,
    )
    api = _api.connect(module)
    params = module.params
    try:
        served = controllers.read_served_classes(api, params["name"], params["namespace"])
        services = wait_for_services(api, params["services_timeout"], served)
        node_list = api.items("/api/v1/nodes")
        result = dict(
            version=api.call("GET", "/version")["gitVersion"],
            nodes=[nodes.summary(node, params["provider_id_prefix"]) for node in node_list],
            node_selector={"labels": params["node_selector"], "nodes": nodes.selected(node_list, params["node_selector"])},
            kubeadm_config=read_kubeadm_config(api),
            kube_proxy=read_kube_proxy(api),
            runtime=controllers.read_runtime(api, params),
            others=controllers.read_others(api, params),
            ignored=params["ignored"],
            taken=controllers.read_taken(api, params),
            services=services,
        )
        result["leases"] = controllers.read_leases(api, params, result["others"])
        result["serving"] = read_serving(api)
        result.update(used_volumes.read_volumes(api) if params["volumes"] else {"volumes": {}})
        matches, unasked = controllers.ask_runtime(api, params, result["runtime"])
        result["nodes"] = nodes.judged(result["nodes"], matches)
        result["compared"] = {"done": not unasked, "reason": unasked}
        lease = api.get(_api.lease_path(params["lease"], params["namespace"]))
        result["lease"] = dict(health.lease_state(lease, api.now), namespace=params["namespace"], name=params["lease"])
    except _api.ApiError as exc:
        module.fail_json(msg="cannot read the cluster: {0}".format(_api.explain(exc)))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()

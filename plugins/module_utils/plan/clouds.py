# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which of a controller's clouds has which Node and Service, as far as that is known before a rollout. Pure; runs on the Ansible controller.

The clouds' answers decide which cloud has a Node without a providerID. Before the controller runs, only the declared names are known.
"""

from __future__ import annotations

import fnmatch
from typing import Dict, List, NamedTuple, Sequence

from ansible_collections.outoftree.ccm.plugins.module_utils.facts.cluster_shapes import BalancedService, ClusterFacts, NodeFacts
from ansible_collections.outoftree.ccm.plugins.module_utils.plan import grouping
from ansible_collections.outoftree.ccm.plugins.module_utils.plan.shapes import Plan

#: Results for Nodes that belong to none of the clouds, and for those about which only the clouds know.
NOBODY, ASK = "", "?"
#: Providers of the runtime that have no load balancers, however they are configured.
WITHOUT_LOAD_BALANCERS = frozenset(["azure", "gce", "libcloud", "vsphere"])


class Cloud(NamedTuple):
    """A cloud of the new controller. C(prefix): the prefix of its providerIDs, '' if it is not known. C(patterns): patterns that its Nodes' names match.

    C(classes): the classes of the Services that it serves. C(default): whether it serves Services without a class.
    """

    provider: str
    prefix: str = ""
    patterns: Sequence[str] = ()
    classes: Sequence[str] = ()
    default: bool = False


def default_of(providers: Sequence[str]) -> str:
    """Return the provider that serves the Services without a class if no cloud is marked for them.

    This is the only provider, or the first one if it may have load balancers, or else the only one that may. Otherwise, return C(NOBODY): only the controller
    knows which of them have load balancers.
    """
    if len(providers) == 1:
        return providers[0]
    able = [each for each in providers if each not in WITHOUT_LOAD_BALANCERS]
    if providers[:1] == able[:1]:
        return able[0] if able else NOBODY
    return able[0] if len(able) == 1 else NOBODY


def of_node(node: NodeFacts, clouds: Sequence[Cloud]) -> str:
    """Return the provider of the Node's cloud, C(NOBODY) or C(ASK)."""
    provider_id = node["provider_id"]
    if provider_id:
        known = [cloud.provider for cloud in clouds if cloud.prefix and provider_id.startswith(cloud.prefix)]
        return known[0] if len(known) == 1 else NOBODY if all(cloud.prefix for cloud in clouds) else ASK
    declared = [cloud.provider for cloud in clouds if any(fnmatch.fnmatchcase(node["name"], pattern) for pattern in cloud.patterns)]
    return declared[0] if len(declared) == 1 else ASK


def of_service(service: BalancedService, clouds: Sequence[Cloud]) -> str:
    """Return the provider of the cloud that serves a Service, or C(NOBODY)."""
    name = service["class"]
    return next((cloud.provider for cloud in clouds if (name in cloud.classes if name else cloud.default)), NOBODY)


def beside(cluster: ClusterFacts) -> bool:
    """Return whether the operator wants a controller of the cluster to run beside the new one, which C(ccm_install_ignore) then names."""
    return any("/" in name for name in cluster.get("ignored", []))


def check(plan: Plan, cluster: ClusterFacts, clouds: Sequence[Cloud]) -> None:
    """Note which cloud will have which Node and Service, and warn of Services that no cloud serves any more."""
    lost = [_name(each) for each in cluster["services"] if each["ours"] and of_service(each, clouds) == NOBODY]
    # They are lost only if somebody serves them now: this controller, or the one that it replaces. A new controller beside another one has
    # served none yet.
    if clouds and lost and (cluster["runtime"]["exists"] or not beside(cluster)):
        plan["warnings"].append("no cloud serves these Services any more: {0}. Their load balancers stay as they are, and no longer follow changes, "
                                "but are deleted with the Services. To serve them, name their class".format(_few(lost)))
    if not clouds or len(clouds) < 2 and not beside(cluster):
        return
    nodes: Dict[str, List[str]] = {}
    for node in cluster["nodes"]:
        nodes.setdefault(of_node(node, clouds), []).append(node["name"])
    services: Dict[str, List[str]] = {}
    for service in cluster["services"]:
        services.setdefault(of_service(service, clouds), []).append(_name(service))
    for cloud in clouds:
        plan["notes"].append("cloud {0} will have the Nodes {1}, and the Services {2}".format(
            cloud.provider, _few(nodes.get(cloud.provider, [])), _few(services.get(cloud.provider, []))))
    if nodes.get(ASK) and len(clouds) > 1:
        plan["notes"].append("the answers of the clouds {0} decide whose these Nodes are: {1}. Names that occur in several are declared with "
                             "nodes of ccm_runtime_clouds".format(" and ".join(cloud.provider for cloud in clouds), _few(nodes[ASK])))
    elif nodes.get(ASK):
        plan["notes"].append("the controller will have those of these Nodes that are machines of the cloud {0}, and leave the others alone: {1}".format(
            clouds[0].provider, _few(nodes[ASK])))
    if nodes.get(NOBODY):
        plan["notes"].append("the controller will leave these Nodes alone, because their providerID belongs to none of its clouds: {0}".format(
            _few(nodes[NOBODY])))
    if services.get(NOBODY):
        plan["notes"].append("the controller will leave these Services alone, because it does not serve their class: {0}".format(
            _few(services[NOBODY])))


def _name(service: BalancedService) -> str:
    return "{0}/{1}".format(service["namespace"], service["name"])


def _few(names: Sequence[str]) -> str:
    return grouping.compact(sorted(names, key=grouping.in_order)) if names else "none"

# -*- coding: utf-8 -*-
# Copyright: The outoftree.ccm authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of facts: which Kubernetes release accepts which cloud flag, and what replaced the in-tree providers.

Preflight, planner, verification and documentation use it; docs/reference/kubernetes-versions.md is generated from it. Pure and
stdlib-only.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple

Version = Tuple[int, int]

#: The first and last release for which this collection has facts.
SUPPORTED: Tuple[Version, Version] = ((1, 29), (1, 37))

#: From this release on, every in-tree provider is gone, so there is nothing left to migrate *from*.
IN_TREE_GONE: Version = (1, 31)

#: Kinds of things a fact is about.
FLAG, VALUE, PLUGIN, GATE, FIELD = "flag", "value", "admission plugin", "feature gate", "configuration"


class Fact(NamedTuple):
    """The life cycle of one flag of one component; C(value) narrows it to a value or to an item of a list.

    Each field C(..._in) is the first release in which something happens, None if it never does. C(no_effect_in): the
    component accepts the flag, but nothing reads it. C(fatal_in): the component does not start with the flag. C(gone_in):
    the component no longer knows the flag. A value can be fatal before its flag or gate is gone.
    """

    component: str
    flag: str
    value: Optional[str]
    kind: str
    deprecated_in: Optional[Version]
    no_effect_in: Optional[Version]
    fatal_in: Optional[Version]
    gone_in: Optional[Version]
    reason: str


_APISERVER = "kube-apiserver lost its cloud code (kubernetes/kubernetes#130162)"
_PLUGIN = "the PersistentVolumeLabel plugin needs an in-tree provider (kubernetes/kubernetes#124505)"
_IN_TREE = "only '' and 'external' are accepted, in-tree providers are gone (KEP-2395)"
_NOBODY = "nothing reads it any more, in-tree providers are gone (KEP-2395)"
_HANDED_OVER = "kube-controller-manager has no cloud loops to hand over any more (KEP-2436)"
_LOCKED = "the gate is locked to true, in-tree providers are gone (KEP-2395)"
_CSI_ONLY = "in-tree volumes are always served by their CSI driver (KEP-625)"
_LOOPS = "the service controller runs in the external controller (kubernetes/kubernetes#138002)"
_UNKNOWN_CONTROLLER = "the name is not in the list of known controllers (kubernetes/kubernetes#138002)"
_GCE = "the flag was removed with the in-tree GCE (kubernetes/kubernetes#124519)"
_IPAM = "only RangeAllocator is accepted, the others need an in-tree provider (KEP-2395)"
_CADVISOR = "cAdvisor's flags were registered by mistake and are removed (kubernetes/kubernetes#139870)"
_GRADUATED = "the feature is always on, and its gate is removed"
_ABANDONED = "the gate is removed"
_UNREGISTER = "the gate was removed with the in-tree volume plugins that it switched off (KEP-625)"

#: Which gates are locked or gone, for every component that takes --feature-gates. The value false of a locked gate is fatal.
_GATES: Tuple[Tuple[str, Optional[Version], Version, str], ...] = (
    ("DisableCloudProviders", (1, 31), (1, 33), _LOCKED),
    ("DisableKubeletCloudCredentialProviders", (1, 31), (1, 33), _LOCKED),
    ("CloudDualStackNodeIPs", (1, 30), (1, 32), "dual-stack --node-ip with an external cloud needs no gate any more (KEP-3705)"),
    ("CSIMigrationAzureFile", (1, 27), (1, 30), _CSI_ONLY),
    ("InTreePluginAWSUnregister", None, (1, 31), _UNREGISTER),
    ("InTreePluginAzureDiskUnregister", None, (1, 31), _UNREGISTER),
    ("InTreePluginAzureFileUnregister", None, (1, 31), _UNREGISTER),
    ("InTreePluginGCEUnregister", None, (1, 31), _UNREGISTER),
    ("InTreePluginOpenStackUnregister", None, (1, 31), _UNREGISTER),
    ("InTreePluginvSphereUnregister", None, (1, 31), _UNREGISTER),
)

#: Gates that have nothing to do with clouds and that 1.37 does not know, by the release that locked them to true (None: no release did). The linter
#: reports them, preflight warns, and no run removes them.
_GATES_OF_OTHERS: Tuple[Tuple[Optional[Version], Tuple[str, ...]], ...] = (
    ((1, 31), ("LogarithmicScaleDown",)),
    ((1, 32), ("RetryGenerateName",)),
    ((1, 33), ("AnyVolumeDataSource", "BtreeWatchCache", "JobBackoffLimitPerIndex", "JobSuccessPolicy", "SidecarContainers")),
    ((1, 34), ("APIServerTracing", "AnonymousAuthConfigurableEndpoints", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors",
               "ConsistentListFromCache", "JobPodReplacementPolicy", "OrderedNamespaceDeletion", "PodLifecycleSleepAction",
               "PodLifecycleSleepActionAllowZero", "RelaxedDNSSearchValidation", "ResilientWatchCacheInitialization",
               "SchedulerQueueingHints", "StreamingCollectionEncodingToJSON", "StreamingCollectionEncodingToProtobuf",
               "StructuredAuthenticationConfiguration")),
    (None, ("GangScheduling", "PreventStaticPodAPIReferences", "WorkloadAwarePreemption")),
)

#: Flags of cAdvisor that the kubelet had.
_CADVISOR_FLAGS = (
    "application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
    "event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage", "machine-id-file",
    "storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password", "storage-driver-secure",
    "storage-driver-table", "storage-driver-user",
)

#: Admission plugins that 1.36 had for alpha gates.
_ALPHA_PLUGINS = ("JobValidation", "PodGroupWorkloadExists")

GATED_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")


def _gate_facts() -> Tuple[Fact, ...]:
    facts: List[Fact] = []
    others = tuple((gate, locked, (1, 37), _GRADUATED if locked else _ABANDONED) for locked, gates in _GATES_OF_OTHERS for gate in gates)
    for component in GATED_COMPONENTS:
        for gate, locked, gone, why in _GATES + others:
            if locked is not None:
                facts.append(Fact(component, "feature-gates", gate + "=false", GATE, None, None, locked, gone, why))
            facts.append(Fact(component, "feature-gates", gate, GATE, locked, locked, gone, gone, why))
    return tuple(facts)


FACTS: Tuple[Fact, ...] = (
    Fact("kube-apiserver", "cloud-provider", None, FLAG, (1, 29), None, (1, 33), (1, 33), _APISERVER),
    Fact("kube-apiserver", "cloud-config", None, FLAG, (1, 29), None, (1, 33), (1, 33), _APISERVER),
    Fact("kube-apiserver", "enable-admission-plugins", "PersistentVolumeLabel", PLUGIN, (1, 29), None, (1, 31), (1, 31), _PLUGIN),
    Fact("kube-apiserver", "disable-admission-plugins", "PersistentVolumeLabel", PLUGIN, (1, 29), None, (1, 31), (1, 31),
         "the name of the removed PersistentVolumeLabel plugin is unknown (kubernetes/kubernetes#124505)"),
    Fact("kube-controller-manager", "cloud-provider", "in-tree", VALUE, (1, 29), None, (1, 31), (1, 31), _IN_TREE),
    Fact("kube-controller-manager", "cloud-provider", "external", VALUE, None, (1, 31), None, None,
         "kube-controller-manager has no cloud loops to switch off any more (KEP-2395)"),
    Fact("kube-controller-manager", "cloud-config", None, FLAG, (1, 29), (1, 31), None, None, _NOBODY),
    Fact("kube-controller-manager", "external-cloud-volume-plugin", None, FLAG, (1, 29), (1, 31), None, None, _NOBODY),
    Fact("kube-controller-manager", "enable-leader-migration", None, FLAG, None, (1, 31), None, None, _HANDED_OVER),
    Fact("kube-controller-manager", "leader-migration-config", None, FLAG, None, (1, 31), None, None, _HANDED_OVER),
    Fact("kubelet", "cloud-provider", "in-tree", VALUE, (1, 29), None, (1, 31), (1, 31), _IN_TREE),
    Fact("kubelet", "cloud-config", None, FLAG, (1, 29), None, (1, 34), (1, 34),
         "kubelet lost the flag (kubernetes/kubernetes#130161)"),
    Fact("kube-controller-manager", "concurrent-service-syncs", None, FLAG, None, (1, 31), (1, 37), (1, 37), _LOOPS),
    Fact("kube-apiserver", "cloud-provider-gce-lb-src-cidrs", None, FLAG, (1, 29), None, (1, 31), (1, 31), _GCE),
    Fact("kube-controller-manager", "cloud-provider-gce-lb-src-cidrs", None, FLAG, (1, 29), None, (1, 31), (1, 31), _GCE),
    Fact("kubelet", "azure-container-registry-config", None, FLAG, (1, 29), None, (1, 30), (1, 30),
         "the kubelet's own credentials for ACR are gone (kubernetes/kubernetes#122857): install acr-credential-provider"),
    Fact("kubeadm", "apiVersion", "kubeadm.k8s.io/v1beta3", FIELD, (1, 31), None, (1, 37), (1, 37),
         "kubeadm reads v1beta4 only (kubernetes/kubernetes#136016): 'kubeadm config migrate' of 1.35 or 1.36 converts it"),
) + tuple(
    Fact("kube-controller-manager", "controllers", name, VALUE, None, (1, 31), (1, 37), (1, 37), _UNKNOWN_CONTROLLER)
    for name in ("service-lb-controller", "service", "node-route-controller", "route", "cloud-node-lifecycle-controller", "cloud-node-lifecycle")
) + tuple(
    Fact("kube-controller-manager", "cidr-allocator-type", name, VALUE, (1, 29), None, (1, 32), None, _IPAM)
    for name in ("CloudAllocator", "IPAMFromCloud", "IPAMFromCluster")
) + tuple(
    Fact("kube-apiserver", flag, plugin, PLUGIN, None, None, (1, 37), (1, 37), "the alpha admission plugin is removed")
    for flag in ("enable-admission-plugins", "disable-admission-plugins") for plugin in _ALPHA_PLUGINS
) + tuple(
    Fact("kubelet", flag, None, FLAG, (1, 29), None, (1, 37), (1, 37), _CADVISOR) for flag in _CADVISOR_FLAGS
) + _gate_facts()


class InTreeProvider(NamedTuple):
    """A cloud provider that Kubernetes once contained. C(successor) is '' if there is none."""

    name: str
    gone_in: Version
    successor: str
    provider_id: str

    @property
    def scheme(self) -> str:
        return self.provider_id.split("://")[0] + "://"


IN_TREE_PROVIDERS: Tuple[InTreeProvider, ...] = (
    InTreeProvider("aws", (1, 27), "kubernetes/cloud-provider-aws", "aws:///<zone>/<instance id>"),
    InTreeProvider("azure", (1, 30), "kubernetes-sigs/cloud-provider-azure",
                   "azure:///subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/virtualMachines/<name>"),
    InTreeProvider("cloudstack", (1, 16), "apache/cloudstack-kubernetes-provider", "external-cloudstack://<instance id>"),
    InTreeProvider("gce", (1, 31), "kubernetes/cloud-provider-gcp", "gce://<project>/<zone>/<name>"),
    InTreeProvider("openstack", (1, 26), "kubernetes/cloud-provider-openstack", "openstack:///<server id>"),
    InTreeProvider("ovirt", (1, 16), "", "ovirt:///<vm id>"),
    InTreeProvider("photon", (1, 16), "", "photon://<vm id>"),
    InTreeProvider("vsphere", (1, 30), "kubernetes/cloud-provider-vsphere", "vsphere://<vm uuid>"),
)


class InTreeVolume(NamedTuple):
    """A volume plug-in of a cloud that Kubernetes once contained: C(source) is its field in a volume, C(driver) the CSI driver that serves it.

    The gate C(CSIMigration...) was on by default from C(on_in), stable from C(stable_in), and unknown from C(gate_gone_in). The plug-in's own
    code was removed in C(plugin_gone_in). C(driver) and the releases of the gate are empty if no CSI driver ever served such volumes.
    """

    source: str
    provisioner: str
    cloud: str
    driver: str
    on_in: Optional[Version]
    stable_in: Optional[Version]
    gate_gone_in: Optional[Version]
    plugin_gone_in: Version


#: The clouds' in-tree volume plug-ins, according to pkg/features and pkg/volume of the releases 1.15 to 1.30 (KEP-625). Every supported release translates
#: their volumes for CSI drivers, and no gate turns that off.
IN_TREE_VOLUMES: Tuple[InTreeVolume, ...] = (
    InTreeVolume("awsElasticBlockStore", "kubernetes.io/aws-ebs", "AWS", "ebs.csi.aws.com", (1, 23), (1, 25), (1, 27), (1, 27)),
    InTreeVolume("azureDisk", "kubernetes.io/azure-disk", "Azure", "disk.csi.azure.com", (1, 23), (1, 24), (1, 27), (1, 27)),
    InTreeVolume("azureFile", "kubernetes.io/azure-file", "Azure", "file.csi.azure.com", (1, 24), (1, 26), (1, 30), (1, 30)),
    InTreeVolume("cinder", "kubernetes.io/cinder", "OpenStack", "cinder.csi.openstack.org", (1, 21), (1, 24), (1, 26), (1, 26)),
    InTreeVolume("gcePersistentDisk", "kubernetes.io/gce-pd", "GCE", "pd.csi.storage.gke.io", (1, 23), (1, 25), (1, 28), (1, 28)),
    InTreeVolume("photonPersistentDisk", "kubernetes.io/photon-pd", "Photon", "", None, None, None, (1, 16)),
    InTreeVolume("vsphereVolume", "kubernetes.io/vsphere-volume", "vSphere", "csi.vsphere.vmware.com", (1, 25), (1, 26), (1, 29), (1, 30)),
)


def parse(text: str) -> Optional[Version]:
    """Return (major, minor) of 'v1.36.3', '1.36' or an image tag; None if it has no version."""
    match = re.search(r"(?:^|[^0-9.])v?(\d+)\.(\d+)(?:\.|[^0-9.]|$)", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def of_image(image: str) -> Optional[Version]:
    """Return the release in the tag of an image, such as v1.36.3-vendor1; None if the tag is not a version of Kubernetes."""
    match = re.fullmatch(r"v?1\.(\d{1,3})(?:[.+_-].*)?", image.partition("@")[0].rpartition(":")[2])
    return (1, int(match.group(1))) if match else None


def show(version: Version) -> str:
    return "{0}.{1}".format(*version)


def supported(version: Version) -> bool:
    return SUPPORTED[0] <= version <= SUPPORTED[1]


def facts(component: str, flag: str, value: Optional[str] = None) -> List[Fact]:
    """Return the facts about a flag; without C(value) only those about the flag as a whole."""
    return [fact for fact in FACTS if (fact.component, fact.flag, fact.value) == (component, flag, value)]


def risk_of_keeping(component: str, flag: str, version: Version, value: Optional[str] = None) -> str:
    """Return from which release on the component does not start with the flag; '' if it always starts."""
    for fact in facts(component, flag, value):
        if fact.fatal_in is None:
            continue
        if version >= fact.fatal_in:
            return "{0} {1} does not start with it".format(component, show(version))
        following = ", the next release," if fact.fatal_in == (version[0], version[1] + 1) else ""
        return "{0} does not start with it from {1}{2} on".format(component, show(fact.fatal_in), following)
    return ""


def flags_of(component: str) -> Tuple[str, ...]:
    """Return the flags of a component about which the table has facts."""
    return tuple(dict.fromkeys(fact.flag for fact in FACTS if fact.component == component))


def gate(item: str) -> Tuple[str, bool]:
    """Return the name of a gate in C(--feature-gates), and whether the item switches it off.

    Components strip blanks around both (component-base, SetFromMap). An item may have the prefix C(kube:) (compatibility/registry.go).
    """
    name, setting = (part.strip() for part in (item.partition("=")[0], item.partition("=")[2]))
    return (name[len("kube:"):] if name.startswith("kube:") else name), setting in ("0", "f", "F", "false", "FALSE", "False")


def concerns_clouds(flag: str, item: str) -> bool:
    """Return whether a fact about a flag (or an item of it) concerns cloud integration. The planner changes or refuses such flags."""
    if flag == "feature-gates":
        return gate(item)[0] in [row[0] for row in _GATES]
    return flag not in _CADVISOR_FLAGS + ("azure-container-registry-config",) and item not in _ALPHA_PLUGINS


def about(component: str, flag: str, value: str) -> List[Tuple[str, Fact]]:
    """Return the facts about a flag with this value, each with the item of the value that it is about ('' for the flag as a whole)."""
    pairs = [("", fact) for fact in facts(component, flag)]
    for item in (text.strip() for text in value.split(",")):
        pairs += [(item, fact) for narrowed in _narrowed(flag, item) for fact in facts(component, flag, narrowed)]
    return pairs


def _narrowed(flag: str, item: str) -> List[str]:
    """Return the values of the table that an item of a flag's value stands for."""
    if flag == "cloud-provider":
        return ["external" if item == "external" else "in-tree"] if item else []
    if flag == "controllers":
        name = item.strip('"')  # components read lists of names as CSV
        return [name[1:] if name.startswith("-") else name]
    if flag == "feature-gates":  # the facts about a gate also hold if it is off
        name, off = gate(item)
        return [name + "=false", name] if off else [name]
    return [item.strip('"')]


def fatal(component: str, flag: str, value: str, version: Version) -> str:
    """Return why a component of this release does not start with a flag that has this value (or list item); '' if it starts."""
    return next((fact.reason for unused, fact in about(component, flag, value) if fact.fatal_in is not None and version >= fact.fatal_in), "")


def reason(component: str, flag: str, value: Optional[str] = None) -> str:
    for fact in facts(component, flag, value):
        return fact.reason
    return ""


def why(component: str, flag: str, version: Version, value: Optional[str] = None) -> str:
    """Return why a flag must change, and which release does not start with it, in one clause; '' if the table has no fact."""
    return "; ".join(part for part in (reason(component, flag, value), risk_of_keeping(component, flag, version, value)) if part)


def dead_gates(component: str, gates: str, version: Version) -> List[Tuple[str, Fact]]:
    """Return (item, fact) for each cloud-related item of a --feature-gates list that is fatal at this release or the next.

    Items without effect that every component accepts do not matter for a migration.
    """
    pairs: List[Tuple[str, Fact]] = []
    for item in (text.strip() for text in gates.split(",")):
        if not concerns_clouds("feature-gates", item):
            continue
        for narrowed in _narrowed("feature-gates", item):
            fact = next((fact for fact in facts(component, "feature-gates", narrowed)
                         if fact.fatal_in is not None and (version[0], version[1] + 1) >= fact.fatal_in), None)
            if fact is not None:
                pairs.append((item, fact))
                break
    return pairs


def in_tree_provider(name: str) -> Optional[InTreeProvider]:
    return next((provider for provider in IN_TREE_PROVIDERS if provider.name == name), None)


def about_provider(name: str) -> str:
    """Return in one clause what replaced an in-tree provider; '' for a name that never was one."""
    provider = in_tree_provider(name)
    if provider is None:
        return ""
    successor = "its successor is {0}, with".format(provider.successor) if provider.successor else "it has no successor; it had"
    return "in-tree {0} was removed in {1}, {2} providerIDs {3}".format(name, show(provider.gone_in), successor, provider.provider_id)

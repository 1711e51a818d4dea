# SPDX-License-Identifier: Apache-2.0
"""Decides who owns a load balancer, from the tags of cloud-provider-aws or from a mark of our own. Pure.

cloud-provider-aws finds a load balancer by its name, which contains the Service's UID, so it also finds those that this
provider created. The mark adds the cluster and a fingerprint. Tags can be trusted, because only members of the account
can write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccm.cloud import Conflict, LoadBalancerSpec
from ccm.cloud.toolkit import kept_load_balancers
from ccm.cloud.toolkit.digests import digest
from ccm.cloud.toolkit.ownership_marks import Mark, cluster_tag, label_text

from ...api import is_of_cluster
from .load_balancer_rules import SERVICE_TAG

PREFIX = "ccm-outoftree/"
FINGERPRINT = f"{PREFIX}fingerprint"
FLAGS = f"{PREFIX}flags"
UID, CLUSTER = f"{PREFIX}uid", f"{PREFIX}cluster"
#: The tag of a load balancer that is kept without a Service: the namespace whose Services may take it back.
KEPT_FOR = f"{PREFIX}kept-for"
#: A letter in the flags of a mark: this provider gave the load balancer IPv6 addresses.
DUAL_STACK = "d"
#: The form of the names that cloud-provider-aws and this provider give to load balancers.
NAME = re.compile(r"a[0-9a-f]{31}")


def mark_of(tags: Mapping[str, str]) -> Mark | None:
    return Mark.from_labels(tags, PREFIX)


def mark_tags(spec: LoadBalancerSpec, fingerprint: str = "", *, dual_stack: bool = False) -> dict[str, str]:
    flags = kept_load_balancers.flags(spec) + (DUAL_STACK if dual_stack else "")
    return Mark.made_for(spec, spec.default_name, fingerprint, flags).labels(PREFIX)


def outdated(tags: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that must be written. Flags that the Service no longer has are emptied."""
    emptied = {FLAGS: ""} if tags.get(FLAGS) else {}
    return {key: value for key, value in (emptied | dict(desired)).items() if tags.get(key) != value}


def flags_of(tags: Mapping[str, str]) -> str:
    return tags.get(FLAGS, "")


def is_protected(tags: Mapping[str, str]) -> bool:
    return kept_load_balancers.PROTECTED in flags_of(tags)


def is_own(tags: Mapping[str, str], spec: LoadBalancerSpec, cluster: str) -> bool:
    """Return whether a load balancer with these tags belongs to the Service. The caller has found it by its name.

    Our mark decides; without a mark, the tags of cloud-provider-aws decide. A load balancer that is kept without a
    Service belongs to no Service. `cluster`: the cluster's name in tags.
    """
    if (mark := mark_of(tags)) is not None:
        return mark.is_of(spec.cluster, spec.uid)
    return is_of_cluster(tags, cluster) and SERVICE_TAG in tags and not tags.get(KEPT_FOR)


def kept_tags(tags: Mapping[str, str], spec: LoadBalancerSpec) -> dict[str, str]:
    """Return the tags to write on a load balancer that loses its Service and is kept for the namespace. Without a UID,
    these tags are not a mark. If only the UID of the Service is known, its namespace comes from the mark."""
    mark = mark_of(tags)
    namespace = spec.namespace or (mark.namespace if mark is not None else "")
    whose = {CLUSTER: label_text(cluster_tag(spec.cluster)), KEPT_FOR: namespace}
    kept_flags = DUAL_STACK if DUAL_STACK in flags_of(tags) else ""
    return whose | {UID: "", FINGERPRINT: "", FLAGS: kept_flags}


def taken_back_tags(tags: Mapping[str, str], spec: LoadBalancerSpec) -> dict[str, str]:
    """Return the tags to write on a kept load balancer that the Service takes back."""
    return mark_tags(spec, dual_stack=DUAL_STACK in flags_of(tags)) | {KEPT_FOR: ""}


def kept_for(tags: Mapping[str, str], cluster: str) -> str:
    """Return the namespace for which this cluster keeps the load balancer, "" if the cluster does not keep it."""
    return tags.get(KEPT_FOR, "") if tags.get(CLUSTER) == label_text(cluster_tag(cluster)) else ""


def check(tags: Mapping[str, str], spec: LoadBalancerSpec, cluster: str) -> None:
    """Raises Conflict unless the load balancer with these tags is the Service's."""
    if is_own(tags, spec, cluster):
        return
    if namespace := tags.get(KEPT_FOR):
        raise kept_load_balancers.kept_for_another(f"load balancer {spec.default_name}", namespace)
    mark = mark_of(tags)
    whose = f"of cluster {mark.cluster}" if mark is not None else "nobody's by its tags"
    raise Conflict(
        f"load balancer {spec.default_name} exists and is {whose}, not of cluster {spec.cluster}: names are unique in "
        "a region. Delete it, or give it the tags of this cluster"
    )


def name_of(arn: str) -> str:
    """Return the name of the load balancer with this ARN: `arn:...:loadbalancer/net/NAME/ID`."""
    return arn.rsplit("/", 2)[-2]


def other_name(group: str, uid: str) -> str:
    """Return the second choice for a target group's name. Names are unique in a region and do not contain the Service's
    UID, so a Service that was deleted and created again may find the first choice still taken."""
    return f"{group[:-10]}{digest(f'{group} {uid}', 10)}"


def settings_of(fingerprint: str) -> str:
    """Return the half of a fingerprint that covers everything except the targets."""
    return fingerprint.partition("-")[0]

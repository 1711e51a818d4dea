# SPDX-License-Identifier: Apache-2.0
"""Built-in controllers that are off by default. The file of a controller is imported only if the controller is on."""

from __future__ import annotations

from typing import Any

from ccm.cloud import Cloud

from .controller_context import ControllerContext
from .controller_spec import ControllerSpec, Right
from .serving_certificates.signing_requests import GROUP, SIGNER, SIGNING_REQUESTS
from .shared.context import Controller

NODE_IPAM = "node-ipam-controller"
#: The values of `--cidr-allocator-type`.
RANGE_ALLOCATOR, CLOUD_ALLOCATOR = "RangeAllocator", "CloudAllocator"


def _instances(cloud: Cloud) -> str | None:
    return None if cloud.instances else "instances"


def _serving_csr(context: ControllerContext, _: object) -> Controller:
    from .serving_certificates.serving_csr import ServingCsrController

    return ServingCsrController(context, context.cache(SIGNING_REQUESTS), share=context.share)


def _node_ipam(context: ControllerContext, options: Any) -> Controller:
    from .pod_cidrs.node_ipam import NodeIpamController

    if not options.from_cloud:
        return NodeIpamController(context, options, share=context.share)
    from .pod_cidrs.node_ipam_cloud import CloudSource

    return NodeIpamController(context, options, source=CloudSource(context, options, context.vouched()))


def _node_ipam_options(flags: Any) -> object:
    """Return the options. Raises ValueError for an unknown allocator, and for ranges that are missing or cannot be
    divided among Nodes."""
    from .pod_cidrs.node_ipam import NodeIpamOptions
    from .pod_cidrs.node_ipam_rules import Allocators, parse_ranges

    if not flags.cluster_cidr:
        raise ValueError("node-ipam-controller requires --cluster-cidr: the ranges from which Nodes get pod CIDRs")
    network = flags.pod_network()
    services = parse_ranges("--service-cluster-ip-range", flags.service_cluster_ip_range)
    if flags.cidr_allocator_type == CLOUD_ALLOCATOR:
        return NodeIpamOptions(network, services, from_cloud=True)
    if flags.cidr_allocator_type not in ("", RANGE_ALLOCATOR):
        raise ValueError(
            f"--cidr-allocator-type must be {RANGE_ALLOCATOR} or {CLOUD_ALLOCATOR}, not {flags.cidr_allocator_type!r}"
        )
    of_clouds = flags.cloud_ranges()
    Allocators(network, services, of_clouds)
    return NodeIpamOptions(network, services, of_clouds=of_clouds)


def _without_allocation(flags: Any) -> str | None:
    return None if flags.allocate_node_cidrs else "--allocate-node-cidrs=false"


def _tags(cloud: Cloud) -> str | None:
    return None if cloud.instance_tags and cloud.instances else "instance tags"


def _instance_tags(context: ControllerContext, options: Any) -> Controller:
    from .instance_tags.instance_tags import InstanceTagsController

    return InstanceTagsController(context, options, context.vouched(), context.share)


def _instance_tags_options(flags: Any) -> object:
    """Return the options. Raises ValueError for values that are not tags."""
    from .instance_tags.instance_tags import InstanceTagsOptions
    from .instance_tags.instance_tags_rules import parse_tags

    return InstanceTagsOptions(parse_tags(flags.instance_tags))


def _without_tags(flags: Any) -> str | None:
    return None if flags.instance_tags else "--instance-tags is empty"


OPTIONAL: tuple[ControllerSpec[Any], ...] = (
    ControllerSpec(
        name="kubelet-serving-csr-controller",
        alias="kubelet-serving-csr",
        summary="Approves kubelets' requests for serving certificates whose names and addresses the cloud confirms.",
        needs=_instances,
        runs_beside_others=True,
        rights=(
            Right("certificatesigningrequests/approval", "patch", GROUP),
            Right("signers", "approve", GROUP, name=SIGNER),
        ),
        watches=(SIGNING_REQUESTS,),
        make=_serving_csr,
    ),
    ControllerSpec(
        name=NODE_IPAM,
        alias="nodeipam",
        runs_once=True,
        summary="Assigns pod CIDRs to Nodes, from --cluster-cidr or from the cloud; requires --allocate-node-cidrs.",
        rights=(Right("nodes", "patch"), Right("pods", "list", namespace="kube-system")),
        flags=_node_ipam_options,
        off=_without_allocation,
        make=_node_ipam,
    ),
    ControllerSpec(
        name="instance-tags-controller",
        alias="instance-tags",
        summary="Adds the tags of --instance-tags to the instances of Nodes.",
        needs=_tags,
        runs_beside_others=True,
        vouching=True,
        flags=_instance_tags_options,
        off=_without_tags,
        make=_instance_tags,
    ),
)

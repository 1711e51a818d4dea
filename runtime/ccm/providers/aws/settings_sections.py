# SPDX-License-Identifier: Apache-2.0
"""The sections and keys of the cloud.conf of cloud-provider-aws. No I/O.

Upper and lower case do not matter in the file, so each field is a key in lower case, without its underscores, and
SPELLINGS has the names as people write them. The documentation is generated from these tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ccm.cloud.toolkit import limit_settings as limits
from ccm.cloud.toolkit.setting_kinds import KINDS as COMMON_KINDS
from ccm.cloud.toolkit.setting_kinds import boolean, key, matching, one_of, port, whole_number

FAMILIES = ("ipv4", "ipv6")
NODE_PORT, SHARED = "ServiceNodePort", "Shared"
CLASSIC, NETWORK = "classic", "nlb"


def family(raw: str) -> tuple[str, ...]:
    if raw not in FAMILIES:
        raise ValueError("expected ipv4 or ipv6; repeat the key for both")
    return (raw,)


zone_kind = matching(r"([a-zA-Z]+-)+\d+.*", "the name of an availability zone, such as eu-central-1a")
region_kind = matching(r"[A-Za-z0-9-]{1,63}", "the name of a region, such as eu-central-1")
vpc_kind = matching(r"vpc-[A-Za-z0-9]+", "the ID of a VPC, vpc-...")
subnet_kind = matching(r"subnet-[A-Za-z0-9]+", "the ID of a subnet, subnet-...")
group_kind = matching(r"sg-[A-Za-z0-9]+", "the ID of a security group, sg-...")
route_table_kind = matching(r"rtb-[A-Za-z0-9]+", "the ID of a route table, rtb-...")
role_kind = matching(r"arn:[\w-]+:iam::\d{12}:role/\S+", "the ARN of a role, arn:aws:iam::ACCOUNT:role/NAME")
arn_kind = matching(r"arn:[\w-]+:[\w-]+:[\w-]*:\d{12}:\S+", "an ARN, with the number of an account")
path_kind = matching(r"/[!-~]{0,1023}", "a path that begins with /")


def url_kind(raw: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", raw.strip()):
        raise ValueError("expected https://HOST/PATH, without credentials")
    return raw.strip()


KINDS = {
    **COMMON_KINDS,
    family: "`ipv4` or `ipv6`; may be repeated",
    zone_kind: "availability zone",
    region_kind: "region",
    vpc_kind: "ID of a VPC",
    subnet_kind: "ID of a subnet",
    group_kind: "ID of a security group",
    route_table_kind: "ID of a route table",
    role_kind: "ARN of a role",
    arn_kind: "ARN",
    path_kind: "path",
    url_kind: "URL",
}


@dataclass(frozen=True)
class Global:
    """The account, the network and the cluster. By default, environment variables and instance metadata are used."""

    zone: str = key("", "an availability zone; its region takes precedence over `Region`", zone_kind)
    region: str = key("", "the region; by default, that of `AWS_REGION` or of instance metadata", region_kind)
    vpc: str = key("", "the VPC of the Nodes; by default, that of this machine", vpc_kind)
    subnetid: str = key(
        "", "the subnet of load balancers if every subnet is tagged only for other clusters", subnet_kind
    )
    routetableid: str = key(
        "", "the only table for routes; by default, all tables with the cluster's tag", route_table_kind
    )
    rolearn: str = key("", "the role that all calls assume", role_kind)
    sourcearn: str = key("", "the resource on whose behalf the role is assumed", arn_kind)
    kubernetesclustertag: str = key("", "the cluster's name in the older tag `KubernetesCluster`")
    kubernetesclusterid: str = key("", "the cluster's name in the tags `kubernetes.io/cluster/NAME`")
    disablesecuritygroupingress: bool = key(False, "leave the security groups of Nodes alone", boolean)
    elbsecuritygroup: str = key(
        "", "the security group of all Classic Load Balancers; by default, each has its own", group_kind
    )
    nodeipfamilies: tuple[str, ...] = key(
        (), "the IP families of Nodes' addresses, in order; by default, `ipv4`", family
    )
    clusterserviceloadbalancerhealthprobemode: str = key(
        NODE_PORT, "what load balancers check: each Service's node port, or kube-proxy", one_of(NODE_PORT, SHARED)
    )
    clusterservicesharedloadbalancerhealthprobeport: int = key(10256, "kube-proxy's port, with `Shared`", port)
    clusterservicesharedloadbalancerhealthprobepath: str = key(
        "/healthz", "kube-proxy's path, with `Shared`", path_kind
    )


@dataclass(frozen=True)
class ServiceOverride:
    """Another endpoint for a service in a region. Each section needs its own name in quotes."""

    service: str = key(
        "",
        "`EC2`, `Elastic Load Balancing v2`, `Elastic Load Balancing` or `STS`; `elasticloadbalancing` stands for both "
        "load balancing services",
    )
    region: str = key("", "the region for which the endpoint is used", region_kind)
    url: str = key("", "the endpoint", url_kind)
    signingregion: str = key("", "the region in signatures", region_kind)


@dataclass(frozen=True)
class Runtime:
    """Keys of this project. cloud-provider-aws warns about this section and continues."""

    loadbalancertype: str = key(
        CLASSIC, "the type of a load balancer if its Service names none", one_of(CLASSIC, NETWORK), ours=True
    )
    maxtargets: int = key(
        0,
        "the maximum number of targets of one load balancer, for all its ports together; 0 for no limit. Zones get "
        "equal shares, and Services get different Nodes",
        whole_number(0, 100_000),
        ours=True,
    )
    request_timeout: float = limits.request_timeout(10.0)
    calls_per_second: float = limits.calls_per_second(20.0)
    burst: int = limits.burst(100, former="callsburst")
    page_size: int = limits.page_size(1000, 5, 1000)


SECTIONS: dict[str, type] = {"Global": Global, "ServiceOverride": ServiceOverride, "Runtime": Runtime}
IGNORED = {
    ("Global", "supportedtopologyinstancetypepattern"): "Nodes get no labels of the network's topology",
    ("ServiceOverride", "signingmethod"): "botocore chooses the method",
    ("ServiceOverride", "signingname"): "botocore knows the name",
}
REFUSED = {
    ("Global", "nlbsecuritygroupmode"): (
        "load balancers with security groups of their own are not supported: remove the key, or keep cloud-provider-aws"
    ),
}
#: Keys as people write them.
SPELLINGS = {
    each.lower(): each
    for each in (
        *("Zone", "Region", "VPC", "SubnetID", "RouteTableID", "RoleARN", "SourceARN", "KubernetesClusterTag"),
        *("KubernetesClusterID", "DisableSecurityGroupIngress", "ElbSecurityGroup", "NodeIPFamilies"),
        *("ClusterServiceLoadBalancerHealthProbeMode", "ClusterServiceSharedLoadBalancerHealthProbePort"),
        *("ClusterServiceSharedLoadBalancerHealthProbePath", "SupportedTopologyInstanceTypePattern"),
        *("NLBSecurityGroupMode", "Service", "URL", "SigningRegion", "SigningMethod", "SigningName"),
        *("LoadBalancerType", "MaxTargets", "RequestTimeout", "CallsPerSecond", "Burst", "CallsBurst", "PageSize"),
    )
}

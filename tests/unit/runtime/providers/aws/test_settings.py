# SPDX-License-Identifier: Apache-2.0
"""cloud.conf of cloud-provider-aws, unchanged: what it means, and every mistake with its line."""

from __future__ import annotations

import pytest

from ccm.cloud import ConfigError, ProviderConfig
from ccm.providers.aws.settings import ENDPOINTS, Endpoint, Settings

FULL = """; as kops writes it
[global]
Zone = eu-central-1b
VPC = vpc-0a1
SubnetID = subnet-0a1
RouteTableID = rtb-0a1
RoleARN = arn:aws:iam::123456789012:role/kube
SourceARN = arn:aws:eks:eu-central-1:123456789012:cluster/kube
KubernetesClusterID = kube
DisableSecurityGroupIngress = true
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared

[ServiceOverride "1"]
Service = ec2
Region = eu-central-1
URL = https://ec2.example.com
SigningRegion = eu-west-1
SigningMethod = v4

[ServiceOverride "2"]
Service = s3
Region = eu-central-1
URL = https://s3.example.com
SigningRegion = eu-central-1
"""


def parse(text: str, **environment: str) -> Settings:
    return Settings.parse(ProviderConfig(text, "cloud.conf", environment))


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        parse(text)
    return raised.value.problems


def test_a_whole_file():
    found = parse(FULL)
    assert (found.region, found.common.vpc, found.cluster) == ("eu-central-1", "vpc-0a1", "kube")
    assert found.families == ("ipv6", "ipv4")
    assert found.common.disablesecuritygroupingress and found.common.elbsecuritygroup == "sg-1"
    assert found.endpoint("ec2", "eu-central-1") == Endpoint("https://ec2.example.com", "eu-west-1")
    assert found.endpoint("ec2", "eu-west-1") is None
    assert [each.partition(" has no effect")[0] for each in found.ignored] == [
        'line 21: [ServiceOverride "1"] SigningMethod',
        'line 24: [ServiceOverride "2"] service',
    ]


@pytest.mark.parametrize(
    ("name", "services"),
    [
        ("Elastic Load Balancing v2", ["elbv2"]),
        ("Elastic Load Balancing", ["elb"]),
        ("elasticloadbalancing", ["elbv2", "elb"]),
        ("EC2", ["ec2"]),
        ("STS", ["sts"]),
    ],
)
def test_services_have_the_names_of_both_versions_of_the_sdk(name, services):
    section = f'Service = "{name}"\nRegion = eu-central-1\nURL = https://a\nSigningRegion = eu-central-1\n'
    found = parse(f'[ServiceOverride "1"]\n{section}')
    assert [service for service in ENDPOINTS if found.endpoint(service, "eu-central-1")] == sorted(services)
    assert not found.ignored


def test_no_file_means_defaults():
    found = parse("")
    assert (found.region, found.families, found.runtime.loadbalancertype) == ("", ("ipv4",), "classic")
    assert found.keys is None


@pytest.mark.parametrize(
    ("text", "environment", "region"),
    [
        ("[Global]\nRegion = us-east-1", {"AWS_REGION": "us-west-1"}, "us-east-1"),
        ("[Global]\nZone = us-west-2-lax-1a\nRegion = us-east-1", {}, "us-west-2"),
        ("", {"AWS_REGION": "us-west-1", "AWS_DEFAULT_REGION": "us-east-2"}, "us-west-1"),
        ("", {"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
    ],
)
def test_where_the_region_comes_from(text, environment, region):
    assert parse(text, **environment).region == region


def test_endpoints_of_the_environment_count_after_those_of_the_file():
    found = parse(FULL, AWS_ENDPOINT_URL="http://any", AWS_ENDPOINT_URL_STS="http://sts")
    assert found.endpoint("ec2", "eu-central-1") == Endpoint("https://ec2.example.com", "eu-west-1")
    assert found.endpoint("elbv2", "eu-central-1") == Endpoint("http://any")
    assert found.endpoint("sts", "eu-central-1") == Endpoint("http://sts")
    ignored = parse("", AWS_ENDPOINT_URL="http://any", AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true")
    assert ignored.endpoint("ec2", "eu-central-1") is None


def test_keys_of_the_environment_are_not_shown():
    found = parse("", AWS_ACCESS_KEY_ID="AKIA1", AWS_SECRET_ACCESS_KEY="secret", AWS_SESSION_TOKEN="token")
    assert found.keys is not None
    assert (found.keys.access_key, found.keys.secret_key, found.keys.token) == ("AKIA1", "secret", "token")
    assert not any(each in repr(found) for each in ("AKIA1", "secret", "'token'"))
    assert parse("", AWS_ACCESS_KEY_ID="AKIA1").keys is None


def test_all_mistakes_are_reported_at_once_with_their_lines():
    text = """[Global]
Region = eu central
VPC = 1
NodeIPFamilies = ipv5
RoleARN = kube
Zonne = a
NLBSecurityGroupMode = Managed
KubernetesClusterTag = one
KubernetesClusterID = other

[Runtime]
PageSize = 3

[ServiceOverride "1"]
Service = ec2

[Elsewhere]
"""
    expected = [
        "line 2: [Global] region: expected the name of a region",
        "line 3: [Global] VPC: expected the ID of a VPC",
        "line 4: [Global] NodeIPFamilies: expected ipv4 or ipv6",
        "line 5: [Global] RoleARN: expected the ARN of a role",
        "line 6: [Global] zonne: unknown key; did you mean zone?",
        "line 7: [Global] NLBSecurityGroupMode: load balancers with security groups of their own",
        "line 9: [Global] KubernetesClusterID: KubernetesClusterTag has another value",
        "line 12: [Runtime] PageSize: expected a whole number from 5 to 1000",
        'line 15: [ServiceOverride "1"] region: is missing',
        'line 15: [ServiceOverride "1"] SigningRegion: is missing',
        'line 15: [ServiceOverride "1"] url: is missing',
        "line 17: [elsewhere]: unknown section",
    ]
    found = problems(text)
    assert len(found) == len(expected), found
    for one, start in zip(found, expected, strict=True):
        assert one.startswith(f"cloud.conf: {start}"), one


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv4", "repeats a family"),
        ("[Global]\nSourceARN = arn:aws:eks:eu-central-1:123456789012:cluster/kube", "it needs RoleARN"),
        ("[Global]\nSourceARN = kube\nRoleARN = arn:aws:iam::123456789012:role/kube", "expected an ARN"),
        ("[Global]\nZone = somewhere", "expected the name of an availability zone"),
        ("[Global]\nSubnetID = 1", "expected the ID of a subnet"),
        ("[Global]\nRouteTableID = 1", "expected the ID of a route table"),
        ("[Global]\nClusterServiceSharedLoadBalancerHealthProbePort = 70000", "expected a port"),
        ("[Global]\nClusterServiceSharedLoadBalancerHealthProbePath = healthz", "expected a path"),
        ('[ServiceOverride "1"]\nURL = https://user:password@example.com', "without credentials"),
    ],
)
def test_one_mistake(text, problem):
    assert any(problem in each for each in problems(text))


def test_two_overrides_of_one_service_are_a_mistake():
    section = "Service = ec2\nRegion = eu-central-1\nURL = https://a\nSigningRegion = eu-central-1\n"
    text = f'[ServiceOverride "1"]\n{section}[ServiceOverride "2"]\n{section}'
    assert problems(text) == ['cloud.conf: line 7: [ServiceOverride "2"] service, region: another section has both']

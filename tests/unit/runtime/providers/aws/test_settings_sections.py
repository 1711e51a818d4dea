# SPDX-License-Identifier: Apache-2.0
"""Kinds of values in cloud.conf, at the limits of what they accept."""

from __future__ import annotations

import dataclasses

import pytest

from ccm.providers.aws import settings_sections as conf


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (conf.family, "ipv6", "IPv6"),
        (conf.port, "65535", "65536"),
        (conf.port, "1", "0"),
        (conf.zone_kind, "eu-central-1a", "1a"),
        (conf.region_kind, "us-gov-east-1", "us_east"),
        (conf.vpc_kind, "vpc-0a1", "vpc-"),
        (conf.subnet_kind, "subnet-0a1", "0a1"),
        (conf.route_table_kind, "rtb-0a1", "rtb_0a1"),
        (conf.role_kind, "arn:aws-cn:iam::123456789012:role/path/kube", "arn:aws:iam::12:role/kube"),
        (conf.arn_kind, "arn:aws:eks:eu-west-1:123456789012:cluster/kube", "arn:aws:eks:eu-west-1::cluster/kube"),
        (conf.path_kind, "/", "healthz"),
        (conf.url_kind, "http://127.0.0.1:5000", "ftp://127.0.0.1"),
    ],
)
def test_a_kind_accepts_the_last_good_value_and_refuses_the_first_bad_one(kind, good, bad):
    assert kind(good) in (good, (good,), int(good) if good.isdigit() else good)
    with pytest.raises(ValueError, match="expected"):
        kind(bad)


def test_every_key_has_a_spelling_and_every_spelling_a_key():
    keys = {field.name.replace("_", "") for section in conf.SECTIONS.values() for field in dataclasses.fields(section)}
    keys |= {key for _, key in (*conf.IGNORED, *conf.REFUSED)}
    keys |= {field.metadata["former"] for field in dataclasses.fields(conf.Runtime)} - {""}
    assert keys == set(conf.SPELLINGS)


def test_defaults_are_those_of_the_original():
    found = conf.Global()
    assert found.clusterserviceloadbalancerhealthprobemode == "ServiceNodePort"
    assert found.clusterservicesharedloadbalancerhealthprobeport == 10256
    assert found.clusterservicesharedloadbalancerhealthprobepath == "/healthz"
    assert found.disablesecuritygroupingress is False

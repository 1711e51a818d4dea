# SPDX-License-Identifier: Apache-2.0
"""Flags for several clouds in one process, and combinations that are refused at start."""

import ipaddress

import pytest

from ccm.commands.plan import PlanFlags
from ccm.controllers.services.class_rules import ServedClasses
from ccm.options.clouds import CloudFlags, clouds, division, ranges
from ccm.options.command_line import OptionsError, parse, parse_as

BOTH = "openstack,static"
#: This cloud serves only Services without a class; another cloud serves those with one.
SHARED = ServedClasses(are_shared=True)


def test_one_provider_is_as_before():
    assert clouds("openstack", "/etc/a=b,c.conf", ()) == ([CloudFlags("openstack", "/etc/a=b,c.conf")], [])
    assert clouds("", "", ()) == ([], [])


def test_several_providers_have_a_file_and_patterns_each():
    found, problems = clouds(BOTH, "static=/b=c,openstack=/a", ["static=bm-*", "static=rack?"])
    assert problems == []
    assert found == [CloudFlags("openstack", "/a"), CloudFlags("static", "/b=c", ("bm-*", "rack?"))]
    assert clouds("openstack, static", "static=/b", ())[0][0] == CloudFlags("openstack")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("openstack,openstack", "", ()), "'openstack' is named more than once in --cloud-provider"),
        ((BOTH, "/etc/cloud.conf", ()), "does not say whose it is: with several providers, write PROVIDER=FILE"),
        ((BOTH, "static=", ()), "does not say whose it is"),
        ((BOTH, "aws=/a", ()), "is for 'aws', which --cloud-provider does not name"),
        ((BOTH, "static=/a,static=/b", ()), "names two files for 'static': /a and /b"),
        ((BOTH, "openstack=/a,static=/a", ()), "names /a for both 'openstack' and 'static': each"),
        ((BOTH, "", ["bm-*"]), "is not PROVIDER=PATTERN"),
        ((BOTH, "", ["aws=bm-*"]), "declared for 'aws', which is not a cloud of this process"),
        ((BOTH, "", ["static=n*", "openstack=n*"]), "is declared for both 'openstack' and 'static'"),
        (("openstack", "", ["openstack=n*"]), "needs several providers"),
    ],
)
def test_what_is_refused(flags, problem):
    (only,) = clouds(*flags)[1]
    assert problem in only


@pytest.mark.parametrize(
    ("declared", "default", "able", "expected"),
    [
        ([], "", "openstack", {"openstack": SHARED}),
        (["metal=static"], "openstack", "openstack static",
         {"openstack": SHARED, "static": ServedClasses(frozenset({"metal"}), False, True)}),
        (["metal=static", "fast=openstack"], "none", "openstack static",
         {"openstack": ServedClasses(frozenset({"fast"}), False, True),
          "static": ServedClasses(frozenset({"metal"}), False, True)}),
        ([], "static", "openstack static", {"static": SHARED}),
        ([], "", "", {}),
    ],
)  # fmt: skip
def test_who_serves_which_services(declared, default, able, expected):
    known = {name: name in able.split() for name in BOTH.split(",")}
    assert division(declared, default, known) == (expected, [])


@pytest.mark.parametrize(
    ("declared", "default", "able", "problem"),
    [
        ([], "", "openstack static", "say with --default-load-balancer-provider who serves"),
        (["metal"], "openstack", "openstack static", "names no provider: with several, write NAME=PROVIDER"),
        (["metal=aws"], "openstack", "openstack static", "names 'aws', which --cloud-provider does not name"),
        (["metal=static"], "openstack", "openstack", "names 'static', which has no load balancers"),
        (["a=static", "a=openstack"], "none", "openstack static", "names a more than once"),
        (["a b=static"], "none", "openstack static", "no class that a Service can have"),
        ([], "static", "openstack", "names 'static', which has no load balancers"),
        ([], "static", "openstack", "set it to openstack or none"),
        ([], "none", "openstack static", "leaves no Service to serve: name a class"),
        ([], "aws", "openstack", "names 'aws', which --cloud-provider does not name"),
    ],
)
def test_what_no_division_is(declared, default, able, problem):
    known = {name: name in able.split() for name in BOTH.split(",")}
    (only,) = division(declared, default, known)[1]
    assert problem in only


def test_the_command_line_names_several_clouds():
    options = parse([f"--cloud-provider={BOTH}", "--cloud-config=static=/b", "--cloud-nodes=static=bm-*"])
    assert options.are_of_several
    assert options.clouds() == [CloudFlags("openstack"), CloudFlags("static", "/b", ("bm-*",))]
    alone = parse(["--cloud-provider=static", "--cloud-config=/a=b,c"])
    assert not alone.are_of_several and alone.clouds() == [CloudFlags("static", "/a=b,c")]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--cloud-provider=openstack,sttic"], "sttic"),
        (["--cloud-provider=static,static"], "'static' is named more than once"),
        (["--cloud-config=/etc/cloud.conf"], "does not say whose it is"),
        (["--load-balancer-class=metal"], "names no provider: with several, write NAME=PROVIDER"),
        (["--default-load-balancer-provider=aws"], "names 'aws', which --cloud-provider does not name"),
        (["--controllers=*,node-ipam-controller", "--cidr-allocator-type=CloudAllocator"],
         "--cidr-allocator-type=CloudAllocator does not support several providers"),
        (["--cloud-provider=static", "--cloud-nodes=static=n*"], "needs several providers"),
        (["--cloud-provider=static", "--cloud-cluster-cidr=static=10.0.0.0/16"], "needs several providers"),
        (["--cloud-cluster-cidr=static=10.0.0.0/16", "--cluster-cidr=10.0.0.0/8"], "requires --allocate-node-cidrs"),
        (["--cloud-cluster-cidr=static=10.0.0.0/16", "--allocate-node-cidrs"], "--cluster-cidr, which is empty"),
        (["--cloud-cluster-cidr=aws=10.0.0.0/9", "--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/8"], "is for 'aws'"),
    ],
)  # fmt: skip
def test_the_command_line_refuses_what_several_clouds_cannot_mean(flags, problem):
    with pytest.raises(OptionsError) as refused:
        parse([f"--cloud-provider={BOTH}", *flags])
    assert any(problem in each for each in refused.value.problems), refused.value.problems


def test_a_command_asks_several_clouds_by_the_same_flags():
    options = parse_as(PlanFlags, [f"--cloud-provider={BOTH}", "--load-balancer-class=metal=static"])
    assert [each.provider for each in options.clouds()] == ["openstack", "static"]
    assert options.served_classes() == ServedClasses(frozenset({"metal"}), True, True)
    flags = ["--load-balancer-class=metal=static", "--default-load-balancer-provider=none"]
    nobody = parse_as(PlanFlags, [f"--cloud-provider={BOTH}", *flags])
    assert nobody.served_classes().without_class is False


V4, V6 = ipaddress.ip_network("10.244.0.0/16"), ipaddress.ip_network("fd00::/56")


def test_a_provider_has_a_range_of_each_family_in_the_order_of_the_cluster():
    parts = ["static=fd00:0:0:80::/57", "static=10.244.128.0/17", "openstack=10.244.0.0/18", "openstack=fd00::/58"]
    found, problems = ranges(parts, BOTH.split(","), [V4, V6])
    assert problems == []
    assert {name: [str(each) for each in own] for name, own in found.items()} == {
        "static": ["10.244.128.0/17", "fd00:0:0:80::/57"],
        "openstack": ["10.244.0.0/18", "fd00::/58"],
    }


@pytest.mark.parametrize(
    ("parts", "cluster", "problem"),
    [
        (["10.244.128.0/17"], [V4], "is not PROVIDER=CIDR"),
        (["static=10.244.128.0/33"], [V4], "is not PROVIDER=CIDR"),
        (["aws=10.244.128.0/17"], [V4], "which --cloud-provider does not name"),
        (["static=10.245.0.0/17"], [V4], "is not inside --cluster-cidr, which is 10.244.0.0/16"),
        (["static=10.240.0.0/12"], [V4], "is not inside --cluster-cidr"),
        (["static=10.244.128.0/17", "openstack=10.244.0.0/16"], [V4], "overlaps with static=10.244.128.0/17"),
        (["static=10.244.128.0/17"], [V4, V6], "static needs one range of each family"),
        (["static=10.244.128.0/18", "static=10.244.192.0/18"], [V4], "static needs one range of each family"),
        (["static=10.244.128.0/17"], [], "is not inside --cluster-cidr, which is empty"),
    ],
)
def test_what_no_range_of_a_provider_is(parts, cluster, problem):
    (only,) = ranges(parts, BOTH.split(","), cluster)[1]
    assert problem in only

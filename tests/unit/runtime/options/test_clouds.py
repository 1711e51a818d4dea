# SPDX-License-Identifier: Apache-2.0
"""Several clouds in one process, as the flags name them, and what is refused at the start."""

import pytest

from ccm.controllers.services.class_rules import ServedClasses
from ccm.options.clouds import CloudFlags, clouds, division

BOTH = "openstack,static"


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
        ((BOTH, "", ["bm-*"]), "is not PROVIDER=PATTERN"),
        ((BOTH, "", ["aws=bm-*"]), "declared for 'aws', which is no cloud of this process"),
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
        ([], "", "openstack", {"openstack": ServedClasses()}),
        (["metal=static"], "openstack", "openstack static",
         {"openstack": ServedClasses(), "static": ServedClasses(frozenset({"metal"}), False)}),
        (["metal=static", "fast=openstack"], "none", "openstack static",
         {"openstack": ServedClasses(frozenset({"fast"}), False),
          "static": ServedClasses(frozenset({"metal"}), False)}),
        ([], "static", "openstack static", {"static": ServedClasses()}),
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
        ([], "aws", "openstack", "names 'aws', which --cloud-provider does not name"),
    ],
)
def test_what_no_division_is(declared, default, able, problem):
    known = {name: name in able.split() for name in BOTH.split(",")}
    (only,) = division(declared, default, known)[1]
    assert problem in only

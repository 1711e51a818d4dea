# SPDX-License-Identifier: Apache-2.0
"""What the flags for load balancer classes mean, and which values are refused at start."""

import pytest

from ccm.base.start_error import StartError
from ccm.cloud import Cloud, ProviderConfig
from ccm.controllers.services.class_rules import UNDECLARED, ServedClasses
from ccm.manager.running_controllers import usable_controllers
from ccm.options.command_line import OptionsError, parse

SIM = "--cloud-provider=sim"


def served(*flags):
    return parse([SIM, *flags]).served_classes()


@pytest.mark.parametrize(
    ("flags", "classes"),
    [
        ([], UNDECLARED),
        (["--default-load-balancer-provider=sim"], UNDECLARED),
        (["--load-balancer-class=a"], ServedClasses(frozenset({"a"}))),
        (["--load-balancer-class=a,b.example/c=sim", "--load-balancer-class=D_1.x"],
         ServedClasses(frozenset({"a", "b.example/c", "D_1.x"}))),
        (["--load-balancer-class=a", "--default-load-balancer-provider=none"], ServedClasses(frozenset({"a"}), False)),
    ],
)  # fmt: skip
def test_what_is_served(flags, classes):
    assert served(*flags) == classes


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--load-balancer-class=a", "--load-balancer-class=a=sim"], "names a more than once"),
        (["--load-balancer-class=a=openstack"], "names the provider 'openstack', but --cloud-provider is 'sim'"),
        (["--load-balancer-class=a="], "names no provider after the equals sign"),
        (["--load-balancer-class==sim"], "no class that a Service can have"),
        (["--load-balancer-class=a b"], "no class that a Service can have"),
        (["--load-balancer-class=-a"], "no class that a Service can have"),
        (["--load-balancer-class=" + "a" * 64], "no class that a Service can have"),
        (["--load-balancer-class=Example.com/a"], "no class that a Service can have"),
        (["--load-balancer-class=a/b/c"], "no class that a Service can have"),
        (["--load-balancer-class=/a"], "no class that a Service can have"),
        (["--load-balancer-class=a.example/"], "no class that a Service can have"),
        (["--load-balancer-class=" + "a" * 254 + "/b"], "no class that a Service can have"),
        (["--default-load-balancer-provider=none"], "leaves no Service to serve"),
        (["--default-load-balancer-provider=static"], "but --cloud-provider is 'sim'"),
    ],
)
def test_what_is_refused(flags, problem):
    with pytest.raises(OptionsError) as caught:
        served(*flags)
    (only,) = caught.value.problems
    assert problem in only


class WithoutBalancers(Cloud):
    name = "bare"


@pytest.mark.parametrize(
    "flags", [["--load-balancer-class=a"], ["--default-load-balancer-provider=sim"]], ids=["class", "default"]
)
def test_a_provider_without_load_balancers_cannot_promise_them(flags):
    cloud = WithoutBalancers(ProviderConfig())
    with pytest.raises(StartError, match=f"{flags[0]} cannot be used: provider sim has no load balancers"):
        usable_controllers(parse([SIM, *flags]), cloud)
    assert "service-lb-controller" not in usable_controllers(parse([SIM]), cloud)
    nodes_only = usable_controllers(parse([SIM, *flags, "--controllers=cloud-node"]), cloud)
    assert nodes_only == {}, "the stage that only initialises Nodes has the same flags"

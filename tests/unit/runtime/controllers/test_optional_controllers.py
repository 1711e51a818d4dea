# SPDX-License-Identifier: Apache-2.0
"""Optional controllers are off by default. While they are off, their files are not imported."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from ccm.controllers.controller_registry import BUILT_IN
from ccm.controllers.optional_controllers import OPTIONAL
from ccm.options.command_line import parse

IPAM: Any = BUILT_IN["node-ipam-controller"]

PROGRAM = """
import sys
import ccm.manager.process
print(*(name for name in sys.modules if name.startswith("ccm.controllers.")))
"""
FILES = {"serving_csr", "serving_csr_rules", "node_ipam", "node_ipam_rules", "instance_tags", "instance_tags_rules"}


def test_nothing_of_a_controller_that_is_off_is_imported():
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    imported = {name.removeprefix("ccm.controllers.") for name in run.stdout.split()}
    assert "optional_controllers" in imported and not FILES & imported


def test_each_is_off_by_default_and_in_the_table():
    assert OPTIONAL and all(not spec.on_by_default and BUILT_IN[spec.name] is spec for spec in OPTIONAL)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--cluster-cidr="], "requires --cluster-cidr"),
        (["--cluster-cidr=10.0.0.0/25"], "does not fit into --cluster-cidr=10.0.0.0/25"),
        (["--cluster-cidr=10.0.0.0/8", "--node-cidr-mask-size=28"], "more than 2^16 pod CIDRs"),
        (
            ["--cluster-cidr=10.0.0.0/16", "--service-cluster-ip-range=services"],
            "--service-cluster-ip-range: 'services'",
        ),
    ],
)
def test_ranges_that_cannot_be_cut_are_a_mistake_at_start(flags, says):
    given = parse(["--cloud-provider=sim", "--controllers=nodeipam", "--allocate-node-cidrs", *flags])
    with pytest.raises(ValueError, match=re.escape(says)):
        IPAM.flags(given)


def test_pod_cidrs_need_their_flag():
    given = ["--cloud-provider=sim", "--controllers=nodeipam", "--cluster-cidr=10.0.0.0/16"]
    assert IPAM.off(parse(given)) == "--allocate-node-cidrs=false"
    assert IPAM.off(parse([*given, "--allocate-node-cidrs"])) is None
    options = IPAM.flags(parse([*given, "--service-cluster-ip-range=10.0.0.0/20,fd00::/112"]))
    assert [str(each) for each in options.services] == ["10.0.0.0/20", "fd00::/112"]

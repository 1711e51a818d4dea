# SPDX-License-Identifier: Apache-2.0
"""Flags that a cloud cannot fulfil are reported at the start."""

import pytest

from ccm.cloud import Cloud, ProviderConfig
from ccm.manager.running_controllers import usable_controllers
from ccm.options.command_line import parse


class Bare(Cloud):
    name = "bare"


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (["--fence-dead-nodes"], True),
        ([], False),
        pytest.param(["--fence-dead-nodes", "--controllers=cloud-node"], False, id="the-stage-that-initialises-Nodes"),
    ],
)
def test_a_cloud_without_instances_fences_nobody(flags, reported, caplog):
    usable_controllers(parse(["--cloud-provider=sim", *flags]), Bare(ProviderConfig()))
    assert ("--fence-dead-nodes has no effect: provider sim has no instances" in caplog.text) is reported

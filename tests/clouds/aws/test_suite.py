# SPDX-License-Identifier: Apache-2.0
"""`AwsAccount`, the adapter of ccm-suite for moto: it creates machines, and breaks and counts calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import botocore.exceptions
import pytest
from ccm_suite.cloud import Fault, Machine
from ccm_suite.errors import Unsupported

from tests.integration.cluster import binaries
from tests.kit import HASTY, PATIENT
from tools.suite import CONTROLLERS

from .account import CLUSTER, KEYS, REGION
from .suite_cloud import AwsAccount

SECONDS = 600


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsAccount]:
    made = AwsAccount()
    try:
        settings = made.start(tmp_path_factory.mktemp("suite"))
        assert settings.variables["cluster"] == CLUSTER
        yield made
    finally:
        made.stop()


def asks(cloud: AwsAccount, seconds: int = PATIENT) -> None:
    """Make a call as the controller does: through the proxy, once. `seconds`: how long to wait for the answer."""
    session = botocore.session.Session()
    session.set_credentials(*KEYS.values())
    config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=seconds)
    session.create_client("ec2", REGION, endpoint_url=cloud._edge.url, config=config).describe_instances()


def test_machines_come_and_go(cloud: AwsAccount) -> None:
    machine = cloud.create_machine("suite-1")
    assert machine.provider_id == f"aws:///{REGION}a/{machine.id}"
    cloud.stop_machine(machine)
    assert cloud._account.instance(machine.id)["State"]["Name"] == "stopped"
    cloud.start_machine(machine)
    cloud.delete_machine(machine)
    assert cloud._account.instance(machine.id)["State"]["Name"] == "terminated"


@pytest.mark.parametrize("fault", [fault for fault in Fault if not fault.endswith("listing")])
def test_a_fault_concerns_the_controller_alone(cloud: AwsAccount, fault: Fault) -> None:
    asks(cloud)
    with cloud.broken(fault):
        with pytest.raises((botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)):
            asks(cloud, HASTY)
        assert isinstance(cloud.create_machine(f"suite-{fault}"), Machine)
    asks(cloud)


def test_what_aws_cannot_do_is_said(cloud: AwsAccount) -> None:
    with pytest.raises(Unsupported, match="empty-listing"), cloud.broken(Fault.EMPTY_LISTING):
        pass


def test_calls_are_those_of_the_controller(cloud: AwsAccount) -> None:
    before = cloud.calls()
    cloud.create_machine("suite-calls")
    assert cloud.calls() == before
    asks(cloud)
    assert cloud.calls() == {"read": before["read"] + 1, "write": before["write"]}


def test_our_controller_makes_routes_that_the_adapter_sees(tmp_path: Path) -> None:
    ours = CONTROLLERS["ours-aws"]
    command = [sys.executable, "-m", "ccm_suite", "run", f"--controller={ours.command()}", f"--cloud={ours.cloud}"]
    command += [f"--binaries={binaries()}", f"--results={tmp_path}/results.json", "--patience=3", "--only=ro*.made"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["tools/bed", "."])}
    done = subprocess.run(command, env=environment, timeout=SECONDS, check=False)
    outcomes = {row["id"]: row for row in json.loads((tmp_path / "results.json").read_text())["results"]}
    assert (done.returncode, outcomes.keys()) == (0, {"route.made"}), outcomes

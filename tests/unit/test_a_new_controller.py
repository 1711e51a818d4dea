# SPDX-License-Identifier: Apache-2.0
"""A built-in controller is a file and one entry: flags, rights and documentation follow from the entry."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

#: Adds one entry before any module reads the table, then calls each module that reads it.
PROGRAM = """
import json
from ccm.controllers import built_in_controllers as table
from ccm.controllers.controller_spec import ControllerSpec, Right
from ccm.controllers.shared.watched_kinds import Watched
from ccm.engine.objects import PartialObject

POOLS = Watched("pools", PartialObject, group="acme.example")

class PoolController:
    name = "pool-controller"
    def __init__(self, context, period):
        self.period = period
    async def run(self):
        pass

table.BUILT_IN += (ControllerSpec(
    name=PoolController.name, alias="pool", summary="Keeps pools.", on_by_default=True, migrated=True, watches=(POOLS,),
    needs=lambda cloud: None if cloud.routes else "routes", rights=(Right("pools", "patch", "acme.example"),),
    flags=lambda options: options.node_monitor_period, make=PoolController,
),)

from ccm.manager.rights_check import needed
from ccm.manager.running_controllers import RunningControllers, not_offered, usable_controllers
from ccm.options.command_line import parse, parser
from ccm.options.leader_migration import Migration
from ccm.cloud import Cloud, ProviderConfig
from ccm.controllers.controller_context import ControllerContext
from ccm.controllers.controller_registry import BUILT_IN
import controllers_table, reference

class Nothing(Cloud):
    name = "nothing"

class Routes(Nothing):
    routes = object()

options = parse(["--cloud-provider=sim", "--node-monitor-period=7s", "--controllers=pool"])
context = ControllerContext(None, None, None, None, None, "c")
usable = usable_controllers(options, Routes(ProviderConfig()))
print(json.dumps({
    "by default": parse(["--cloud-provider=sim"]).controllers,
    "by alias": options.controllers,
    "help": parser().format_help(),
    "rights": [str(right) for right in needed([BUILT_IN["pool-controller"]])],
    "migrated": list(Migration().leaders),
    "without routes": not_offered(options.controllers, Nothing(ProviderConfig())),
    "usable": list(usable),
    "period": RunningControllers(usable.values(), context)._made[0][1].period,
    "page": "\\n".join(reference._controllers()),
    "collection": controllers_table.text(),
}))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT / "tools" / "docs", capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_it_can_be_chosen_and_is_on_by_default(report: dict[str, Any]):
    assert report["by alias"] == ["pool-controller"] and report["by default"][-1] == "pool-controller"
    assert "pool-controller (pool)" in " ".join(report["help"].split())


def test_its_rights_are_checked(report: dict[str, Any]):
    rights = {f"{verb} pools.acme.example" for verb in ("list", "watch", "patch")}
    assert rights <= {*report["rights"]}


def test_it_runs_where_the_cloud_has_what_it_needs_with_its_options(report: dict[str, Any]):
    assert report["without routes"] == {"pool-controller": "routes"}
    assert report["usable"] == ["pool-controller"] and report["period"] == 7.0


def test_leader_migration_moves_it(report: dict[str, Any]):
    assert "pool-controller" in report["migrated"]


def test_the_page_and_the_collection_know_it(report: dict[str, Any]):
    assert "| `pool-controller`, `pool` | yes | Keeps pools. | routes |" in report["page"]
    assert "name: pool-controller" in report["collection"] and "acme.example" in report["collection"]

# SPDX-License-Identifier: Apache-2.0
"""The number of files through which one option goes, from the command line to where it takes effect.

A file sees it if a function there gets or returns the value, or plain data that has it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from ccm.controllers.nodes.node_lifecycle import NodeLifecycleController
from ccm.manager.room_settings import for_each
from ccm.manager.running_controllers import usable_controllers
from ccm.options.command_line import parse

from ..controllers.nodes_harness import Cluster, machine, until
from ..gateway.virtual import in_virtual_time

RUNTIME = Path(__file__).parents[4] / "runtime" / "ccm"
MIN_AGE = 4242.0
#: The limit that the architecture sets.
MOST = 12


def has(thing: Any, depth: int = 3) -> bool:
    if isinstance(thing, float):
        return thing == MIN_AGE
    if not depth or isinstance(thing, type):
        return False
    if isinstance(thing, Mapping):
        return any(has(value, depth - 1) for value in thing.values())
    if isinstance(thing, msgspec.Struct):
        return any(has(getattr(thing, name, None), depth - 1) for name in thing.__struct_fields__)
    if dataclasses.is_dataclass(thing):
        return any(has(getattr(thing, field.name, None), depth - 1) for field in dataclasses.fields(thing))
    return False


class Walk:
    """A trace function that records the files that see the option, in order, with the functions there."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event not in ("call", "return") or str(path).startswith("<") or not path.is_relative_to(RUNTIME):
            return
        if any(map(has, [*frame.f_locals.values(), result])):
            self.files.setdefault(str(path.relative_to(RUNTIME)), set()).add(frame.f_code.co_name)


DECIDES = "controllers/nodes/node_lifecycle_rules.py"


@in_virtual_time
async def test_the_least_age_of_a_deleted_node() -> None:
    walk = Walk()
    async with Cluster() as c:
        for name, ready in (("n0", "Unknown"), ("n1", "True"), ("n2", "True")):
            c.api.add(name, tainted=False, ready=ready, age=600, providerID=f"fake://{name}")
        c.cloud.put(machine("n1"))
        c.cloud.put(machine("n2"))
        cloud = c.gateway.cloud
        sys.setprofile(walk)
        try:
            (own,) = for_each(parse(["--cloud-provider=sim", f"--node-deletion-min-age={MIN_AGE:.0f}s"]), [cloud])
            options = usable_controllers(own, cloud)[NodeLifecycleController.name].options
            c.run(NodeLifecycleController(c.context, options))
            await until(lambda: "decide" in walk.files.get(DECIDES, ()), 300)
        finally:
            sys.setprofile(None)
        assert "n0" in c.api.nodes, "younger than the option says"
    assert len(walk.files) <= MOST, list(walk.files)

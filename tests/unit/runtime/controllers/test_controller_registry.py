# SPDX-License-Identifier: Apache-2.0
"""Our controllers and those of other packages: which are found or refused, and what a ControllerSpec implies."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from ccm.cloud import Cloud, ProviderConfig
from ccm.controllers import controller_registry as registry
from ccm.controllers.controller_registry import BUILT_IN, Unusable, look_up
from ccm.controllers.controller_spec import ControllerSpec
from ccm.engine.objects import PartialObject
from ccm.manager.rights_check import needed
from ccm.options.command_line import parse
from ccm.options.controller_names import ON_BY_DEFAULT, select_controllers

#: Controllers whose spec has no rights: they write only to the cloud, and read what every controller may read.
WRITES_TO_THE_CLOUD_ALONE = {"instance-tags-controller"}
SPEC: ControllerSpec[None] = ControllerSpec(name="pool-controller", make=lambda context, options: None)  # type: ignore


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a function that installs entry points (name=value, several values separated by spaces), and the module
    `pools` to which they point."""

    def packages(**points: str) -> None:
        found = [
            EntryPoint(name.replace("_", "-"), one, registry.GROUP)
            for name, value in points.items()
            for one in value.split()
        ]
        monkeypatch.setattr(registry, "entry_points", lambda group: [point for point in found if point.group == group])
        registry._points.cache_clear()
        registry.look_up.cache_clear()

    module = types.ModuleType("pools")
    module.SPEC, module.OTHER, module.TEXT = SPEC, SPEC, "SPEC"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pools", module)
    yield packages
    monkeypatch.undo()
    registry._points.cache_clear()
    registry.look_up.cache_clear()


def why(name: str) -> str:
    found = look_up(name)
    assert isinstance(found, Unusable)
    return found.why


def test_an_installed_controller_runs_when_it_is_named_only(install: Any):
    install(pool_controller="pools:SPEC")
    assert registry.installed() == ["pool-controller"]
    assert look_up("pool-controller") is SPEC
    assert select_controllers(["*"]) == ON_BY_DEFAULT
    assert select_controllers(["*", "pool-controller"]) == (*ON_BY_DEFAULT, "pool-controller")
    assert select_controllers(["pool-controller", "-service"]) == ("pool-controller",)


def test_it_is_offered_to_who_writes_a_wrong_name(install: Any):
    install(pool_controller="pools:SPEC")
    with pytest.raises(
        ValueError, match=r"unknown controller 'pol-controller': known controllers are cloud-node.*, pool-controller$"
    ):
        select_controllers(["pol-controller"])


def test_nobody_is_imported_before_somebody_is_looked_up(install: Any):
    install(pool_controller="nowhere.at.all:SPEC")
    assert registry.installed() == ["pool-controller"]
    assert select_controllers(["pool-controller"]) == ("pool-controller",)
    assert why("pool-controller").startswith("controller 'pool-controller' of nowhere.at.all:SPEC cannot be imported: ")


def test_what_exits_while_it_is_imported_is_a_controller_that_does_not_import(install: Any, tmp_path, monkeypatch):
    (tmp_path / "leaves.py").write_text("raise SystemExit('enough')\n")
    monkeypatch.syspath_prepend(tmp_path)
    install(pool_controller="leaves:SPEC")
    assert "cannot be imported: SystemExit: enough" in why("pool-controller")


@pytest.mark.parametrize("taken", ["service-lb-controller", "service", "route-controller"])
def test_a_name_that_is_ours_is_refused_and_ours_runs(install: Any, taken: str):
    install(**{taken.replace("-", "_"): "pools:SPEC"})
    assert registry.installed() == []
    (sentence,) = registry.refused()
    assert sentence == (
        f"controller {taken!r} of pools:SPEC is not used: a built-in controller already has this name"
    )
    assert look_up("service-lb-controller") is BUILT_IN["service-lb-controller"]


def test_two_packages_with_one_name_are_both_refused(install: Any):
    install(pool_controller="pools:SPEC pools:OTHER")
    assert why("pool-controller") == (
        "more than one package provides controller 'pool-controller' (pools:OTHER, pools:SPEC): uninstall all but one"
    )


def test_something_else_is_no_controller(install: Any):
    install(pool_controller="pools:TEXT")
    assert why("pool-controller").endswith("pools:TEXT is a str, not a ControllerSpec")


def test_the_entry_point_has_the_name_of_its_controller(install: Any):
    install(other_controller="pools:SPEC")
    assert why("other-controller").endswith(
        "its ControllerSpec is named 'pool-controller'; it must have the entry point's name"
    )


def test_a_name_of_nobody_is_a_key_error(install: Any):
    install()
    with pytest.raises(KeyError):
        look_up("pool-controller")


def test_a_kind_that_is_watched_brings_its_rights():
    watched: Any = registry.built_in_controllers.Watched("pools", PartialObject, group="acme.example")
    spec: ControllerSpec[None] = ControllerSpec("pool-controller", make=SPEC.make, watches=(watched,))
    assert {str(right) for right in {*needed([spec])} - {*needed(())}} == {
        "list pools.acme.example",
        "watch pools.acme.example",
    }
    assert watched.path == "/apis/acme.example/v1/pools"


@pytest.mark.parametrize("spec", BUILT_IN.values(), ids=list(BUILT_IN))
def test_each_of_ours_is_described_in_full(spec: ControllerSpec[Any]):
    assert spec.name.endswith("-controller") and spec.alias and spec.label == spec.alias
    assert spec.summary.endswith(".")
    idle = "without anything in the cloud none of them has anything to do, and this one not without its flag"
    assert spec.needs(NoCloud(ProviderConfig())) or spec.off(parse(["--cloud-provider=sim"])), idle
    assert bool(spec.rights) == (spec.name not in WRITES_TO_THE_CLOUD_ALONE)


def test_a_label_is_never_empty():
    assert SPEC.label == "pool"


class NoCloud(Cloud):
    """A provider without capabilities."""

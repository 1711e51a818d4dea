# SPDX-License-Identifier: Apache-2.0
"""`OutOfTree.controllers` of `--config`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm.controllers.controller_registry import Unusable
from ccm.controllers.controller_spec import ControllerSpec
from ccm.options import config_file, controller_sections

HEAD = "apiVersion: cloudcontrollermanager.config.k8s.io/v1alpha1\nkind: CloudControllerManagerConfiguration\n"


class Options(msgspec.Struct, frozen=True, rename="camel"):
    patience: float = 300.0
    pool_names: list[str] = []
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise ValueError("patience must be 0 or more")


class Strict(msgspec.Struct, frozen=True):
    pool: str


def spec(name: str, section: type[Any] | None) -> ControllerSpec[Any]:
    return ControllerSpec(name, make=lambda context, options: None, section=section)  # type: ignore


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "pool-controller": spec("pool-controller", Options),
        "strict-controller": spec("strict-controller", Strict),
        "bare-controller": spec("bare-controller", None),
        "broken-controller": Unusable("it does not import"),
    }
    monkeypatch.setattr(controller_sections, "installed", lambda: sorted(found))
    monkeypatch.setattr(controller_sections, "look_up", found.__getitem__)


def read(sections: str) -> tuple[Any, list[str]]:
    values, problems = config_file.load(f"{HEAD}OutOfTree:\n  controllers:\n{sections}", "c.yaml")
    return values.get("sections"), problems


def test_a_section_becomes_the_controllers_own_type():
    found, problems = read("    pool-controller: {patience: 5, poolNames: [a, b]}\n    strict-controller: {pool: x}\n")
    assert problems == []
    assert found == {"pool-controller": Options(5.0, ["a", "b"]), "strict-controller": Strict("x")}


def test_an_empty_section_is_the_defaults():
    assert read("    pool-controller:\n") == ({"pool-controller": Options()}, [])


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (
            "    pool-controller:\n      patience: soon\n      poolnames: []\n",
            [
                "c.yaml, line 6: OutOfTree.controllers.pool-controller.patience: Expected `float`, got `str`",
                "c.yaml, line 7: OutOfTree.controllers.pool-controller.poolnames: unknown key; did you mean poolNames?",
            ],
        ),
        ("    strict-controller: {}\n", ["c.yaml, line 5: OutOfTree.controllers.strict-controller.pool: is missing"]),
        (
            "    pool-controller: {patience: -1}\n",
            ["c.yaml, line 5: OutOfTree.controllers.pool-controller: patience must be 0 or more"],
        ),
        (
            "    bare-controller: {x: 1}\n",
            ["c.yaml, line 5: OutOfTree.controllers.bare-controller: this controller has no options"],
        ),
        (
            "    pol-controller: {}\n",
            ["c.yaml, line 5: OutOfTree.controllers.pol-controller: unknown key; did you mean pool-controller?"],
        ),
        (
            "    pool-controller: [1]\n",
            ["c.yaml, line 5: OutOfTree.controllers.pool-controller: expected keys and values, not [1]"],
        ),
        ("    broken-controller: {x: 1}\n", []),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(text: str, problems: list[str]):
    _, told = read(text)
    assert told == problems


def test_configz_shows_them_so_that_they_can_be_read_again():
    found, _ = read("    pool-controller: {patience: 5, poolNames: [a]}\n")
    shown = controller_sections.dump(found)
    assert shown == {"pool-controller": {"patience": 5.0, "poolNames": ["a"], "owner": None}}
    assert read(f"    pool-controller: {msgspec.json.encode(shown['pool-controller']).decode()}\n") == (found, [])

# SPDX-License-Identifier: Apache-2.0
"""Behaviours, and the catalogue of all of them.

A behaviour has a sentence that says what the controller does, and a function that tries it with a `Trial`. The function
raises `Failed` if the controller does something else. For a behaviour during a disturbance, the function is a generator
with two `yield`, which separate its steps before, during and after the disturbance. Behaviours with the same
disturbance run side by side.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Generator
from dataclasses import dataclass

from .cloud import Fault
from .trial import Trial

Steps = Generator[None, None, None]
Function = Callable[[Trial], Steps | None]


class Level(enum.StrEnum):
    MUST = "must"  # upstream's contract
    SHOULD = "should"  # what users expect
    SPEED = "speed"  # a figure


class Disturbance(enum.StrEnum):
    """What happens after the first `yield` of a behaviour, and lasts until the second one, except for API_AWAY. A
    behaviour can name a fault of the cloud (`Fault`) instead."""

    NONE = "none"
    STOPPED = "stopped"  # SIGTERM; started again afterwards
    KILLED = "killed"  # SIGKILL; started again afterwards
    STANDBY = "standby"  # SIGKILL of the leader while a second process stands by
    API_AWAY = "api-away"  # the API server was away, and is back when the behaviour goes on
    CHANGES_REFUSED = "changes-refused"  # the cloud refuses changes of load balancers as invalid
    OTHER_PROJECT = "other-project"  # started again with the credentials of another project


When = Disturbance | Fault


@dataclass(frozen=True)
class Behaviour:
    """A behaviour. `id`: stable, for reports. `sentence`: what the controller does. `source`: a URL that shows why."""

    id: str
    level: Level
    sentence: str
    source: str
    when: When
    function: Function

    @property
    def is_generator(self) -> bool:
        return inspect.isgeneratorfunction(self.function)


CATALOGUE: dict[str, Behaviour] = {}


def behaviour(
    id: str, level: Level, sentence: str, source: str, when: When = Disturbance.NONE
) -> Callable[[Function], Function]:
    """Add a function to the catalogue. Raises ValueError for an invalid or repeated ID, for an invalid sentence or
    source, and for a function whose `yield` does not fit `when`."""
    if not re.fullmatch(r"[a-z]+(\.[a-z0-9-]+)+", id):
        raise ValueError(f"{id}: an ID must have a form such as node.addresses")
    if id in CATALOGUE:
        raise ValueError(f"{id}: this ID is there twice")
    if not (sentence[:1].isupper() and sentence.endswith(".")) or not source.startswith("https://"):
        raise ValueError(f"{id}: a behaviour has a sentence, and the address of its source")

    def add(function: Function) -> Function:
        made = Behaviour(id, level, sentence, source, when, function)
        if made.is_generator == (when is Disturbance.NONE):
            raise ValueError(f"{id}: a behaviour with a disturbance, and only that, yields before and after it")
        CATALOGUE[id] = made
        return function

    return add


def catalogue() -> dict[str, Behaviour]:
    """Return all behaviours by ID, in the order of the files."""
    from . import behaviours

    for module in sorted(pkgutil.iter_modules(behaviours.__path__), key=lambda module: module.name):
        importlib.import_module(f"{behaviours.__name__}.{module.name}")
    return dict(sorted(CATALOGUE.items(), key=lambda item: item[1].function.__module__))

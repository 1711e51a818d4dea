# SPDX-License-Identifier: Apache-2.0
"""Registers cases under the name `<group>.<requirement>`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ..kit import Case
from ..trial import Trial

Function = Callable[[Trial], Awaitable[None]]


@dataclass
class Collection:
    """The cases of one group. `needs`: the capability that they require, unless a case overrides it."""

    group: str
    needs: str = ""
    cases: list[Case] = field(default_factory=list)

    def case(self, *, needs: str | None = None, writes: bool = False) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            name = f"{self.group}.{function.__name__}"
            self.cases.append(Case(name, function, self.needs if needs is None else needs, writes))
            return function

        return register

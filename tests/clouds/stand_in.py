# SPDX-License-Identifier: Apache-2.0
"""What stand-ins of clouds over HTTP share: failures on request, and the calls that were made.

A stand-in is our own code. `test_form.py` beside it compares it with the vendor's description or clients. The stand-in
for libcloud needs no such test, because the library that reads its answers is not ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from aiohttp import web


@dataclass
class Fault:
    """A failure on request. `kind`: status, html, truncate, half (of a listing), hang, drop (the connection), or answer
    (200 with `answer`). `late`: after the call had its effect. `times`: how many times, -1 for always. `later`: only
    later pages of listings."""

    kind: str
    late: bool = field(default=False, kw_only=True)
    times: int = field(default=-1, kw_only=True)
    later: bool = field(default=False, kw_only=True)
    answer: Any = field(default=None, kw_only=True)

    def due(self, pattern: str, text: str, *, first_page: bool) -> bool:
        """Return whether the fault hits this call, and count the hit. `pattern`: a regular expression that must
        match the whole `text`; "" matches any."""
        if self.times == 0 or (self.later and first_page) or not re.fullmatch(pattern or ".*", text):
            return False
        self.times -= 1
        return True


@dataclass
class Exchange:
    """One call, recorded so that tests can check its form."""

    method: str
    path: str
    query: dict[str, str]
    status: int
    answer: Any
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


F = TypeVar("F", bound=Fault)
E = TypeVar("E")


class StandIn(Generic[F, E]):
    """What all stand-ins share: the faults in force, and the calls so far, which the subclass records in `exchanges`.

    `url`: its address.
    """

    def __init__(self) -> None:
        self.url = ""
        self.faults: list[F] = []
        self.exchanges: list[E] = []

    def calls(self, since: int = 0) -> list[str]:
        return [str(each) for each in self.exchanges[since:]]

    @contextlib.contextmanager
    def fault(self, fault: F) -> Iterator[None]:
        self.faults.append(fault)
        try:
            yield
        finally:
            self.faults.remove(fault)

    def fault_for(self, concerns: Callable[[F], bool]) -> F | None:
        return next((each for each in self.faults if concerns(each)), None)


async def instead(fault: Fault, status: int, request: web.Request) -> web.Response | None:
    """Return the answer that replaces the cloud's; None if the fault only changes that answer, or only has a status.

    The fault `hang` waits for an hour, and `drop` ends the connection; then they return None.
    """
    match fault.kind:
        case "html":
            return web.Response(status=status, text="<html>no</html>", content_type="text/html")
        case "answer":
            return web.json_response(fault.answer)
        case "hang":
            await asyncio.sleep(3600)
        case "drop":
            drop(request)
    return None


def drop(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.close()


def answered(content: Any, fault: Fault | None, **more: Any) -> web.Response:
    """Return `content` as JSON, cut in half if the fault says so. `more`: status, headers."""
    text = "" if content is None else json.dumps(content)
    if fault is not None and fault.kind == "truncate":
        text = text[: len(text) // 2]
    return web.Response(text=text, content_type="application/json", **more)

# SPDX-License-Identifier: Apache-2.0
"""The limits of a provider as keys of its configuration, with the same names and meanings in every provider. Pure.

The keys are `request_timeout`, `calls_per_second`, `burst`, `concurrency` and `page_size`, with the case and the
separators of the file's other keys. A key that the cloud's Go provider has keeps its spelling.
"""

from __future__ import annotations

from typing import Protocol

from ccm.cloud import Limits

from .setting_kinds import count, duration, key, number, whole_number


def request_timeout(seconds: float, help: str = "how long to wait for one answer") -> float:
    return key(seconds, help, duration, ours=True)


def calls_per_second(rate: float, help: str = "how many calls start in a second, on average") -> float:
    return key(rate, help, number, ours=True)


def burst(calls: int, help: str = "how many calls may start at once after a pause", *, former: str = "") -> int:
    return key(calls, help, count, ours=True, former=former)


def concurrency(calls: int, help: str = "how many calls run at a time") -> int:
    return key(calls, help, count, ours=True)


def page_size(rows: int, low: int, high: int, help: str = "instances in a page of a listing") -> int:
    return key(rows, help, whole_number(low, high), ours=True)


class LimitSettings(Protocol):
    @property
    def request_timeout(self) -> float: ...

    @property
    def calls_per_second(self) -> float: ...

    @property
    def burst(self) -> int: ...


def limits_of(
    settings: LimitSettings, *, requests: int, set_by: str, spare: float = 0.0, listing_lag: float = 0.0
) -> Limits:
    """Return the limits for these settings. `requests`: how many successive requests must fit into the deadline of a
    call. `set_by`: the key of `request_timeout`, for messages. `spare`: further seconds for a call."""
    deadline = requests * settings.request_timeout + spare
    return Limits(settings.calls_per_second, settings.burst, deadline=deadline, listing_lag=listing_lag, set_by=set_by)

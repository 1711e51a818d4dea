# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults, by the kind of read or write that they can hit. `api_server` and `cloud` apply them.

A *point* is one request. Its name does not depend on other requests: `api PATCH nodes/n1/status#2` is the second patch
of that Node's status, and with `@3` the second one in the third episode. A *fault* is a kind at a point.
"""

from __future__ import annotations

import random
from typing import NamedTuple

#: Seconds for which a process is stopped, as by SIGSTOP: none of its code runs while the world goes on, and then it
#: continues with its old state. 9 is less than the renew deadline, 12 less than the Lease, 17 just more, so that
#: another process may be about to lead. After 40, another process leads and has done its work.
STOPS = {"stop-9": 9.0, "stop-12": 12.0, "stop-17": 17.0, "stop-40": 40.0}

#: Faults that may come with any request: the process is killed or stopped, the next lists are wrong, or the cluster or
#: cloud behind the address fails, is throttled, lags or is another one.
ANYWHERE = (
    "kill",
    "stop-9",
    "stop-12",
    "stop-17",
    "stop-40",
    "api-down",
    "api-pause",
    "api-stale",
    "api-throttled",
    "relist-empty",
    "relist-shrunken",
    "other-cluster",
    "empty-cluster",
    "snapshot",
    "cloud-down",
    "cloud-stale",
    "cloud-throttled",
)

API_READ = ("error", "hang", "stale")
API_LIST = (*API_READ, "empty", "shrunken")
API_WRITE = ("error", "throttled", "conflict", "lost", "lost-silently", "late", "kill-before")
#: Faults of a watch when it is opened, and when it is about to send a change.
API_WATCH = ("error", "hang", "gone")
API_EVENT = ("cut", "gone", "gone-then-empty", "gone-then-shrunken", "skipped", "lag", "silent")

CLOUD_READ = ("error", "hang", "throttled", "stale", "truncated")
CLOUD_LIST = (*CLOUD_READ, "empty", "short", "shrunken")
CLOUD_WRITE = ("error", "hang", "throttled", "lost", "lost-silently", "kill-before")
CLOUD_CREATE = (*CLOUD_WRITE, "provision-error")

#: Seconds after which the run ends faults that do not end by themselves.
DURATION = {
    **STOPS,
    "api-down": 45.0,
    "api-pause": 20.0,
    "api-stale": 25.0,
    "api-throttled": 15.0,
    "other-cluster": 30.0,
    "empty-cluster": 30.0,
    "snapshot": 30.0,
    "cloud-down": 60.0,
    "cloud-stale": 30.0,
    "cloud-throttled": 30.0,
}
#: Seconds: the age of a stale answer, the delay of a late write, and the lag of a watch.
STALE, LATE, LAG = 20.0, 35.0, 20.0
#: Seconds after the end of a restored etcd during which writes may still be based on its content.
AFTERWARDS = 5.0
#: Seconds until readers of a wrong list must list again.
WRONG_FOR = 15.0


#: Seconds until a fault of one request is over. After that only its effects remain.
SHORT = {
    "late": LATE + 5.0,
    "lag": LAG,
    "hang": 30.0,
    "lost-silently": 30.0,
    "empty": WRONG_FOR,
    "shrunken": WRONG_FOR,
    "skipped": WRONG_FOR,
}


def lasts(kind: str) -> float:
    """Return how many seconds a fault lasts."""
    return DURATION.get(kind) or SHORT.get(kind, 5.0)


class Fault(NamedTuple):
    point: str
    kind: str

    def __str__(self) -> str:
        return f"{self.point}={self.kind}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        point, _, kind = text.strip().rpartition("=")
        return cls(point, kind)


def point(what: str, number: int, episode: int) -> str:
    """Return the name of a request from its kind, its number within the kind, and its episode: for example
    `api PATCH nodes/n1#2@3`."""
    return f"{what}#{number}@{episode}" if episode else f"{what}#{number}"


def episode_of(point: str) -> int:
    return int(point.partition("#")[2].partition("@")[2] or 0)


def kinds_at(point: str) -> tuple[str, ...]:
    """Return every kind of fault that can happen at a point."""
    side, what = point.partition("#")[0].split(" ", 1)
    verb = what.partition(" ")[0]
    if side.startswith("cloud"):
        group, _, operation = what.partition(".")
        if group == "tokens" or operation == "replace":
            own = CLOUD_READ
        elif operation == "list":
            own = CLOUD_LIST
        elif operation == "get":
            own = CLOUD_READ
        else:
            own = CLOUD_CREATE if group == "load_balancers" else CLOUD_WRITE
        return own + ANYWHERE
    own = {"GET": API_READ, "LIST": API_LIST, "WATCH": API_WATCH, "EVENT": API_EVENT}.get(verb, API_WRITE)
    return own + ANYWHERE


def kind_at(chance: random.Random, point: str) -> str:
    """Choose a kind of fault for a point: in 30 % of cases one of ANYWHERE, which has most of the kinds."""
    kinds = [each for each in kinds_at(point) if each not in ANYWHERE]
    return chance.choice(ANYWHERE if chance.random() < 0.3 else kinds)


class Surprises:
    """Unplanned faults: none, one or two in an episode, at points that the run reaches, so each of them hits.

    They have a random generator of their own, so that planned faults in the same run do not change them.
    """

    #: The probability of a fault at a request whose name is new in this episode, and at one whose name came before.
    NEW, AGAIN = 0.12, 0.03

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"surprises {seed}")
        self.faults: list[Fault] = []
        self.begin()

    def begin(self) -> None:
        """Begin an episode: choose whether it gets at most one fault or two."""
        self._left, self._names = self._chance.choice((1, 1, 2)), set[str]()

    def at(self, point: str) -> str:
        """Return the kind of fault at a point that the run reaches, "" for none."""
        name = point.partition("#")[0]
        likely = self.AGAIN if name in self._names else self.NEW
        self._names.add(name)
        if not self._left or self._chance.random() >= likely:
            return ""
        self._left -= 1
        self.faults.append(Fault(point, kind_at(self._chance, point)))
        return self.faults[-1].kind

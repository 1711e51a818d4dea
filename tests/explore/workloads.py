# SPDX-License-Identifier: Apache-2.0
"""Workloads: sequences of what happens to a cluster. Times are seconds after the start; verbs are methods of
`People`."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: The flags of a process with two clouds.
TWO = (
    "--cloud-provider=sim,static",
    "--cloud-config=sim=cloud.conf,static=static.conf",
    "--default-load-balancer-provider=sim",
    "--load-balancer-class=metal=static",
)


class Step(NamedTuple):
    """A step. `at`: seconds after its episode began. An episode begins when everything is right after the one
    before."""

    at: float
    verb: str
    arguments: tuple[Any, ...] = ()
    episode: int = 0

    def __str__(self) -> str:
        return " ".join([self.verb, *map(str, self.arguments)])


@dataclass(frozen=True)
class Workload:
    """A workload. `before`: what exists before the first process starts. `patience`: seconds that the run may take
    longer. `arguments`: flags of the processes besides the usual ones. `seldom`: one seed in `seldom` runs the
    workload; with 1, seeds choose it by chance."""

    name: str
    before: tuple[tuple[Any, ...], ...]
    steps: tuple[Step, ...] = field(default=())
    processes: int = 1
    patience: float = 0.0
    arguments: tuple[str, ...] = ()
    seldom: int = 1

    @property
    def has_two_clouds(self) -> bool:
        return self.arguments[: len(TWO)] == TWO


def _nodes(number: int) -> tuple[tuple[Any, ...], ...]:
    """Return steps for Nodes that registered long ago, and wait for their initialisation as after a migration."""
    return tuple(("join_old", f"n{each}", each) for each in range(1, number + 1))


def _settled(number: int) -> tuple[tuple[Any, ...], ...]:
    """Return steps for Nodes as a former leader left them."""
    return tuple(("settled", f"n{each}", each) for each in range(1, number + 1))


def _steps(*rows: tuple[Any, ...]) -> tuple[Step, ...]:
    return tuple(Step(at, verb, tuple(arguments)) for at, verb, *arguments in rows)


#: The flag with which Nodes are fenced if their machines are shut down or gone.
FENCED = ("--fence-dead-nodes",)
SERVICES = Workload(
    "services",
    (*_nodes(3), ("create_service", "web"), ("create_service", "api", 81)),
    _steps(
        (10, "create-service", "new", 82),
        (14, "change-port", "web", 83),
        (16, "delete-service", "api"),
        (24, "change-type", "web", "ClusterIP"),
        (32, "change-type", "web", "LoadBalancer"),
        (36, "create-service", "api", 84),
    ),
)
NODES = Workload(
    "nodes",
    (*_nodes(4), ("create_service", "web")),
    _steps(
        (10, "join", "n5", 5),
        (16, "lose", "n2"),
        (30, "drain", "n3"),
        (35, "power", "n1", "stopped"),
        (50, "power", "n1", "running"),
    ),
)
REPLACE = Workload(
    "replace",
    (*_settled(4), ("create_service", "web")),
    _steps((10, "replace", "n2", 12), (15, "change-port", "web", 85)),
)
LEADERS = Workload(
    "leaders",
    (*_settled(3), ("create_service", "web"), ("create_service", "api", 81)),
    _steps(
        (10, "create-service", "new", 82),
        (10.05, "kill-leader"),
        (12, "delete-service", "api"),
        (35, "change-port", "web", 83),
        (36, "stop-leader"),
        (37, "join", "n4", 4),
    ),
    processes=2,
)
SCALE_DOWN = Workload(
    "scale-down",
    (*_settled(8), ("create_service", "web")),
    _steps((10, "lose", "n5"), (10.5, "lose", "n6"), (11, "lose", "n7")),
    patience=500.0,
    seldom=9,
)
SCALE_DOWN_30 = Workload(
    "scale-down-30",
    (*_settled(30), ("create_service", "web")),
    _steps(*((10 + number / 4, "lose", f"n{number}") for number in range(11, 21))),
    patience=900.0,
    seldom=200,
)
ONE_SERVICE = Workload(
    "one-service",
    (*_settled(2),),
    _steps((2, "create-service", "web"), (8, "change-port", "web", 81), (10, "delete-service", "web")),
)
ONE_NODE = Workload("one-node", (*_settled(1),), _steps((2, "join", "n2", 2), (9, "drain", "n2")))
ONE_REPLACED = Workload("one-replaced", (*_settled(2), ("create_service", "web")), _steps((4, "replace", "n2", 12)))
VOLUMES = Workload(
    "volumes",
    (*_settled(1), ("create_volume", "data"), ("create_volume", "logs")),
    _steps((4, "create-volume", "late"), (5, "delete-volume", "logs"), (7, "create-volume", "logs")),
    arguments=("--controllers=*,persistentvolume-label-controller",),
)
RELOAD = Workload(
    "reload",
    (*_settled(2), ("create_service", "web")),
    _steps(
        (4, "write-conf", "no such key: 1"),
        (6, "change-port", "web", 81),
        (9, "new-token", "t2"),
        (9.5, "write-conf", "token: t2"),
        (15, "revoke-token", "t"),
        (15.2, "create-service", "new", 82),
        (17, "change-port", "web", 83),
    ),
)
TWO_LEADERS = Workload(
    "two-leaders",
    (*_settled(1), ("create_service", "web")),
    _steps((4, "change-port", "web", 81), (4.05, "kill-leader"), (22, "delete-service", "web"), (22.02, "stop-leader")),
    processes=2,
)
RIVALS = Workload(
    "rivals",
    (*_settled(2), ("create_service", "web")),
    _steps(
        (3, "change-port", "web", 81),
        (6, "create-service", "new", 82),
        (12, "join", "n3", 3),
        (20, "change-port", "web", 83),
        (26, "drain", "n2"),
        (33, "delete-service", "web"),
        (40, "change-type", "new", "ClusterIP"),
    ),
    processes=2,
)
MIGRATION = Workload(
    "migration",
    (*_settled(1), ("create_service", "web"), ("others_lead",)),
    _steps((6, "change-port", "web", 81), (7, "join", "n2", 2), (12, "others_end"), (30, "change-port", "web", 82)),
    arguments=("--enable-leader-migration",),
)
REFUSED = Workload(
    "refused",
    (*_settled(2), ("create_service", "web"), ("create_service", "api", 81)),
    _steps(
        (3, "refuse", "web", "invalid"),
        (3, "change-port", "web", 83),
        (4, "spoil", "api"),
        (6, "join", "n3", 3),
        (8, "lose", "n1"),
        (20, "drain", "n1"),
    ),
)
REFUSED_LEADERS = Workload(
    "refused-leaders",
    (*_settled(2), ("create_service", "web"), ("create_service", "api", 81)),
    _steps(
        (3, "refuse", "web", "failure"),
        (3, "change-port", "web", 83),
        (4, "spoil", "api"),
        (8, "stop-leader"),
        (14, "drain", "n1"),
        (15, "join", "n3", 3),
    ),
    processes=2,
)
TENANTS = Workload(
    "tenants",
    (*_settled(1), *(("create_service", f"noisy/bad{n}", 80 + n) for n in range(6))),
    _steps(
        *((0, "refuse", f"noisy/bad{n}", "failure") for n in range(6)),
        (50, "create-service", "new", 90),
        (65, "expect-served", "new"),
    ),
    seldom=10,
)
SLOW = Workload(
    "slow",
    (*_settled(1),),
    _steps(
        *((4, "create-service", f"noisy/s{n}", 80 + n) for n in range(20)),
        *((4, "slow-down", f"noisy/s{n}", 18.0) for n in range(20)),
        (6, "join", "n2", 2),
        (14, "expect-initialised", "n2"),
    ),
    # A read and a write take longer than the 30 s of a call, so each call of that namespace ends without an answer. The
    # runtime makes one at a time: 30 s and a pause of 37.5 s. Each of the twenty Services may need one call.
    patience=20 * 67.5 - 420.0,
    seldom=60,
)
BLIND = Workload(
    "blind",
    (*_settled(1), ("create_service", "web"), ("create_service", "api", 81)),
    _steps(
        (5, "break-down", "instances"),
        (5, "kill-leader"),
        (24, "delete-service", "web"),
        (25, "create-service", "new", 82),
        (60, "expect-gone", "web"),
        (110, "change-port", "api", 83),
    ),
    seldom=11,
)
DEAD_CONNECTIONS = Workload(
    "dead-connections",
    (*_settled(2), ("create_service", "web")),
    _steps(
        (8, "lose-connections", 4),
        (8.5, "change-port", "web", 81),
        (40, "lose-connections", 30),
        (40.5, "join", "n3", 3),
        (75, "lose-connections", 30),
        (82, "lose-connections", 30),
        (82.5, "create-service", "new", 82),
    ),
    processes=2,
    seldom=13,
)
FENCING = Workload(
    "fencing",
    (*_settled(6), ("create_service", "web")),
    _steps(
        (4, "power", "n1", "stopped"),
        (5, "ready", "n5", "Unknown"),
        (30, "switch", "n1", "running"),
        (34, "replace", "n2", 12),
        (42, "ready", "n1", "True"),
        (60, "lose", "n3"),
        (75, "ready", "n5", "True"),
    ),
    arguments=FENCED,
)
RELABELLED = Workload(
    "relabelled",
    (*_settled(2),),
    _steps(
        (3, "tag", "n1", "4"),
        (4, "tag", "n2", "4"),
        (20, "label", "n2", "mine"),
        (24, "tag", "n1", "5"),
        (25, "tag", "n2", "5"),
        (26, "join", "n3", 3),
        (42, "tag", "n1"),
        (43, "tag", "n2"),
    ),
    arguments=("--refresh-node-labels=always", "--node-status-update-frequency=10s"),
)
AUTOSCALER = "ToBeDeletedByClusterAutoscaler"
DRAINS = Workload(
    "drains",
    (*_settled(3), ("create_service", "web")),
    _steps(
        (4, "taint", "n1", AUTOSCALER),
        (10, "taint", "n2", AUTOSCALER),
        (11, "taint", "n3", AUTOSCALER),
        (20, "taint", "n1"),
        (26, "drain", "n2"),
        (27, "join", "n4", 4),
    ),
)
#: Each cloud has two Nodes and a Service; those whose names begin with "m" are the second cloud's.
_OF_BOTH = (
    *_settled(2),
    ("settled", "m1", 101),
    ("settled", "m2", 102),
    ("create_service", "web"),
    ("create_service", "mweb", 81),
)
TWO_CLOUDS = Workload(
    "two-clouds",
    _OF_BOTH,
    _steps(
        (4, "join", "n3", 3),
        (5, "join", "m3", 103),
        (6, "change-port", "web", 83),
        (8, "lose", "m2"),
        (12, "change-port", "mweb", 84),
        (16, "create-service", "mapi", 85),
        (20, "drain", "n2"),
        (24, "delete-service", "mweb"),
        (26, "change-type", "web", "ClusterIP"),
        (30, "power", "m1", "stopped"),
        (45, "power", "m1", "running"),
    ),
    arguments=TWO,
    seldom=7,
)
def _outage(name: str, down: str, silent: str, well: str, seldom: int) -> Workload:
    """Return a workload in which one of two clouds does not answer for 30 minutes, while a kubelet of one of its Nodes
    is silent. `silent`, `well`: the first letters of the Nodes of this cloud and of the other one."""
    first, service = (0, "") if well == "n" else (100, "m")
    return Workload(
        name,
        _OF_BOTH,
        _steps(
            (10, "take-down", down, 1800.0),
            (11, "ready", f"{silent}1", "Unknown"),
            (20, "join", f"{well}3", first + 3),
            (28, "expect-initialised", f"{well}3"),
            (400, "lose", f"{well}2"),
            (900, "create-service", f"{service}api", 82),
            (915, "expect-served", f"{service}api"),
            (1000, "join", f"{well}4", first + 4),
            (1008, "expect-initialised", f"{well}4"),
            (1830, "ready", f"{silent}1", "True"),
        ),
        arguments=TWO,
        patience=600.0,
        seldom=seldom,
    )


OUTAGE_FIRST = _outage("outage-of-first", "sim", "n", "m", 70)
OUTAGE_SECOND = _outage("outage-of-second", "static", "m", "n", 71)
WORKLOADS = {
    each.name: each
    for each in (
        *(SERVICES, NODES, REPLACE, LEADERS, SCALE_DOWN, SCALE_DOWN_30),
        *(ONE_SERVICE, ONE_NODE, ONE_REPLACED, VOLUMES, RELOAD, TWO_LEADERS, RIVALS, MIGRATION),
        *(REFUSED, REFUSED_LEADERS, TENANTS, SLOW, BLIND, DEAD_CONNECTIONS, FENCING, RELABELLED, DRAINS),
        *(TWO_CLOUDS, OUTAGE_FIRST, OUTAGE_SECOND),
    )
}


def churn(seed: int) -> Workload:
    """Return the workload churn-SEED, whose random changes the seed decides."""
    chance = random.Random(f"churn {seed}")
    at, steps, number = 10.0, [], 10
    services = ["web", "api", "db"]
    for _ in range(chance.randint(2, 6)):
        at += chance.choice([0.01, 0.05, 0.3, 1.5, 4.0, 8.0])
        name = chance.choice(services)
        match chance.randrange(9):
            case 0 | 1:
                steps.append(Step(at, "create-service", (name, chance.randint(80, 99))))
            case 2:
                steps.append(Step(at, "delete-service", (name,)))
            case 3:
                steps.append(Step(at, "change-port", (name, chance.randint(80, 99))))
            case 4:
                steps.append(Step(at, "change-type", (name, chance.choice(["ClusterIP", "LoadBalancer"]))))
            case 5:
                number += 1
                steps.append(Step(at, "join", (f"n{number}", number)))
            case 6:
                steps.append(Step(at, "drain", (f"n{chance.randint(1, 3)}",)))
            case 7:
                steps.append(Step(at, "lose", ("n2",)))
            case 8:
                steps.append(Step(at, chance.choice(["kill-leader", "stop-leader"])))
    before = (*_settled(4), ("create_service", "web"), ("create_service", "api", 81))
    return Workload(f"churn-{seed}", before, tuple(steps))


def mistakes(seed: int) -> Workload:
    """Return the workload mistakes-SEED: like `churn`, with changes that the cloud or the runtime refuses."""
    chance, at, number, steps = random.Random(f"mistakes {seed}"), 4.0, 10, []
    for _ in range(chance.randint(3, 6)):
        at += chance.choice([0.01, 0.3, 1.5, 4.0, 8.0])
        name = chance.choice(["web", "api"])
        match chance.randrange(7):
            case 0 | 1:
                how = chance.choice(["invalid", "conflict", "quota", "failure"])
                steps += [Step(at, "refuse", (name, how)), Step(at, "change-port", (name, chance.randint(80, 99)))]
            case 2:
                steps.append(Step(at, "spoil", (name,)))
            case 3 | 4:
                number += 1
                steps.append(Step(at, "join", (f"n{number}", number)))
            case 5:
                steps.append(Step(at, "drain", (f"n{chance.randint(1, 2)}",)))
            case 6:
                steps.append(Step(at, chance.choice(["kill-leader", "stop-leader"])))
    before = (*_settled(3), ("create_service", "web"), ("create_service", "api", 81))
    return Workload(f"mistakes-{seed}", before, tuple(steps))


#: The number of episodes of a chain. An episode starts only when everything is right after the previous one.
EPISODES = 24


def chain(seed: int) -> Workload:
    """Return the workload chain-SEED: episodes of one cluster. The first has no changes, each later one has one or
    two."""
    chance = random.Random(f"chain {seed}")
    number = chance.randint(2, 4)
    nodes = chance.choice([_settled, _settled, _nodes])(number)
    story = _Story(chance, number)
    for episode in range(1, EPISODES + 1):
        at = 0.0
        for _ in range(story.chance.randint(1, 2)):
            at += story.chance.choice([0.01, 0.3, 1.5, 4.0])
            for verb, *arguments in story.change():
                story.steps.append(Step(at, verb, tuple(arguments), episode))
                at += 0.5
    before = (*nodes, ("create_service", "web"), ("create_service", "api", chance.randint(81, 99)))
    processes = 2 if chance.random() < 0.25 else 1
    return Workload(f"chain-{seed}", before, tuple(story.steps), processes)


class _Story:
    """The state of a chain, so that each generated change has an effect, and the cluster neither grows nor vanishes.

    Machines of new Nodes are never lost, because the runtime keeps a new Node for five minutes.
    """

    def __init__(self, chance: random.Random, nodes: int) -> None:
        """`nodes`: the number of Nodes at the start."""
        self.chance = chance
        self.steps: list[Step] = []
        #: Services, and those whose type is ClusterIP now.
        self._services, self._internal = ["web", "api"], set[str]()
        #: Nodes that joined; the number of the last Node; the old Nodes that may be lost.
        self._joined: list[str] = []
        self._number, self._old = 10, [f"n{each}" for each in range(2, nodes + 1)]

    def change(self) -> list[tuple[Any, ...]]:
        chance = self.chance
        match chance.randrange(12):
            case 0 | 1:
                return [self._create_or_delete()]
            case 2 | 3:
                return [("change-port", chance.choice(self._services), chance.randint(80, 99))]
            case 4:
                return [self._change_type()]
            case 5 | 6 | 7:
                return [self._join_or_drain()]
            case 8 if self._old:
                return [("lose", self._old.pop(0))]
            case 8 | 9:
                return [(chance.choice(["kill-leader", "stop-leader"]),)]
            case 10:
                return [("spoil", chance.choice(self._services)), self._join_or_drain()]
            case _:
                name, how = chance.choice(self._services), chance.choice(["invalid", "conflict", "quota", "failure"])
                change = ("change-port", name, chance.randint(80, 99))
                return [("refuse", name, how), change, self._join_or_drain()]

    def _create_or_delete(self) -> tuple[Any, ...]:
        name = self.chance.choice(["api", "db"])
        if name in self._services:
            self._services.remove(name)
            self._internal.discard(name)
            return ("delete-service", name)
        self._services.append(name)
        return ("create-service", name, self.chance.randint(80, 99))

    def _change_type(self) -> tuple[Any, ...]:
        name = self.chance.choice(self._services)
        self._internal ^= {name}
        return ("change-type", name, "ClusterIP" if name in self._internal else "LoadBalancer")

    def _join_or_drain(self) -> tuple[Any, ...]:
        if self._joined and (len(self._joined) > 1 or self.chance.random() < 0.5):
            return ("drain", self._joined.pop(0))
        self._number += 1
        self._joined.append(f"n{self._number}")
        return ("join", self._joined[-1], self._number)


def fencing(seed: int) -> Workload:
    """Return the workload fencing-SEED: machines are shut down, started, replaced and lost, and kubelets fall silent on
    machines that run."""
    chance, at, steps = random.Random(f"fencing {seed}"), 3.0, []
    for _ in range(chance.randint(2, 5)):
        at += chance.choice([0.05, 1.5, 6.0, 15.0, 40.0])
        name = chance.choice(["n1", "n2", "n3"])
        off, boot = chance.choice([1.0, 8.0, 20.0, 70.0]), chance.choice([0.1, 5.0, 30.0])
        match chance.randrange(8):
            case 0 | 1 | 2:
                steps += [Step(at, "power", (name, "stopped")), Step(at + off, "switch", (name, "running"))]
                steps.append(Step(at + off + boot, "ready", (name, "True")))
            case 3:
                steps.append(Step(at, "power", (name, "stopped")))
            case 4 | 5:
                silent = chance.choice(["n5", "n6"])
                steps += [Step(at, "ready", (silent, "Unknown")), Step(at + off, "ready", (silent, "True"))]
            case 6:
                steps.append(Step(at, chance.choice(["lose", "drain"]), ("n4",)))
            case 7:
                steps.append(Step(at, chance.choice(["kill-leader", "stop-leader"])))
    if chance.random() < 0.3:
        steps.append(Step(at, "replace", ("n7", 17)))
    steps.sort(key=lambda step: step.at)
    return Workload(f"fencing-{seed}", (*_settled(7), ("create_service", "web")), tuple(steps), arguments=FENCED)


def clouds(seed: int) -> Workload:
    """Return the workload clouds-SEED: random changes in two clouds."""
    chance, at, number, steps = random.Random(f"clouds {seed}"), 4.0, 10, []
    for _ in range(chance.randint(3, 7)):
        at += chance.choice([0.01, 0.3, 1.5, 4.0, 8.0])
        which = chance.choice(["n", "m"])
        service, machine = chance.choice(["web", "api"] if which == "n" else ["mweb", "mapi"]), f"{which}2"
        match chance.randrange(8):
            case 0 | 1:
                steps.append(Step(at, "create-service", (service, chance.randint(80, 99))))
            case 2:
                steps.append(Step(at, "delete-service", (service,)))
            case 3:
                steps.append(Step(at, "change-port", (service, chance.randint(80, 99))))
            case 4 | 5:
                number += 1
                steps.append(Step(at, "join", (f"{which}{number}", number + (100 if which == "m" else 0))))
            case 6:
                steps.append(Step(at, chance.choice(["lose", "drain"]), (machine,)))
            case 7:
                steps.append(Step(at, chance.choice(["kill-leader", "stop-leader"])))
    return Workload(f"clouds-{seed}", _OF_BOTH, tuple(steps), arguments=TWO)


def namesakes(seed: int) -> Workload:
    """Return the workload namesakes-SEED: that of `clouds`, while machines of one cloud have the names of the
    other one's, or one cloud lists the machines of the other one. An administrator declared which cloud each Node has.
    """
    chance, made = random.Random(f"namesakes {seed}"), clouds(seed)
    steps, end = list(made.steps), made.steps[-1].at
    joined = [step.arguments for step in made.steps if step.verb == "join"]
    named = [("n1", 1), ("n2", 2), ("m1", 101), ("m2", 102), *joined]
    # A run has namesakes or overlaps, not both: a Node would get the providerID of its namesake in the other project.
    are_named_alike = chance.random() < 0.6
    for _ in range(chance.randint(1, 4)):
        at, lasts = chance.uniform(0.5, end + 5.0), chance.choice([0.5, 6.0, 12.0, 30.0, 90.0])
        if are_named_alike:
            steps.append(Step(at, "namesake", (*chance.choice(named), lasts)))
        else:
            steps.append(Step(at, "overlap", (chance.choice(["sim", "static"]), lasts)))
    steps.sort(key=lambda step: step.at)
    declared = (*TWO, "--cloud-nodes=sim=n*,static=m*")
    return dataclasses.replace(
        made, name=f"namesakes-{seed}", steps=tuple(steps), arguments=declared, patience=made.patience + 100.0
    )


def deaths(seed: int) -> Workload:
    """Return the workload deaths-SEED: that of `fencing`, while the cloud fails, or shows another project whose
    machines have the same names and are shut down, run, or are missing."""
    chance, made = random.Random(f"deaths {seed}"), fencing(seed)
    end = made.steps[-1].at if made.steps else 10.0
    known = {"replace": "replace-known"}
    steps = [step._replace(verb=known.get(step.verb, step.verb)) for step in made.steps]
    for _ in range(chance.randint(1, 3)):
        at, lasts = chance.uniform(1.0, end + 10.0), chance.choice([0.5, 6.0, 12.0, 30.0, 90.0])
        if chance.random() < 0.25:
            steps.append(Step(at, "cloud-fails", (lasts,)))
        else:
            state = chance.choice(["stopped", "stopped", "running"])
            steps.append(Step(at, "other-project", (lasts, state, chance.choice([0, 3, 7]))))
    steps.sort(key=lambda step: step.at)
    return dataclasses.replace(made, name=f"deaths-{seed}", steps=tuple(steps), patience=100.0)


def find(name: str) -> Workload:
    """Return a workload by its name. Raises KeyError for an unknown one."""
    kind, _, number = name.rpartition("-")
    if kind in GENERATED and number.isdigit():
        return GENERATED[kind](int(number))
    return WORKLOADS[name]


GENERATED: dict[str, Callable[[int], Workload]] = {
    "churn": churn,
    "mistakes": mistakes,
    "chain": chain,
    "fencing": fencing,
    "clouds": clouds,
    "namesakes": namesakes,
    "deaths": deaths,
}

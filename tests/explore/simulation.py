# SPDX-License-Identifier: Apache-2.0
"""One run: a cluster, a cloud, processes of the runtime, a workload, and faults at chosen points of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccm.engine.queue import QUEUES
from tests.kube_store import Change, Store

from . import faults
from .api_server import ApiServer
from .checks import Checks, Violation
from .cloud import CLOUD_CONF, FIRST, SECOND, InProcessCloud
from .faults import Fault, Surprises
from .people import People
from .process import Process, in_process
from .virtual_time import EPOCH, Stuck, VirtualLoop, virtual_time, wall_clock
from .workloads import Step, Workload

#: The run is over when everything has been right, and nothing was written, for this many seconds.
QUIET = 12.0
#: Like QUIET, for an episode. Later effects appear in the next episode, where writes and leftovers are judged, too.
PAUSE = 3.0
#: Without faults, backends follow within this many seconds, which includes the end of a burst, a back-off and a change
#: of the leader.
FOLLOW = 60.0
#: After the last step and the last fault, everything must be right within this many seconds.
BOUND = 420.0
LOOK = 2.0
#: No run takes longer than this: processes that keep crashing would go on forever.
LONGEST = 3600.0


@dataclass
class Outcome:
    """The result of a run. `points`: the requests of the run, in order. `trace`: everything that happened, and when."""

    violations: list[Violation]
    points: list[str]
    trace: list[tuple[Any, ...]]
    seconds: float
    requests: int
    story: list[str] = field(default_factory=list)
    #: The number of episodes that began, including the start.
    episodes: int = 1
    #: Faults that were not planned.
    surprises: tuple[Fault, ...] = ()

    @property
    def digest(self) -> str:
        """Return a digest of the run: equal runs have equal digests."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]

    @property
    def invariants(self) -> set[str]:
        return {each.invariant for each in self.violations}


class Simulation:
    def __init__(
        self,
        loop: VirtualLoop,
        workload: Workload,
        planned: Sequence[Fault],
        seed: int,
        steps: Iterable[int] | None = None,
        surprises: Surprises | None = None,
    ) -> None:
        self.loop = loop
        self._workload, self._seed = workload, seed
        self.arguments, self.cloud_conf = workload.arguments, CLOUD_CONF
        self._planned, self._surprises = {fault.point: fault.kind for fault in planned}, surprises
        self._steps = [step for number, step in enumerate(workload.steps) if steps is None or number in set(steps)]
        self._random = random.Random(seed)
        self._counts: Counter[str] = Counter()
        self._episode, self._episodes, self._begun, self._quiet = 0, 1, loop.now, QUIET
        self._trace: list[tuple[Any, ...]] = []
        self.points: list[str] = []
        self.story: list[str] = []
        self.processes: list[Process] = []
        self._all_processes: list[Process] = []  # those that have ended, too
        self._started = 0
        self._last_write = self._last_trouble = loop.now
        self._ending = False

        def stamp() -> str:
            return wall_clock(loop.now).strftime("%Y-%m-%dT%H:%M:%SZ")

        self.store = Store(loop.time, stamp)
        self.store.create("namespaces", {"metadata": {"name": "kube-system"}})
        self.store.create("services", _KUBERNETES)
        self.cloud = InProcessCloud(self)
        #: Provider -> its cloud. Most workloads have one cloud.
        self.clouds = {FIRST: self.cloud}
        if workload.has_two_clouds:
            self.clouds[SECOND] = InProcessCloud(self, SECOND)
        self.people = People(self)
        self.checks = Checks(self)
        self.store.listeners.append(self._on_change)
        self.api = ApiServer(self, self.store)
        for verb, *arguments in workload.before:
            self.people.do(verb, *arguments)
        self.checks.begin()
        self.store.history.clear()  # old objects: a stale answer shows them, too
        self._early = self.store.snapshot()

    @property
    def is_undisturbed(self) -> bool:
        """Return whether the run has no faults."""
        return not self._planned and self._surprises is None

    def cloud_of(self, key: str) -> InProcessCloud:
        """Return the cloud of a Node or Service. With two clouds, names that begin with "m" are the second one's."""
        return self.clouds[SECOND if SECOND in self.clouds and key.rpartition("/")[2].startswith("m") else FIRST]

    def has_ended(self, identity: str) -> bool:
        """Return whether this is the identity of a process that has ended."""
        named = [each for each in self._all_processes if each.elector and each.elector.identity == identity]
        return bool(named) and all(each.has_ended for each in named)

    # What the servers ask

    def latency(self) -> float:
        return self._random.uniform(0.002, 0.02)

    def reach(self, what: str, process: Process) -> str:
        """Count a request of this kind, and return the kind of fault that hits this request, "" for none."""
        if self._ending:
            return ""
        self._counts[what] += 1
        point = faults.point(what, self._counts[what], self._episode)
        self.points.append(point)
        self._trace.append((self.loop.now, process.name, point))
        if _is_write(what):
            self._last_write = self.loop.now
        kind = self._planned.get(point, "")
        if not kind and self._surprises is not None:
            kind = self._surprises.at(point)
        if not kind:
            return ""
        self.note(f"FAULT {point}={kind}")
        self._last_trouble = max(self._last_trouble, self.loop.now + faults.lasts(kind))
        return self._happen(kind, point, process)

    def _strike(self, kind: str, point: str) -> None:
        """Let a fault happen now, without a request."""
        if self._ending:
            return
        self.note(f"FAULT {point}={kind}")
        self._last_trouble = max(self._last_trouble, self.loop.now + faults.lasts(kind))
        if kind == "kill":
            self.people.kill_leader()
        else:
            self._happen(kind, point, next((each for each in self.processes if each.leads), None))

    def _happen(self, kind: str, point: str, process: Process | None = None) -> str:
        """Apply a fault of a whole server or process. Return the kind of fault for the request itself, "" for none."""
        seconds = faults.DURATION.get(kind, 0.0)
        cloud = self.clouds[SECOND if point.startswith(f"cloud@{SECOND}") else FIRST]
        match kind:
            case "api-down":
                self.api.go_down(seconds)
            case "api-pause":
                self.api.pause(seconds)
            case "other-cluster":
                self.api.become(self._other_cluster(), seconds)
            case "empty-cluster":
                empty = Store(self.store.clock, self.store.stamp, name="empty", version=5)
                empty.create("namespaces", {"metadata": {"name": "kube-system"}})
                self.api.become(empty, seconds)
            case "snapshot":
                restored = self._early.snapshot()
                # The restored etcd never uses a resourceVersion twice, which etcdutl's --bump-revision ensures.
                restored.version = restored.compacted = 500_000 * (1 + self._episode)
                self.api.restore(restored, seconds)
            case "api-stale":
                self.api.fall_behind(seconds)
            case "api-throttled":
                self.api.throttled_until = self.loop.now + seconds
            case "cloud-down":
                cloud.go_down(seconds)
            case "cloud-stale":
                cloud.stale_until = self.loop.now + seconds
            case "cloud-throttled":
                cloud.throttled_until = self.loop.now + seconds
            case "relist-empty" | "relist-shrunken":
                self.api.make_list_again(kind.removeprefix("relist-"))
            case "kill" if process is not None and " EVENT " in point:
                process.kill()
            case _ if kind in faults.STOPS:
                if process is not None:
                    process.pause(seconds)
            case _:
                return kind
        return ""

    def _other_cluster(self) -> Store:
        other = Store(self.store.clock, self.store.stamp, name="other", version=7000)
        other.create("namespaces", {"metadata": {"name": "kube-system"}})
        other.create("services", _KUBERNETES)
        other.compact()  # watches cannot continue from our cluster's resourceVersions
        return other

    def _on_change(self, change: Change) -> None:
        self.checks.follow(change)
        self._trace.append((change.at, change.kind, change.resource, change.key))

    def note(self, text: str) -> None:
        self.story.append(f"{self.loop.now - EPOCH:8.3f} s  {text}")

    # Processes

    def start_process(self) -> None:
        if not self._ending:
            self._started += 1
            self.processes.append(Process(self, self._started))
            self._all_processes.append(self.processes[-1])

    def on_end(self, process: Process) -> None:
        """Restart a process that has ended, as the kubelet does."""
        if process in self.processes:
            self.processes.remove(process)
            self._last_trouble = max(self._last_trouble, self.loop.now)
            self.loop.call_later(3.0, self.start_process)

    # The run

    async def run(self) -> Outcome:
        begun = self.loop.now
        for point, kind in self._planned.items():
            if point.startswith("time "):
                self.loop.call_later(float(point[5:]), self._strike, kind, point)
        for _ in range(self._workload.processes):
            self.start_process()
        episodes = self._by_episode()
        for episode, steps in episodes.items():
            self._quiet = QUIET if episode == max(episodes) else PAUSE
            if episode:
                self._begin(episode)
            await self._live_through(steps)
            if self.checks.found:
                break
        await self._end()
        return self.outcome(self.loop.now - begun)

    def _by_episode(self) -> dict[int, list[Step]]:
        found: dict[int, list[Step]] = {0: []}
        for step in self._steps:
            found.setdefault(step.episode, []).append(step)
        return found

    def _begin(self, episode: int) -> None:
        """Begin an episode when everything is right after the one before. Requests are counted from 1 again."""
        self._episode, self._begun = episode, self.loop.now
        self._episodes += 1
        self.note(f"episode {episode}")
        self._counts.clear()
        if self._surprises is not None:
            self._surprises.begin()
        self._early = self.store.snapshot()

    async def _live_through(self, steps: Iterable[Step]) -> None:
        begun = self.loop.now
        for step in steps:
            await asyncio.sleep(max(0.0, begun + step.at - self.loop.now))
            if self.checks.found:
                break
            self.note(str(step))
            self.people.do(step.verb, *step.arguments)
            self._last_trouble = max(self._last_trouble, self.loop.now)
        await self._bear_mistakes()
        await self._come_to_rest()

    def outcome(self, seconds: float) -> Outcome:
        surprises = tuple(self._surprises.faults) if self._surprises is not None else ()
        counts = len(self.points), self.story, self._episodes
        return Outcome(self.checks.found, self.points, self._trace, seconds, *counts, surprises)

    def close(self, run: asyncio.Task[Any]) -> None:
        """Cancel what is left: tasks of processes and, if the run is stuck, the run itself.

        Release the run's objects, so that the garbage collector need not search for them.
        """
        left = {task for process in self._all_processes for task in process.tasks if not task.done()}
        if not run.done():
            left.add(run)
        for task in left:
            task.cancel()
        if left:
            self.loop.turns = 0
            with contextlib.suppress(Stuck):
                self.loop.run_until_complete(asyncio.wait(left, timeout=60.0))
        for process in self._all_processes:
            process.tasks.clear()
        self.store.history.clear()

    async def _bear_mistakes(self) -> None:
        """Check, while users' mistakes last, that backends follow and that Events explain each wait. Then correct the
        mistakes."""
        bound = FOLLOW if self.is_undisturbed else BOUND + self._workload.patience
        while self.people.has_mistakes and not self.checks.found:
            await asyncio.sleep(LOOK)
            self.people.register_those_who_wait()
            since = self.loop.now - self._last_trouble
            if since < 0:
                continue
            behind = self.checks.behind()
            if not behind and not (silent := self.checks.silent()):
                self.people.correct_all()
                self._last_trouble = self.loop.now
            elif since > bound:
                for invariant, text in behind or silent:
                    self.checks.violated(invariant, text)

    async def _come_to_rest(self) -> None:
        """Run until everything is right and quiet, an invariant is violated, or the time is up."""
        times = [float(point[5:]) for point in self._planned if point.startswith("time ")]
        self._last_trouble = max(self._last_trouble, *(EPOCH + each for each in times), 0.0)
        while not self.checks.found:
            await asyncio.sleep(LOOK)
            self.people.register_those_who_wait()
            now = self.loop.now
            if now < self._last_trouble:
                continue
            is_quiet = now - max(self._last_write, self._last_trouble) >= self._quiet
            is_late = now - self._last_trouble > BOUND + self._workload.patience
            for cloud in self.clouds.values():
                cloud.server.world.tick()
            if (is_quiet or is_late) and self._is_judged(is_quiet, is_late):
                return
            if now - self._begun > LONGEST:
                self.checks.violated("never-quiet", "processes end again and again")
                return
            if now - self._last_trouble > 2 * BOUND + self._workload.patience:
                self.checks.violated("never-quiet", "all is well, and yet something is written again and again")
                return

    def _is_judged(self, is_quiet: bool, is_late: bool) -> bool:
        """Return whether the run is over: everything is right and quiet, or the time is up."""
        held = self.checks.held()
        queued = [key for process in self.processes for key in process.queued(held)]
        if queued and not is_late:
            return False
        problems = self.checks.problems()
        if not problems and not queued and self._is_led():
            return is_quiet
        if is_late:
            for invariant, text in problems:
                self.checks.violated(invariant, text)
            for text in queued if not problems else ():
                self.checks.violated("key-left", text)
            if not problems and not queued:
                self.checks.violated("not-converged", "nobody leads")
        return is_late

    def _is_led(self) -> bool:
        return any(process.leads for process in self.processes)

    async def _end(self) -> None:
        self._ending = True
        running, self.processes = self.processes, []
        for process in running:
            left = await process.stop()
            if left and not self.checks.found:
                self.checks.violated("task-left", f"{process.name}: {', '.join(left)}")


_KUBERNETES: dict[str, Any] = {
    "metadata": {"name": "kubernetes", "namespace": "default"},
    "spec": {"type": "ClusterIP", "ports": [{"name": "https", "protocol": "TCP", "port": 443}]},
    "status": {},
}


@functools.lru_cache(maxsize=4096)
def _is_write(what: str) -> bool:
    """Return whether a request is a write. Renewals of the Lease, which never end, do not count, nor do calls about
    instances."""
    reads = ("api GET", "api LIST", "api WATCH", "api EVENT", "cloud instances", f"cloud@{SECOND} instances")
    return not what.startswith(reads) and "leases/" not in what and not what.endswith((".list", ".get"))


def simulate(
    workload: Workload,
    planned: Sequence[Fault] = (),
    *,
    seed: int = 0,
    steps: Iterable[int] | None = None,
    prepare: Callable[[Simulation], None] | None = None,
    surprises: Surprises | None = None,
) -> Outcome:
    """Run a workload from its beginning to its end. The same arguments give the same run."""
    random.seed(seed)
    QUEUES.clear()  # objects of finished runs
    with virtual_time() as loop, in_process():
        simulation = Simulation(loop, workload, planned, seed, steps, surprises)
        if prepare is not None:
            prepare(simulation)
        run = loop.create_task(simulation.run())
        try:
            return loop.run_until_complete(run)
        except Stuck as error:
            simulation.checks.violated("stuck", str(error))
            return simulation.outcome(0.0)
        finally:
            simulation.close(run)


__all__ = ["Outcome", "Simulation", "simulate"]

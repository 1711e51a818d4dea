# SPDX-License-Identifier: Apache-2.0
"""Runs behaviours: those with the same disturbance side by side, one disturbance after the other."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from .behaviour import Behaviour, Disturbance, Steps, When
from .cloud import Fault
from .control_plane import ControlPlane
from .controller import Controller
from .errors import Failed, SuiteError, Unsupported
from .kube import UNANSWERED
from .trial import Trial, World
from .turn import Turn

#: How many behaviours wait at the same time. Each of them polls twice a second.
AT_ONCE = 12
#: How many do if they failed beside more.
FEW = 3
#: Machines that are always there. All behaviours together delete less than a tenth as many at the same time. So a
#: controller's protection against mass deletions never decides a result.
FLEET = 130
#: How many of them are backends of load balancers. Without any, some controllers create none; with all, each change of
#: a load balancer costs a cloud much more.
BACKENDS = 10
#: How many times a process may exit before it leads. After that, the run gives up.
ENDS = 3
#: The minimum duration of a cloud's fault, and how long the API server is away, in seconds. Meanwhile upstream checks
#: each Node several times (every 5 s, --node-monitor-period).
LASTS = 40.0
#: The minimum seconds with another project's credentials: the restarted controller may wait 15 s for the Lease.
LASTS_STARTED = 60.0


@dataclass
class Result:
    """The result of a behaviour. `outcome`: passed, failed or skipped; `reason`: why. `figures`: what the behaviour
    measured, by name with unit."""

    id: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


@dataclass
class Run:
    """A run of behaviours. `second`: another process of the controller, for take-overs. `control_plane`: None if
    somebody else runs the cluster. `turn`: of the behaviours without a disturbance, which keep a machine busiest."""

    world: World
    first: Controller
    second: Controller
    control_plane: ControlPlane | None
    say: Callable[[str], None]
    turn: Turn = field(default_factory=lambda: Turn(None))

    def all(self, behaviours: Sequence[Behaviour], done: Callable[[Result], None]) -> None:
        """Run each behaviour, and pass each result to `done` as soon as it is known. Raises SuiteError."""
        self.first.start()
        try:
            self._all(behaviours, done)
        finally:
            self.world.stopped.set()

    def _all(self, behaviours: Sequence[Behaviour], done: Callable[[Result], None]) -> None:
        """Run one disturbance after the other. The behaviours of the next one begin while those of the last one are
        cleaned up."""
        self._lead()
        with self._fleet(), ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(1) as beside, self._ending():
            former: Sequence[_Attempt] = ()
            cleaning = beside.submit(_clean_up, former)
            for when in self._disturbances(behaviours):
                chosen = [each for each in behaviours if each.when is when]
                attempts = [_Attempt(each, Trial(self.world, each.id), done) for each in chosen]
                try:
                    disturbance = self._disturbance(when)
                except Unsupported as error:
                    _skip(attempts, error)
                    continue
                self.say(f"{when}: {len(chosen)} behaviour(s)")
                list(pool.map(_Attempt.advance, attempts))  # to the end, or up to the disturbance
                cleaning.result()
                list(pool.map(_Attempt.delete_machines, former))
                self._disturb(pool, disturbance, _lasts(when), attempts)
                if when is Disturbance.NONE:
                    self.turn.end()  # a few behaviours keep no machine busy, and may wait for minutes
                    attempts += self._again(pool, attempts)
                former, cleaning = attempts, beside.submit(_clean_up, attempts)
            cleaning.result()
            list(pool.map(_Attempt.delete_machines, former))

    def _disturbances(self, behaviours: Sequence[Behaviour]) -> Iterator[When]:
        """Yield the disturbances of behaviours in their order, but NONE as soon as it is the run's turn, and API_AWAY
        last: an API server that has just started refuses what the roles allow, and `rights.enough` counts refusals."""
        left = list(dict.fromkeys(each.when for each in behaviours))
        while left:
            others = [each for each in left if each not in (Disturbance.NONE, Disturbance.API_AWAY)]
            if Disturbance.NONE in left and self.turn.take(wait=not others):
                left.remove(Disturbance.NONE)
                try:
                    yield Disturbance.NONE
                finally:
                    self.turn.end()
            else:
                when = (others or left)[0]
                left.remove(when)
                yield when

    def _lead(self) -> None:
        """Wait until somebody holds the Lease. Raises SuiteError if nobody does in time, or the controller keeps
        ending."""
        deadline = time.monotonic() + 90 * max(1.0, self.world.patience)
        while not self.world.leader():
            if time.monotonic() > deadline or self.first.ended >= ENDS:
                raise SuiteError(
                    f"nobody holds the Lease kube-system/{self.world.lease} (--lease); the controller has ended "
                    f"{self.first.ended} times, and its last lines are:\n{self.first.last_lines()}"
                )
            self.world.wait(0.5)

    @contextlib.contextmanager
    def _fleet(self) -> Iterator[None]:
        """Create machines and Nodes that stay during the run. They also show that controller and adapter use the same
        cloud."""
        trial = Trial(self.world, "suite.fleet")
        try:
            machines = [trial.machine() for _ in range(FLEET)]
            for number, machine in enumerate(machines):
                trial.join(machine, is_backend=number < BACKENDS)
            try:
                for machine in machines:
                    trial.initialised(machine, 120)
            except Failed as error:
                raise SuiteError(
                    f"the controller does not initialise Nodes of the adapter's machines ({error}); its last lines:\n"
                    f"{self.first.last_lines()}"
                ) from error
            yield
        finally:
            trial.clean_up()
            trial.delete_machines()

    def _disturb(
        self,
        pool: ThreadPoolExecutor,
        disturbance: AbstractContextManager[None],
        lasts: float,
        attempts: Sequence[_Attempt],
    ) -> None:
        """Disturb the controller for `lasts` seconds or more, and advance the attempts that have not ended, meanwhile
        and afterwards."""
        waiting = [attempt for attempt in attempts if not attempt.has_ended]
        if not waiting:
            return
        try:
            with disturbance:
                began = time.monotonic()
                list(pool.map(_Attempt.advance, waiting))
                self.world.wait(max(0.0, began + lasts - time.monotonic()))
        except Unsupported as error:
            _skip(waiting, error)
        list(pool.map(_Attempt.advance, [attempt for attempt in waiting if not attempt.has_ended]))
        if any(attempt.has_failed for attempt in attempts):
            self._restart()

    def _again(self, pool: ThreadPoolExecutor, attempts: Sequence[_Attempt]) -> list[_Attempt]:
        """Ask again, FEW at a time, what failed beside more behaviours. The second answer counts: a controller that
        serves one Service after another may do everything right and be too late for many at once."""
        failed = [each for each in attempts if each.has_failed and len(attempts) > FEW]
        if failed:
            self.say(f"again, {FEW} at a time: {len(failed)} behaviour(s) that failed beside others")
            _clean_up(attempts)
        again, few = [each.again() for each in failed], threading.Semaphore(FEW)

        def advance(attempt: _Attempt) -> None:
            with few:
                attempt.advance()

        list(pool.map(advance, again))
        return again

    def _restart(self) -> None:
        """Kill and start the controller again after a failure. If it has not recovered from a disturbance, for example
        because a call has no time limit, all later behaviours would fail, too."""
        self.say("restarting the controller, because it may not have recovered")
        self.first.stop(signal.SIGKILL)
        self.first.start()

    def _start_again(self) -> None:
        self.first.stop()
        self.first.start()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Stop the behaviours' waits if the run is stopped or fails, because the pool waits for all behaviours."""
        try:
            yield
        except BaseException:
            self.world.stopped.set()
            raise

    def _disturbance(self, when: When) -> AbstractContextManager[None]:
        """Return the disturbance, which does not begin before its context. Raises Unsupported: nobody needs to prepare
        what this cloud or this cluster cannot be asked."""
        cloud, plane = self.world.cloud, self.control_plane
        if isinstance(when, Fault):
            return cloud.broken(when)
        if when is Disturbance.NONE:
            return contextlib.nullcontext()
        if when is Disturbance.CHANGES_REFUSED:
            return cloud.refusing_changes()
        if when is Disturbance.OTHER_PROJECT:
            return self._elsewhere(cloud.other_project())
        if when is Disturbance.API_AWAY:
            if plane is None:
                raise Unsupported("a cluster of its own, whose API server it may stop")
            return self._api_away(plane)
        if when is Disturbance.STANDBY:
            return self._taken_over()
        return self._stopped(signal.SIGKILL if when is Disturbance.KILLED else signal.SIGTERM)

    @contextlib.contextmanager
    def _elsewhere(self, other_project: AbstractContextManager[None]) -> Iterator[None]:
        try:
            with other_project:
                self._start_again()
                yield
        finally:
            self._start_again()

    @contextlib.contextmanager
    def _api_away(self, plane: ControlPlane) -> Iterator[None]:
        plane.stop()
        try:
            self.world.wait(LASTS)
        finally:
            plane.start()
        yield

    @contextlib.contextmanager
    def _taken_over(self) -> Iterator[None]:
        self.second.start()
        self.world.wait(5)
        self.first.stop(signal.SIGKILL)
        yield
        self.second.stop()
        self.first.start()

    @contextlib.contextmanager
    def _stopped(self, how: signal.Signals) -> Iterator[None]:
        self.first.stop(how)
        try:
            yield
        finally:
            self.first.start()


def _skip(attempts: Sequence[_Attempt], error: Unsupported) -> None:
    for attempt in attempts:
        attempt.end("skipped", f"not possible here: {error}")


def _lasts(when: When) -> float:
    """Return the minimum duration of a disturbance in seconds. Disturbances in which a forbidden action may come late
    last longer than their behaviours need."""
    if when is Disturbance.OTHER_PROJECT:
        return LASTS_STARTED
    return LASTS if isinstance(when, Fault) else 0.0


def _clean_up(attempts: Sequence[_Attempt]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(_Attempt.clean_up, attempts))


class _Attempt:
    """A running behaviour. `done` gets its result as soon as the behaviour has ended."""

    def __init__(self, behaviour: Behaviour, trial: Trial, done: Callable[[Result], None]) -> None:
        self._behaviour, self._trial, self._done = behaviour, trial, done
        self._steps: Steps | None = None
        self._seconds = 0.0
        self.has_ended = self.has_failed = False

    def advance(self) -> None:
        """Run the behaviour until its next `yield`, or its end."""
        began = time.monotonic()
        outcome, reason = self._step()
        self._seconds += time.monotonic() - began
        if outcome:
            self.end(outcome, reason)

    def _step(self) -> tuple[str, str]:
        """Run one step; return the outcome, or "" if the behaviour goes on, and the reason."""
        try:
            if self._steps is None:
                self._steps = self._behaviour.function(self._trial)
            return ("passed", "") if self._steps is None or next(self._steps, _END) is _END else ("", "")
        except Failed as error:
            return "failed", str(error)
        except Unsupported as error:
            return "skipped", f"not possible here: {error}"
        except SuiteError as error:
            if self._trial.world.stopped.is_set():
                raise
            return "failed", f"the adapter: {error}"
        except UNANSWERED as error:
            return "failed", f"the API server: {error}"[:300]
        except Exception:  # a bug of the suite or of an adapter must not end the other behaviours
            return "failed", "the suite failed: " + traceback.format_exc().strip()[-600:]

    def again(self) -> _Attempt:
        """Return a new attempt at the same behaviour."""
        return _Attempt(self._behaviour, Trial(self._trial.world, f"{self._behaviour.id}.again"), self._done)

    def end(self, outcome: str, reason: str) -> None:
        self.has_ended, self.has_failed = True, outcome == "failed"
        self._done(Result(self._behaviour.id, outcome, reason, round(self._seconds, 1), self._trial.figures))

    def clean_up(self) -> None:
        with contextlib.suppress(*UNANSWERED, SuiteError):
            self._trial.clean_up()

    def delete_machines(self) -> None:
        with contextlib.suppress(SuiteError):
            self._trial.delete_machines()


_END = object()

# SPDX-License-Identifier: Apache-2.0
"""Events of controllers that look at all Nodes at once.

An outage, or a start beside many new Nodes, makes every Node a reason to say the same. The recorder
(`ccm.engine.events`) merges repetitions about one object, but 5,000 Nodes are 5,000 objects: told without measure they
would cost the API server more than the work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from prometheus_client import Counter

from ccm.base.token_bucket import TokenBucket
from ccm.engine.events import EventRecorder
from ccm.engine.objects import Node

WITHHELD = Counter(
    "ccm_node_events_withheld",
    "Events about Nodes that were not sent, by reason of the Event: too many Nodes had something to tell at once.",
    ["reason"],
)


class EventBudget:
    """`burst` Events at once, then `rate` a second, over all Nodes.

    What was told about a Node within the last `repeat` seconds is not told again, so that in a long outage the others
    get their turn. "What" is the reason and, where one reason has several causes, the `topic`.
    """

    #: How many different facts are remembered, and the characters of a topic: kubelets write what topics quote.
    REMEMBERED, TOPIC = 20_000, 200

    def __init__(
        self,
        recorder: EventRecorder,
        monotonic: Callable[[], float],
        *,
        rate: float = 5.0,
        burst: int = 50,
        repeat: float = 300.0,
    ) -> None:
        self._recorder, self._monotonic = recorder, monotonic
        self._repeat = repeat
        self._bucket = TokenBucket(rate, burst, monotonic)
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def event(self, node: Node, type: str, reason: str, message: str, *, topic: str = "") -> bool:
        """Tell it, unless it was told already or too much is being told; whether it was. Never blocks or raises."""
        now = self._monotonic()
        key = (node.metadata.uid, reason, topic[: self.TOPIC])
        told = self._told.get(key)
        if told is not None and now - told < self._repeat:
            return False
        if not self._bucket.take():
            WITHHELD.labels(reason).inc()
            return False
        self._told[key] = now
        self._told.move_to_end(key)
        self._forget(now)
        self._recorder.event(node, type, reason, message)
        return True

    def _forget(self, now: float) -> None:
        """What may be told again need not be remembered, and never more than REMEMBERED facts are."""
        while self._told:
            oldest = next(iter(self._told.values()))
            if now - oldest < self._repeat and len(self._told) <= self.REMEMBERED:
                return
            self._told.popitem(last=False)

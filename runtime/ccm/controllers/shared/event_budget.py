# SPDX-License-Identifier: Apache-2.0
"""Limit the Events of controllers that look at all Nodes at once.

An outage, or a start with many new Nodes, produces the same Event for every Node. The recorder (`ccm.engine.events`)
merges repetitions about one object, but 5,000 Nodes are 5,000 objects. Without a limit, their Events would cost the
API server more than the actual work.
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
    "Events about Nodes that were not sent because too many were due at once, by reason of the Event.",
    ["reason"],
)


class EventBudget:
    """Limits the Events of a controller: `burst` Events at once, then `rate` per second, over all Nodes.

    An Event is not repeated within `repeat` seconds, so that other Nodes get their turn in a long outage. Two Events
    are the same if Node, reason and `topic` are equal; `topic` distinguishes the causes of one reason.
    """

    #: `REMEMBERED`: the number of Events to remember. `TOPIC`: the maximum length of a topic in characters, because
    #: topics may quote what a kubelet wrote.
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
        self._sent: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    def event(self, node: Node, type: str, reason: str, message: str, *, topic: str = "") -> bool:
        """Send the Event unless it is a repetition or too many are due. Return whether it was sent. Never blocks."""
        now = self._monotonic()
        key = (node.metadata.uid, reason, topic[: self.TOPIC])
        sent = self._sent.get(key)
        if sent is not None and now - sent < self._repeat:
            return False
        if not self._bucket.take():
            WITHHELD.labels(reason).inc()
            return False
        self._sent[key] = now
        self._sent.move_to_end(key)
        self._forget(now)
        self._recorder.event(node, type, reason, message)
        return True

    def _forget(self, now: float) -> None:
        """Drop Events that may be sent again, and keep no more than REMEMBERED."""
        while self._sent:
            oldest = next(iter(self._sent.values()))
            if now - oldest < self._repeat and len(self._sent) <= self.REMEMBERED:
                return
            self._sent.popitem(last=False)

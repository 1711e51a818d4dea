# SPDX-License-Identifier: Apache-2.0
"""The state of one Service is a few small parts, each for one or more steps, and some single values.

The tests limit how many values each has, and cover changes of several parts at once.
"""

import dataclasses
import math

import msgspec
import pytest

from ccm.cloud import Backend, Backends, LoadBalancerSpec
from ccm.controllers.services.service_state import ServiceState
from ccm.engine.objects import Service

SERVICE = msgspec.convert({"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": {}}, Service)
SPEC = LoadBalancerSpec("kubernetes", "u", "shop", "web", ports=())
BACKENDS = Backends([Backend("node-1", "sim://1", ())])
#: The maximum number of values that a reader should have to keep in mind at a time.
FEW = 8


def parts():
    state = ServiceState(SERVICE)
    return {item.name: getattr(state, item.name) for item in dataclasses.fields(state)}


@pytest.mark.parametrize("name", [name for name, part in parts().items() if dataclasses.is_dataclass(part)])
def test_a_part_of_the_state_is_small(name):
    assert len(dataclasses.fields(parts()[name])) <= FEW


def test_the_state_itself_is_small():
    values = [name for name, part in parts().items() if not dataclasses.is_dataclass(part)]
    assert len(values) <= FEW and len(parts()) - len(values) == 5


def test_a_write_ends_every_doubt_about_the_backends_and_is_read_next():
    state = ServiceState(SERVICE)
    following, polling = state.following, state.polling
    following.updating = following.unconfirmed = following.refused = following.behind = True
    following.missed_at, polling.reads, polling.settled, polling.provisional = 5.0, 3, True, True
    state.wrote("f", SPEC, BACKENDS, 10.0, lag=4.0)
    assert not (following.updating or following.unconfirmed or following.refused or following.behind)
    assert (following.exists, following.accepted, following.backends) == (True, SPEC, BACKENDS)
    assert following.missed_at == math.inf
    assert (polling.reads, polling.settled, polling.provisional) == (0, False, False)
    assert (state.written.fingerprint, state.written.at, state.written.late_until) == ("f", 10.0, 14.0)


def test_an_answer_of_a_cloud_that_is_never_late_leaves_the_time_of_an_earlier_write():
    state = ServiceState(SERVICE)
    state.wrote("f", SPEC, BACKENDS, 10.0, lag=4.0)
    state.wrote("g", SPEC, BACKENDS, 11.0)
    assert state.written.late_until == 14.0


def test_another_cloud_has_nothing_of_what_was_written():
    state, old, new = ServiceState(SERVICE), object(), object()
    state.use(old)
    state.wrote("f", SPEC, BACKENDS, 10.0)
    state.use(old)
    assert state.written.fingerprint == "f" and state.following.backends is BACKENDS and not state.is_unwritten(SPEC)
    state.use(new)
    assert state.written.fingerprint is None and state.following.backends is None and state.is_unwritten(SPEC)


def test_what_another_controller_serves_is_settled_although_nothing_was_written():
    state = ServiceState(SERVICE)
    state.following.updating = state.following.refused = state.polling.provisional = True
    state.is_elsewhere("f", SPEC, BACKENDS)
    assert state.polling.settled and not state.polling.provisional and not state.following.exists
    assert not (state.following.updating or state.following.refused) and not state.is_unwritten(SPEC)

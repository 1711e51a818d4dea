# SPDX-License-Identifier: Apache-2.0
"""Changes to an object in its protobuf bytes. tests/integration/engine/test_protobuf.py uses a real API server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.engine.encodings import read
from ccm.engine.objects import UNREADABLE, Lease, Node, PersistentVolume
from ccm.engine.protobuf import MAGIC, messages
from ccm.engine.protobuf.as_read import AsRead
from ccm.engine.protobuf.changes import changed, with_metadata
from ccm.engine.protobuf.descriptors import ENTRIES

from .test_encodings import META, encoded, varint

TAINTS = [{"key": "gone"}, {"key": "stays", "effect": "NoExecute", "timeAdded": "2026-11-01T00:00:00Z"}]
LEASE = ("coordination.k8s.io/v1", "Lease")
NODE = {"metadata": META, "spec": {"taints": TAINTS}, "status": {"addresses": [{"type": "Hostname", "address": "h"}]}}
#: An encoded field with a number that no version of Kubernetes uses.
UNKNOWN = b"\xc2\x3e\x03new"


def node(**change):
    return encoded({**NODE, **change}, Node.MESSAGE)


def message(data):
    return messages.parsed(Node.MESSAGE, messages.unwrapped(data, "Node"))


def test_labels_are_merged_and_lists_replaced():
    change = {
        "metadata": {"labels": {"a": "new", "z": "z", "b": None}},
        "spec": {"providerID": "x://y", "taints": [TAINTS[1]]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    }
    found = read(Node, changed(Node, node(), change))
    assert found.metadata.labels == {"a": "new", "z": "z"}
    assert found.metadata.annotations == META["annotations"] and found.metadata.resource_version == "7"
    assert [taint.key for taint in found.spec.taints] == ["stays"]
    assert found.spec.taints[0].time_added == "2026-11-01T00:00:00Z"
    assert [address.address for address in found.status.addresses] == ["192.0.2.1"]


def test_an_entry_that_was_not_there_is_added_with_its_time():
    added = {"key": "new", "effect": "NoExecute", "timeAdded": "2026-11-03T00:00:00Z"}
    (taint,) = read(Node, changed(Node, node(), {"spec": {"taints": [added]}})).spec.taints
    assert (taint.key, taint.effect, taint.time_added) == ("new", "NoExecute", "2026-11-03T00:00:00Z")


def test_a_time_has_whole_seconds_as_in_json():
    added = {"key": "new", "effect": "NoExecute", "timeAdded": "2026-11-03T00:00:00Z"}
    (taint,) = message(changed(Node, node(), {"spec": {"taints": [added]}})).spec.taints
    time = messages.parsed(ENTRIES["k8s.io.api.core.v1.NodeSpec.taints"], taint).timeAdded
    assert (time.seconds, time.nanos) == (1793664000, 0)


@pytest.mark.parametrize(
    ("kind", "says"), [(Node, ("v1", "Node")), (PersistentVolume, ("v1", "PersistentVolume")), (Lease, LEASE)]
)
def test_the_envelope_says_what_is_in_it(kind, says):
    written = changed(kind, encoded({"metadata": META}, kind.MESSAGE), {})
    meta = messages.parsed("k8s.io.apimachinery.pkg.runtime.Unknown", written[len(MAGIC) :]).typeMeta
    assert (meta.apiVersion, meta.kind) == says


def test_none_empties_a_list():
    assert read(Node, changed(Node, node(), {"spec": {"taints": None}})).spec.taints == []


def test_an_entry_that_stays_keeps_what_nobody_here_knows():
    parsed = messages.parsed(Node.MESSAGE, node())
    taint = parsed.spec.taints[1] + UNKNOWN
    del parsed.spec.taints[1]
    parsed.spec.taints.append(taint)
    after = message(changed(Node, parsed.SerializeToString(), {"spec": {"taints": [TAINTS[1]]}}))
    assert after.spec.taints[:] == [taint]


def test_the_version_that_was_read_guards_the_write():
    after = message(changed(Node, node(), {"spec": {"providerID": "x"}}))
    assert (after.metadata.resourceVersion, after.metadata.uid) == ("7", "u")


def test_without_a_version_nothing_is_written():
    unguarded = encoded({**NODE, "metadata": {"name": "a"}}, Node.MESSAGE)
    with pytest.raises(UNREADABLE, match="no resourceVersion"):
        changed(Node, unguarded, {"spec": {"providerID": "x"}})


def test_managed_fields_are_left_to_the_api_server():
    parsed = messages.parsed(Node.MESSAGE, node())
    parsed.metadata.managedFields.append(b"\n\x01m")
    assert not message(changed(Node, parsed.SerializeToString(), {})).metadata.managedFields[:]


def test_the_next_write_has_the_metadata_of_the_answer():
    answer = encoded({"metadata": {**META, "resourceVersion": "8", "labels": {"by": "webhook"}}}, Node.MESSAGE)
    data = with_metadata(Node, node(), messages.wrapped("meta.k8s.io/v1", "PartialObjectMetadata", answer))
    found = read(Node, messages.wrapped("v1", "Node", data))
    assert found.metadata.resource_version == "8" and found.metadata.labels == {"by": "webhook"}
    assert found.spec == read(Node, messages.wrapped("v1", "Node", node())).spec


@given(st.lists(st.tuples(st.integers(1000, 9000), st.binary(max_size=30)), max_size=5))
def test_unknown_fields_survive_wherever_they_are(fields):
    """Fields of a newer API server survive in the object, its metadata, its spec and its status."""
    unknown = b"".join(varint(number << 3 | 2) + varint(len(data)) + data for number, data in fields)
    parsed = messages.parsed(Node.MESSAGE, node())
    for part in (parsed.metadata, parsed.spec, parsed.status):
        part.MergeFromString(unknown)
    after = message(changed(Node, parsed.SerializeToString() + unknown, {"spec": {"providerID": "x"}}))
    parsed.spec.providerID = "x"
    parsed.MergeFromString(unknown)
    assert after.SerializeToString(deterministic=True) == parsed.SerializeToString(deterministic=True)


def test_the_bytes_that_are_held_are_counted():
    before = AsRead.held
    first, second = AsRead(b"x" * 100), AsRead(b"x" * 100)
    assert first == second and AsRead.held == before + 200
    del first, second
    assert AsRead.held == before


@pytest.mark.parametrize("data", [b"\x0a\xff", b"\x12\x05ab"])
def test_bytes_that_are_no_node_are_not_written(data):
    with pytest.raises(Exception, match="not a message of the type Node"):
        changed(Node, data, {})

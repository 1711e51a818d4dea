# SPDX-License-Identifier: Apache-2.0
"""Which admission requests contain a volume to complete. The answer is what the controller would write."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm.controllers.volumes import volume_rules
from ccm.controllers.volumes.volume_rules import REGION, ZONE
from ccm.controllers.volumes.volume_webhook_rules import (
    CHECK,
    CHECKED,
    UNCHANGED,
    checked,
    completed,
    is_check,
    unknown,
    volume_of,
)

from ..fuzzing import bounded
from ..hostile import MAP, NUMBER, TEXT, maybe

KIND = {"group": "", "version": "v1", "kind": "PersistentVolume"}
CSI = {"csi": {"driver": "d.example", "volumeHandle": "v-1"}}
FOUND = {ZONE: "north-a", REGION: "north"}


def raw(spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pv", **metadata}, "spec": CSI if spec is None else spec}


def request(volume: Any, **changed: Any) -> dict[str, Any]:
    return {"uid": "u", "kind": KIND, "operation": "CREATE", "object": volume, **changed}


def patched(document: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Apply the answer's operations, each of which replaces or adds one member (RFC 6902). Returns the result."""
    assert (answer["allowed"], answer["patchType"]) == (True, "JSONPatch")
    result = copy.deepcopy(document)
    for operation in json.loads(base64.b64decode(answer["patch"])):
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place = result
        for part in parents:
            place = place[part]
        assert operation["op"] == "add" or last in place
        place[last] = operation["value"]
    return result


def test_the_volume_of_a_request():
    volume = volume_of(request(raw(labels={"a": "b"})))
    assert volume is not None and volume.metadata.labels == {"a": "b"}
    assert volume_rules.reference(volume) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None, "oldObject": raw()},
        {"operation": None},
        {"kind": {"group": "", "version": "v1", "kind": "Pod"}},
        {"kind": {"group": "x", "version": "v1", "kind": "PersistentVolume"}},
        {"kind": {"group": "", "version": "v2", "kind": "PersistentVolume"}},
        {"kind": "PersistentVolume"},
        {"kind": None},
        {"subResource": "status"},
        {"object": None},
        {"object": []},
        {"object": {"metadata": {"labels": {"a": 1}}}},
        {"object": {"metadata": [], "spec": CSI}},
        {"object": {"spec": {"csi": "v-1"}}},
        {"object": {"spec": {"csi": {"volumeHandle": ["v"]}}}},
    ],
    ids=str,
)
def test_requests_about_nothing_to_complete(changed: dict[str, Any]):
    assert volume_of({**request(raw()), **changed}) is None


@pytest.mark.parametrize("metadata", [{}, {"labels": {}}, {"labels": {"team": "a"}}, {"labels": {ZONE: "mine"}}])
@pytest.mark.parametrize("spec", [CSI, {**CSI, "nodeAffinity": {"required": {"nodeSelectorTerms": []}}}])
def test_the_answer_is_what_the_controller_would_write(metadata: dict[str, Any], spec: dict[str, Any]):
    document = raw(spec, **metadata)
    volume = volume_of(request(document))
    assert volume is not None
    added, merged = volume_rules.additions(volume, FOUND), volume_rules.patch(volume, FOUND)
    assert added is not None and merged is not None
    after = patched(document, completed(volume, added))
    assert after["metadata"]["labels"] == document["metadata"].get("labels", {}) | merged["metadata"]["labels"]
    assert after["spec"] == document["spec"] | merged.get("spec", {})
    assert (after["metadata"]["name"], after.keys()) == ("pv", document.keys())


@given(
    have=st.none() | st.dictionaries(st.sampled_from([ZONE, REGION, "a/b~c", "other"]), st.sampled_from(["a", "b"])),
    labels=st.dictionaries(st.sampled_from([ZONE, REGION, "m~o/r/e"]), st.sampled_from(["", "x", "y"])),
)
def test_nothing_is_lost_and_once_is_enough(have: dict[str, str] | None, labels: dict[str, str]):
    document = raw(**({} if have is None else {"labels": have}))
    volume = volume_of(request(document))
    assert volume is not None
    if (added := volume_rules.additions(volume, labels)) is None:
        return
    after = patched(document, completed(volume, added))
    assert after["metadata"]["labels"].items() >= (have or {}).items()
    again = volume_of(request(after))
    assert again is not None and volume_rules.additions(again, labels) is None


def test_a_check_is_a_dry_run_with_the_annotation():
    document = raw(annotations={CHECKED: CHECK})
    volume, plain = volume_of(request(document)), volume_of(request(raw()))
    assert volume is not None and plain is not None
    assert is_check({"dryRun": True}, volume)
    assert not is_check({"dryRun": False}, volume) and not is_check({}, volume)
    assert not is_check({"dryRun": True}, plain)
    assert patched(document, checked())["metadata"]["annotations"] == {CHECKED: "answered"}


def test_a_warning_is_short_and_on_one_line():
    answer = unknown("a\nb\x1b[2J" + "x" * 100_000)
    (warning,) = answer["warnings"]
    assert answer["allowed"] is True and "patch" not in answer
    assert warning.isprintable() and len(warning) <= 256
    assert "zone and region of the volume are unknown: a\\nb" in warning
    assert UNCHANGED == {"allowed": True}


ANYTHING = st.none() | NUMBER | TEXT | MAP | st.lists(TEXT, max_size=2)
SOURCE = ANYTHING | maybe(driver=ANYTHING, volumeHandle=TEXT, volumeID=TEXT, pdName=TEXT, diskURI=ANYTHING)
VOLUME = ANYTHING | maybe(
    metadata=ANYTHING | maybe(name=TEXT, labels=MAP | ANYTHING, annotations=MAP | ANYTHING, uid=ANYTHING),
    spec=ANYTHING | maybe(csi=SOURCE, cinder=SOURCE, gcePersistentDisk=SOURCE, nodeAffinity=ANYTHING),
)


@pytest.mark.threat("tenant-cannot-stop-the-controller")
@bounded(300)
@given(document=VOLUME, kind=st.just(KIND) | ANYTHING, operation=st.just("CREATE") | ANYTHING, dry=ANYTHING)
def test_whatever_a_request_has_it_is_judged_without_an_error(document: Any, kind: Any, operation: Any, dry: Any):
    asked = {"uid": "u", "kind": kind, "operation": operation, "object": document, "dryRun": dry}
    volume = volume_of(asked)
    if volume is None:
        return
    is_check(asked, volume)
    if volume_rules.needs_labels(volume) and (added := volume_rules.additions(volume, FOUND)):
        after = patched({"metadata": {}, "spec": {}} | document, completed(volume, added))
        assert after["metadata"]["labels"].keys() >= added.labels.keys()

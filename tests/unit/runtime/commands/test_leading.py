# SPDX-License-Identifier: Apache-2.0
"""What `ccm explain` and `ccm doctor` say about the leader."""

import msgspec
import pytest

from ccm.commands.asking import leading
from ccm.engine.objects import Lease

from .looks import NOW, before

NAME = "kube-system/cloud-controller-manager"


def lease(holder="cp-1_6f", renewed=5, **notes):
    annotations = {f"ccm.outoftree.dev/{key.replace('_', '-')}": value for key, value in notes.items()}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": before(renewed)}
    return msgspec.convert({"metadata": {"name": "l", "uid": "u", "annotations": annotations}, "spec": spec}, Lease)


@pytest.mark.parametrize(
    ("current", "words"),
    [
        (None, ["No controller has ever led", NAME]),
        (lease(""), [f"No controller leads: the Lease {NAME} was released, 5 s ago."]),
        (lease(renewed=16), ["cp-1_6f renewed the Lease", "16 s ago, which is valid for 15 s"]),
        (lease(), ["Controller: cp-1_6f", "it does not describe itself in the Lease"]),
        (lease(cloud_provider="sim"), ["provider sim; the cloud last answered it never"]),
        (lease(cloud_provider="sim", last_cloud_success=before(119)), ["the cloud last answered it 119 s ago"]),
    ],
)
def test_who_leads(current, words):
    said = "\n".join(leading.leader_lines(current, NAME, NOW))
    assert all(word in said for word in words), said


def test_a_lease_is_held_until_it_runs_out():
    assert leading.is_led(lease(renewed=15), NOW)
    assert not leading.is_led(lease(renewed=16), NOW)
    assert not leading.is_led(lease(""), NOW) and not leading.is_led(None, NOW)


def test_what_the_leader_runs():
    assert leading.running(lease(controllers="cloud-node,,service")) == ["cloud-node", "service"]
    assert leading.running(lease(controllers="")) == [] and leading.running(lease()) is None
    assert leading.running(None) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s ago"), (-30, "0 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7199, "120 min ago"),
        (7200, "2 h ago"), (172799, "48 h ago"), (172800, "2 days ago"),
    ],
)  # fmt: skip
def test_how_long_ago(seconds, text):
    assert leading.ago(before(seconds), NOW) == text


@pytest.mark.parametrize("text", ["", None, "yesterday", "2026-11-01T12:00:00"])
def test_no_time_is_unknown(text):
    assert leading.ago(text, NOW) == "at an unknown time" and leading.seconds_since(text, NOW) is None

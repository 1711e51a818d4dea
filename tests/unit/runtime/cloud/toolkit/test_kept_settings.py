# SPDX-License-Identifier: Apache-2.0
"""Settings that a cloud cannot change on existing load balancers."""

import pytest

from ccm.cloud.toolkit.kept_settings import Setting, differences, only_for_new, without_effect


@pytest.mark.parametrize(
    ("desired", "present", "expected"),
    [
        ("nbg1", "fsn1", {"location": "nbg1 (it has fsn1)"}),
        ("nbg1", "", {"location": "nbg1 (it has none)"}),
        ("fsn1", "fsn1", {}),
        ("", "fsn1", {}),
        ("", "", {}),
    ],
)
def test_only_what_is_requested_and_not_there_is_a_difference(desired, present, expected):
    assert differences({"location": Setting(desired, present)}) == expected


def test_all_differences_are_one_warning_and_none_is_no_warning():
    found = differences({"location": Setting("a", "b"), "type": Setting("c", "c"), "subnets": Setting("d", "")})
    assert only_for_new(found) == (
        "settings for new load balancers do not change this one until the Service is deleted and created again: "
        "location a (it has b), subnets d (it has none)",
    )
    assert only_for_new({}) == ()


def test_what_another_setting_overrules_is_one_warning():
    assert without_effect({"probe-port", "probe-path"}, "the probe is shared") == (
        "probe-path, probe-port: no effect, because the probe is shared",
    )
    assert without_effect([], "the probe is shared") == ()

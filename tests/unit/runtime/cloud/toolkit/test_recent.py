# SPDX-License-Identifier: Apache-2.0
"""The least recently used entries are evicted, and the cache never exceeds its bound."""

from ccm.cloud.toolkit.recent import Recent


def test_what_was_used_longest_ago_goes():
    recent = Recent(3)
    for number in range(3):
        recent.put(number, str(number))
    assert recent.get(0) == "0"
    assert recent.obtain(1, lambda: "new") == "1"
    recent.put(3, "3")
    assert [recent.get(number) for number in range(4)] == ["0", "1", None, "3"] and len(recent) == 3


def test_what_is_not_there_is_made_once():
    recent, made = Recent(2), []

    def make():
        made.append(object())
        return made[-1]

    assert recent.obtain("a", make) is recent.obtain("a", make) is recent.get("a")
    assert len(made) == 1


def test_the_bound_holds_whatever_comes():
    recent = Recent(5)
    for number in range(1000):
        recent.obtain(number, object)
        recent.put(-number, number)
    assert len(recent) == 5


def test_what_is_forgotten_is_gone_and_the_rest_stays():
    recent = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    recent.forget("a")
    recent.forget("never")
    assert recent.get("a") is None and recent.get("b") == 2 and len(recent) == 1

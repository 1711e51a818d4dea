# SPDX-License-Identifier: Apache-2.0
"""C18 of the behaviour reference."""

import pytest

from ccm.app.health import report

GOOD = {"ping": lambda: None, "informers": lambda: None}
BAD = {"ping": lambda: None, "informers": lambda: "nothing heard for 200 s", "cloud": lambda: "503"}


@pytest.mark.parametrize(
    ("checks", "verbose", "exclude", "status", "text"),
    [
        ({}, False, (), 200, "ok"),
        (GOOD, False, (), 200, "ok"),
        ({}, True, (), 200, "check passed\n"),
        (GOOD, True, (), 200, "[+]ping ok\n[+]informers ok\ncheck passed\n"),
        (GOOD, True, ("ping",), 200, "[+]ping excluded: ok\n[+]informers ok\ncheck passed\n"),
        (
            BAD,
            False,
            (),
            500,
            "[+]ping ok\n[-]informers failed: nothing heard for 200 s\n[-]cloud failed: 503\ncheck failed\n",
        ),
        (
            BAD,
            False,
            ("informers",),
            500,
            "[+]ping ok\n[+]informers excluded: ok\n[-]cloud failed: 503\ncheck failed\n",
        ),
        (BAD, False, ("informers", "cloud"), 200, "ok"),
        (BAD, False, ("unknown", "informers", "cloud"), 200, "ok"),
    ],
)
def test_report(checks, verbose, exclude, status, text):
    assert report(checks, verbose=verbose, exclude=frozenset(exclude)) == (status, text)


def test_an_excluded_check_is_not_asked():
    def ask():
        raise AssertionError("asked")

    assert report({"slow": ask}, verbose=False, exclude=frozenset({"slow"})) == (200, "ok")


def test_a_check_is_asked_each_time():
    answers = iter([None, "down", None])
    checks = {"cloud": lambda: next(answers)}
    assert [report(checks, verbose=False)[0] for _ in range(3)] == [200, 500, 200]

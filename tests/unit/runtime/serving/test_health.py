# SPDX-License-Identifier: Apache-2.0
"""C18 of docs/reference/parity.md. Upstream has no /livez and /readyz, and its checks never fail (W25)."""

import pytest

from ccm.serving.health import SLIS, Health, Tolerated

GOOD = {"ping": lambda: None, "informers": lambda: None}
BAD = {"ping": lambda: None, "informers": lambda: "nothing heard for 200 s", "cloud": lambda: "503"}
WITHHELD = "[+]ping ok\n[-]informers failed: reason withheld\n[-]cloud failed: reason withheld\nreadyz check failed\n"


@pytest.mark.parametrize(
    ("checks", "asked", "status", "text"),
    [
        pytest.param({}, {}, 200, "ok", id="C18-empty"),
        pytest.param(GOOD, {}, 200, "ok", id="C18-good"),
        pytest.param({}, {"verbose": True}, 200, "readyz check passed\n", id="C18-empty-verbose"),
        pytest.param(
            GOOD, {"verbose": True}, 200, "[+]ping ok\n[+]informers ok\nreadyz check passed\n", id="C18-verbose"
        ),
        pytest.param(
            GOOD,
            {"verbose": True, "exclude": ["ping"]},
            200,
            "[+]ping excluded: ok\n[+]informers ok\nreadyz check passed\n",
            id="C18-excluded",
        ),
        pytest.param(BAD, {}, 500, WITHHELD, id="C18-bad-withheld"),
        pytest.param(
            BAD,
            {"reasons": True, "exclude": ["informers"]},
            500,
            "[+]ping ok\n[+]informers excluded: ok\n[-]cloud failed: 503\nreadyz check failed\n",
            id="reasons",
        ),
        (BAD, {"exclude": ["informers", "cloud"]}, 200, "ok"),
        (
            BAD,
            {"exclude": ["unknown", "informers", "cloud"], "verbose": True},
            200,
            "[+]ping ok\n[+]informers excluded: ok\n[+]cloud excluded: ok\n"
            'warn: some health checks cannot be excluded: no matches for "unknown"\nreadyz check passed\n',
        ),
    ],
)
def test_report(checks, asked, status, text):
    assert Health(readyz=checks).all("readyz", **asked) == (status, text)


def test_what_is_tolerated_is_shown_and_counted_and_passes(caplog):
    health = Health(readyz={"ping": lambda: None, "cloud-a": lambda: Tolerated("503")})
    assert health.all("readyz") == (200, "ok")
    shown = "[+]ping ok\n[+]cloud-a tolerated: 503\nreadyz check passed\n"
    assert health.all("readyz", verbose=True, reasons=True) == (200, shown)
    assert "503" not in health.all("readyz", verbose=True)[1]
    assert health.one("readyz", "cloud-a") == (500, "internal server error: 503\n")
    assert SLIS.get_sample_value("kubernetes_healthcheck", {"name": "cloud-a", "type": "readyz"}) == 0
    assert caplog.messages == ["readyz passes in spite of: cloud-a: 503"]


def test_an_excluded_check_is_not_asked():
    def ask():
        raise AssertionError("asked")

    assert Health(readyz={"slow": ask}).all("readyz", exclude=["slow"]) == (200, "ok")


def test_C18_a_check_is_asked_each_time_and_one_that_comes_later_counts():
    answers = iter([None, "down", None])
    checks = {"cloud": lambda: next(answers)}
    health = Health(readyz=checks)
    assert [health.all("readyz")[0] for _ in range(3)] == [200, 500, 200]
    checks.clear()
    checks["later"] = lambda: "bad"
    assert health.all("readyz")[0] == 500


def test_one_check():
    health = Health(readyz=BAD)
    assert health.one("readyz", "ping") == (200, "ok")
    assert health.one("readyz", "cloud") == (500, "internal server error: 503\n")
    assert health.one("readyz", "moon") is None


def test_a_failure_is_logged_once_with_its_reason(caplog):
    state = {"cloud": "503"}
    health = Health(readyz={"cloud": lambda: state["cloud"]})
    health.all("readyz")
    health.all("readyz")
    assert [record.getMessage() for record in caplog.records] == ["readyz fails: cloud: 503"]
    state["cloud"] = None
    health.all("readyz")
    state["cloud"] = "again"
    health.all("readyz")
    assert len(caplog.records) == 2


def test_slis():
    def value(name, **labels):
        return SLIS.get_sample_value(name, {"name": "sli", "type": "livez", **labels})

    answers = iter([None, "down", "down"])
    health = Health(livez={"sli": lambda: next(answers)})
    for gauge in (1, 0, 0):
        health.all("livez")
        assert value("kubernetes_healthcheck") == gauge
    assert value("kubernetes_healthchecks_total", status="success") == 1
    assert value("kubernetes_healthchecks_total", status="error") == 2

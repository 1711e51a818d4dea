# SPDX-License-Identifier: Apache-2.0
"""A driver's error never counts as proof that a machine is gone, and never shows a secret."""

import pytest
import requests
import urllib3

from ccm.cloud import NotFound, RateLimited, Transient, Unauthorized
from ccm.providers.libcloud.errors import QUOTED, redacted, translated

SECRET = "a+b/c=secret"
LATE = "X: no answer within 30 s (set by request_timeout)"


#: How the library `requests` reports an answer that started but did not end.
STALLED = urllib3.exceptions.ReadTimeoutError(None, f"/api?key={SECRET}", "Read timed out.")


class InvalidCredsError(Exception):
    pass


class BaseHTTPError(Exception):
    def __init__(self, message):
        super().__init__(message)
        self.message = message


@pytest.mark.parametrize(
    ("error", "status", "expected", "text"),
    [
        (InvalidCredsError("no"), 0, Unauthorized, "X: it refuses the credentials: check the credentials"),
        (Exception("no"), 403, Unauthorized, "X: HTTP 403: check the credentials"),
        (Exception("slow"), 429, RateLimited, "X: too many requests"),
        (BaseHTTPError("no such server"), 404, Transient, "X: HTTP 404: no such server"),
        (BaseHTTPError("<html>"), 404, Transient, "X: HTTP 404: an answer that is not from the cloud"),
        (KeyError("droplets"), 200, Transient, "X: the answer cannot be read (KeyError)"),
        (TimeoutError(), 0, Transient, LATE),
        (requests.exceptions.ReadTimeout(f"/api?key={SECRET}"), 0, Transient, LATE),
        (requests.exceptions.ConnectTimeout(f"/api?key={SECRET}"), 0, Transient, LATE),
        (requests.exceptions.ConnectionError(STALLED), 0, Transient, LATE),
        (requests.exceptions.ConnectionError(f"/api?key={SECRET}"), 0, Transient, "X: cannot be reached (Connection"),
        (requests.exceptions.SSLError(SECRET), 0, Transient, "X: its certificate is not trusted: check ca_file"),
        (OSError("no route"), 0, Transient, "X: cannot be reached (OSError)"),
        (BaseHTTPError(f"bad key {SECRET}"), 500, Transient, "X: HTTP 500: bad key ***"),
        (BaseHTTPError("GET /api?a=b&signature=x%3D&c=d"), 404, Transient, "X: HTTP 404: GET /api?a=b&***&c=d"),
        (Transient("as it is"), 404, Transient, "as it is"),
    ],
)
def test_errors(error, status, expected, text):
    found = translated(error, "X", status, 7.0, [SECRET], 30.0)
    assert type(found) is expected
    assert str(found).startswith(text)
    assert SECRET not in str(found)
    assert not isinstance(found, NotFound)


def test_the_pause_that_the_cloud_asks_for():
    assert translated(Exception("slow"), "X", 429, 7.0, [], 30.0).retry_after == 7.0


def test_redacted():
    text = f"{SECRET} a%2Bb/c%3Dsecret a%2Bb%2Fc%3Dsecret\n" + "x" * 500
    found = redacted(text, [SECRET])
    assert found.startswith("*** *** ***\\n")
    assert "secret" not in found
    assert len(found) < QUOTED + 30

# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from ccm.engine import api_errors
from ccm.engine.api_errors import from_response
from ccm.engine.objects import Status

JSON = "application/json"


def status(code: int, **fields: object) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": "R", "message": "why", **fields}).encode()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, api_errors.ApiError),
        (401, api_errors.UnauthorizedError),
        (403, api_errors.ForbiddenError),
        (404, api_errors.NotFoundError),
        (409, api_errors.ConflictError),
        (410, api_errors.GoneError),
        (422, api_errors.InvalidError),
        (429, api_errors.TooManyRequestsError),
        (500, api_errors.UnavailableError),
        (503, api_errors.UnavailableError),
    ],
)
def test_a_status_object_becomes_its_type(code, kind):
    error = from_response(code, JSON, status(code), None, "GET /x")
    assert type(error) is kind
    assert (error.status, error.reason) == (code, "R")
    assert str(error) == f"GET /x: {code} R: why"


@pytest.mark.parametrize("code", [401, 403, 404, 409, 410])
def test_a_refusal_of_an_admission_webhook_is_no_lost_race_whatever_its_code(code):
    denied = Status(code=code, reason="Conflict", message='admission webhook "a.example" denied the request: no')
    assert type(api_errors.from_status(denied, "PATCH /x")) is api_errors.ForbiddenError


@pytest.mark.parametrize(
    ("code", "content_type", "body"),
    [
        (404, "text/html", b"<h1>no such backend</h1>"),
        (404, "text/plain", b"404 page not found"),
        (404, JSON, b'{"error": "not a Status"}'),
        (404, JSON, b"not json"),
        (200, "text/html", b"<h1>log in</h1>"),
        (302, "text/html", b""),
        (403, "text/html", b"blocked"),
        (410, "", b""),
    ],
)
def test_what_is_no_status_object_says_nothing_about_the_object(code, content_type, body):
    error = from_response(code, content_type, body, None, "GET /x")
    assert type(error) is api_errors.UnavailableError
    assert error.status == code and "an intermediary answered" in error.message


def test_429_counts_also_as_plain_text_since_the_api_server_sends_it_so():
    error = from_response(429, "text/plain", b"Too many requests", "7", "GET /x")
    assert type(error) is api_errors.TooManyRequestsError and error.retry_after == 7.0


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [(None, {}, None), (None, {"retryAfterSeconds": 3}, 3.0), ("5", {"retryAfterSeconds": 3}, 5.0), ("soon", {}, None)],
)
def test_retry_after(header, details, expected):
    error = from_response(503, JSON, status(503, details=details), header, "GET /x")
    assert error.retry_after == expected


def test_a_page_is_quoted_in_short():
    error = from_response(502, "text/html", b"<html>\n\n" + b"x" * 5000, None, "GET /x")
    assert len(error.message) < 350 and "\n" not in error.message


def test_in_stream_410():
    assert type(api_errors.from_status(Status(code=410, reason="Expired"), "WATCH /x")) is api_errors.GoneError

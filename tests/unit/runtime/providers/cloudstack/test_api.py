# SPDX-License-Identifier: Apache-2.0
"""What errors of the API and of its jobs mean."""

from __future__ import annotations

from typing import Any

import pytest

from ccm.cloud import Conflict, Invalid, QuotaExceeded, RetryAfter, Transient
from ccm.providers.cloudstack import api


def test_an_error_is_in_the_only_field_of_an_answer() -> None:
    answer = {"listzonesresponse": {"uuidList": [], "errorcode": 431, "cserrorcode": 4350, "errortext": "why"}}
    assert api.failure(answer) == ("431", "why")


@pytest.mark.parametrize("answer", [{}, {"a": {}, "b": {}}, {"a": {"errorcode": "x", "errortext": "y"}}, {"a": []}, []])
def test_what_is_not_the_apis_error_is_noticed(answer: Any) -> None:
    with pytest.raises((LookupError, TypeError, ValueError, AttributeError)):
        api.failure(answer)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (431, Invalid),
        (530, Transient),
        (531, Conflict),
        (532, QuotaExceeded),
        (533, QuotaExceeded),
        (536, RetryAfter),
        (537, Conflict),
        (599, Transient),
    ],
)
def test_a_job_fails_with_the_apis_codes(code: int, kind: type[Exception]) -> None:
    error = api.failed("the creation", {"errorcode": code, "errortext": "why\nnot"}, 2.0)
    assert type(error) is kind and str(error).startswith(f"the creation failed: {code} 'why")
    assert error.retry_after == (2.0 if kind is RetryAfter else None)


@pytest.mark.parametrize("result", [None, {}, "no", {"errortext": 5}])
def test_a_job_that_does_not_say_why_failed_nonetheless(result: Any) -> None:
    found = api.failed("the creation", result, 1.0)
    assert isinstance(found, Transient) and found.scope == "object"


@pytest.mark.parametrize(
    ("message", "missing"),
    [
        ("Invalid parameter id value=a-1 due to incorrect long value format, or entity does not exist or ...", True),
        ("Invalid parameter id value=a-12 due to incorrect long value format, or entity does not exist", False),
        ("Invalid parameter projectid value=p due to incorrect long value format, or entity does not exist", False),
        ("Invalid parameter id value=a-1 is too long", False),
    ],
)
def test_only_the_sentence_about_this_id_says_that_nothing_has_it(message: str, missing: bool) -> None:
    assert api.is_missing(message, "a-1") is missing

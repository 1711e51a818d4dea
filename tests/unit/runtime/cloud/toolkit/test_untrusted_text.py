# SPDX-License-Identifier: Apache-2.0
"""Messages that quote a cloud's or proxy's answer contain no secret, even if the answer quotes the request."""

from __future__ import annotations

import json
import urllib.parse

import pytest

from ccm.cloud.toolkit.untrusted_text import SHORTEST_SECRET, concealed

SECRET = 'a+b/c "d"=é'


@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.urlencode({"": SECRET})[1:],
    ],
    ids=["plain", "json", "path", "query", "form"],
)
def test_a_secret_is_concealed_in_each_spelling_wherever_it_is(spelling: str) -> None:
    text = f"POST /v3?a={spelling} {spelling}, and no more"
    assert concealed(text, ["another-one", SECRET]) == "POST /v3?a=*** ***, and no more"


def test_what_is_too_short_for_a_secret_stays() -> None:
    short, long = "s" * (SHORTEST_SECRET - 1), "t" * SHORTEST_SECRET
    assert concealed(f"{short} {long}", [short, "", long]) == f"{short} ***"


def test_a_short_password_is_a_secret_if_the_caller_says_so() -> None:
    assert concealed("user u, password p4", ["p4", ""], shortest=1) == "user u, password ***"


def test_without_secrets_a_text_is_as_it_was() -> None:
    assert concealed("what the cloud says", []) == "what the cloud says"

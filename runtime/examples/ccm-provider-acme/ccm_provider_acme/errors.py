# SPDX-License-Identifier: Apache-2.0
"""What the cloud refuses, as errors of the contract. A wrong NotFound here deletes Nodes."""

from __future__ import annotations

import http.client
import json
import urllib.error

from ccm.cloud import CloudError, Conflict, Invalid, NotFound, RateLimited, Transient, Unauthorized


def error_of(what: str, answer: urllib.error.HTTPError, missing: str) -> CloudError:
    try:
        code = str(json.loads(answer.read())["error"])
    except (ValueError, LookupError, TypeError, OSError, http.client.HTTPException):
        code = ""
    text = f"{what}: {answer.code} {code or 'not an answer of this cloud; is a proxy in between?'}"
    match answer.code:
        case 404 if missing and code == missing:
            return NotFound(text)
        case 401 | 403:
            return Unauthorized(f"{text}: check the key")
        case 409:
            return Conflict(text)
        case 422:
            return Invalid(text)
        case 429:
            wait = answer.headers.get("Retry-After", "")
            return RateLimited(text, retry_after=float(wait) if wait.isdigit() else None)
        case status if code and 400 <= status < 500:  # the cloud refuses what this one call asks for
            return Transient(text, scope="object")
    return Transient(text)

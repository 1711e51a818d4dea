# SPDX-License-Identifier: Apache-2.0
"""Signs a request as CloudStack expects it. Pure.

The signature covers all fields, sorted by their names, in lower case. With `signatureVersion=3`, a request is valid
only until `expires`, so that somebody who sees a request cannot send it again later.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

#: How long a request is valid, in seconds. The clocks of this machine and of the cloud may differ by almost as much.
VALID = 600


def signed(command: str, fields: Mapping[str, str], api_key: str, secret: str, now: float) -> list[tuple[str, str]]:
    """Return all fields of the form, with the signature. `now`: Unix time in seconds."""
    expires = datetime.fromtimestamp(now + VALID, UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
    every = {
        **fields,
        "command": command,
        "apiKey": api_key,
        "response": "json",
        "signatureVersion": "3",
        "expires": expires,
    }
    return [*every.items(), ("signature", signature(every, secret))]


def signature(fields: Mapping[str, str], secret: str) -> str:
    named = sorted((name.lower(), value) for name, value in fields.items())
    text = "&".join(f"{name}={_encoded(value)}" for name, value in named).lower()
    return base64.b64encode(hmac.digest(secret.encode(), text.encode(), hashlib.sha1)).decode()


def _encoded(value: str) -> str:
    """Encode a value as the management server does: like Java's URLEncoder, with %20 for a space."""
    return quote(value, safe="*").replace("~", "%7E")

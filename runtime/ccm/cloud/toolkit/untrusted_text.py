# SPDX-License-Identifier: Apache-2.0
"""Text of users, machines and clouds in messages, as the framework shows it: short, on one line, harmless. Pure."""

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from ccm.base.text import printable, quoted, shorten

__all__ = ["concealed", "printable", "quoted", "shorten"]

#: The minimum length of a secret, in characters. Shorter words of a header with credentials, such as "Bearer", are no
#: secrets, and occur in other text.
SHORTEST_SECRET = 8


def concealed(text: str, secrets: Iterable[str], shortest: int = SHORTEST_SECRET) -> str:
    """Return a cloud's text, which may quote the request, without the request's secrets: as they are, and as JSON,
    Python, a URL and a form spell them. Shorten the text afterwards, because a part of a secret is not found.
    `shortest`: 1 for texts that are secrets whatever their length, such as a password."""
    for secret in secrets:
        if len(secret) >= shortest:
            as_text = (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1])
            for spelling in (*as_text, quote(secret), quote(secret, safe=""), quote_plus(secret)):
                text = text.replace(spelling, "***")
    return text

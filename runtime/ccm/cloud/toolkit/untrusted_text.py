# SPDX-License-Identifier: Apache-2.0
"""Text from users, machines and clouds in messages, as the framework shows it: short, on one line, harmless. Pure."""

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from ccm.base.text import printable, quoted, shorten

__all__ = ["concealed", "printable", "quoted", "shorten"]

#: The minimum length of a secret, in characters. Shorter words in a header with credentials, such as "Bearer", are not
#: secrets, and occur in other text.
SHORTEST_SECRET = 8


def concealed(text: str, secrets: Iterable[str], shortest: int = SHORTEST_SECRET) -> str:
    """Return a cloud's text, which may quote the request, with `***` in place of the request's secrets, also where they
    are escaped as in JSON, Python, a URL or a form. Shorten the text only afterwards, because a secret that was cut is
    not found. `shortest`: 1 for texts that are secrets whatever their length, such as a password."""
    for secret in secrets:
        if len(secret) >= shortest:
            as_text = (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1])
            for spelling in (*as_text, quote(secret), quote(secret, safe=""), quote_plus(secret)):
                text = text.replace(spelling, "***")
    return text
